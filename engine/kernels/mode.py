"""The `TorchFunctionMode` that reaches attention in three tiers and hands it to the sampler.

T1 `scaled_dot_product_attention` (functional, and `aten` as exported programs call it, whole or decomposed for the CPU);
T2 `multi_head_attention_forward`; T3 a softmax written by hand, sampled where its result is the left factor of a product
(the factor that is summed over keys, in an einsum). A mode is active only in the thread that entered it, and is off inside
its own handlers. `nu` None recomputes every call deterministically by the same path.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from engine.errors import AttentionError
from engine.kernels import softmax_tags as tags
from engine.kernels.attention import as_sdpa, attention_rows, average_members, four_dimensions
from engine.kernels.multihead import multi_head_attention
from engine.kernels.multinomial import Rows, draw_counts
from engine.kernels.noise import RowKeys
from engine.kernels.sites import Site, SiteTracker

_FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_FUSED_CPU = ("query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")
_DROPOUTS = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "alpha_dropout", "alpha_dropout_")
_DROPOUTS += ("feature_dropout", "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")


class AttentionMode(TorchFunctionMode):
    """Intercepts torch functions for one tracked model; `nu` draws a query, or None for the deterministic replay.

    A sequence gives each attention call its own, by the call's number; calls beyond its end take its last.
    """

    def __init__(self, tracker: SiteTracker, nu: int | Sequence[int] | None) -> None:
        super().__init__()
        self.tracker, self.nu = tracker, nu
        self.softmaxes: list[tags.Softmax] = []
        self._handlers: dict[str, Callable[..., Any]] = {
            "scaled_dot_product_attention": self._fused,
            "_scaled_dot_product_flash_attention_for_cpu": self._fused_parts,
            "multi_head_attention_forward": self._multi_head,
            "softmax": self._softmax,
            "_softmax": self._softmax,
            "_safe_softmax": self._softmax,
            "where": self._where,
            "einsum": self._einsum,
            **dict.fromkeys(tags.PRODUCTS, self._product),
            **dict.fromkeys(tags.CARRIERS, self._carry),
            **dict.fromkeys(tags.IN_PLACE, self._in_place),
            **dict.fromkeys(_DROPOUTS, self._dropout),
        }

    def _draws(self, site: Site) -> int | None:
        """ν of one attention call."""
        return self.nu[min(site.index, len(self.nu) - 1)] if isinstance(self.nu, Sequence) else self.nu

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Hand attention, softmax and what may follow it to a handler; everything else runs untouched."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").partition(".")[0]  # an operator's overload is named `softmax.int`
        handler = self._handlers.get(name)
        return func(*args, **kwargs) if handler is None else handler(name, func, args, kwargs)

    def _fused(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict, names: Sequence[str] = _FUSED) -> Any:
        call = dict(zip(names, args, strict=False)) | kwargs
        q, k, v, dropout = call["query"], call["key"], call["value"], call.pop("dropout_p", 0.0)
        if dropout:
            self.tracker.note_dropout(name)
        site, keys = self.tracker.place("T1", q.shape, k.shape, q.shape[0] if q.dim() > 2 else 1)
        if not site.active:
            return func(q, k, v, **{n: value for n, value in call.items() if n not in ("query", "key", "value")})
        q4, k4, v4, mask = four_dimensions(q, k, v, call.get("attn_mask"), call.get("enable_gqa", False))
        with torch.autocast(q.device.type, enabled=False):
            nu = self._draws(site)
            rows = attention_rows(q4, k4, mask, call.get("is_causal", False), call.get("scale"), nu)
            return as_sdpa(average_members(rows, v4, nu, keys)[0], q)

    def _fused_parts(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """A decomposed export's call returns the log-sum-exp too, which only a backward pass reads."""
        out = self._fused(name, func, args, kwargs, _FUSED_CPU)
        return out if isinstance(out, tuple) else (out, out.new_empty(0))

    def _multi_head(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        training = kwargs.get("training", args[13] if len(args) > 13 else True)
        if training and kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0):
            self.tracker.note_dropout(name)

        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
            site, keys = self.tracker.place("T2", q.shape, k.shape, len(q))
            nu = self._draws(site) if site.active else None
            with torch.autocast(q.device.type, enabled=False):
                out, used = average_members(attention_rows(q, k, mask, False, None, nu), v, nu, keys, need_weights)
            return out.to(q.dtype), used

        return multi_head_attention(attend, *args, **kwargs)

    def _softmax(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and out.dim() > 1 and tags.softmax_axis(args, kwargs) in (-1, out.dim() - 1):
            self.softmaxes.append(tags.Softmax(self.tracker.module))
            tags.fresh(out, self, self.softmaxes[-1])
        return out

    def _carry(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        out = func(*args, **kwargs)
        if args and (tag := tags.tag_of(args[0], self)) is not None:
            tags.carry(name, func, args, kwargs, out, tag)
        return out

    def _in_place(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if args and (tag := tags.tag_of(args[0], self)) is not None:
            tags.put(args[0], replace(tag, source=None))  # what was kept from before a cast is out of date now
        return func(*args, **kwargs)

    def _where(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Rows replaced by zeros (a decomposed fused call does it to fully masked rows) keep their tag."""
        out = func(*args, **kwargs)
        if len(args) == 3:
            for kept, other in ((args[1], args[2]), (args[2], args[1])):
                tag = tags.tag_of(kept, self)
                if tag is not None and kept.shape == out.shape and not torch.as_tensor(other).any():
                    tags.put(out, replace(tag, source=None))
        return out

    def _dropout(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        values = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
        rate, training = values.get("p", 0.5), values.get("training", values.get("train", True))
        if training and rate:
            self.tracker.note_dropout(name)
            kept = values["input"]
            return (kept, torch.ones_like(kept, dtype=torch.bool)) if name == "native_dropout" else kept
        return self._carry("clone", func, args, kwargs)

    def _product(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        names = ("input", "batch1", "batch2") if name == "baddbmm" else ("input", "mat2")
        if name == "matmul":
            names = ("input", "other")
        values = [*args, *(kwargs.pop(n) for n in names[len(args) :] if n in kwargs)]
        return self._sampled(func, values, tags.PRODUCTS[name], kwargs)

    def _einsum(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if not args or not isinstance(args[0], str):
            return func(*args, **kwargs)
        listed = len(args) == 2 and isinstance(args[1], list | tuple)
        operands = list(args[1]) if listed else list(args[1:])
        for position, operand in enumerate(operands):
            tag = tags.tag_of(operand, self)
            if tag is not None and tag.ready and tags.contracted(args[0], position, -1):
                return self._sampled(lambda *parts, **kw: func(args[0], list(parts), **kw), operands, position, kwargs)
        return func(*args, **kwargs)

    def _sampled(self, func: Callable[..., Any], values: list[Any], position: int, kwargs: dict) -> Any:
        """`func(*values)` with the weights at `position` replaced by drawn ones, if they are a tagged softmax."""
        weights = values[position] if position < len(values) else None
        tag = tags.tag_of(weights, self)
        if tag is None or weights is None or not tag.ready:
            return func(*values, **kwargs)
        tag.softmax.consumed = True
        site, (keys, *others) = self.tracker.place("T3", weights.shape, weights.shape, weights.shape[0])
        if not site.active:
            return func(*values, **kwargs)
        if others:
            raise AttentionError(
                f"attention call {site.index} in {site.module or 'the model'}",
                found="a softmax written by hand at the first active site",
                expected="a fused or multi-head call there, where members are spread",
                remedy="Repeat the rows for each member and leave spread off.",
            )
        source = (weights if tag.source is None else tag.source).float()
        nu = self._draws(site)
        drawn = source if nu is None else _drawn_weights(source.detach(), nu, keys)
        parts = [x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in values]
        parts[position] = drawn
        with torch.autocast(weights.device.type, enabled=False):
            return func(*parts, **kwargs).to(weights.dtype)


def _drawn_weights(weights: Tensor, nu: int, keys: RowKeys) -> Tensor:
    """W/nu times the rows' sums (1, unless the model masked after its softmax), shaped as `weights`."""
    shape = (len(weights), 1, 1, -1) if weights.dim() == 2 else (len(weights), -1, *weights.shape[-2:])
    rows = Rows(weights.reshape(shape))
    drawn = draw_counts(rows, nu, keys).mul_(rows.mass / nu)
    return (drawn if rows.drawable else torch.where(rows.mass > 0, drawn, rows.weights)).view(weights.shape)
