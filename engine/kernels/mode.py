"""The `TorchFunctionMode` that reaches attention in three tiers and hands it to the sampler.

T1 `scaled_dot_product_attention` (functional, and `aten` as exported programs call it, whole or decomposed for the CPU);
T2 `multi_head_attention_forward`; T3 a softmax written by hand (`engine.kernels.by_hand`). A mode takes the calls of its own model
alone, in the thread that entered it, and is off inside its own handlers. `nu` None recomputes every call deterministically by the
same path.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode

from engine.kernels.attention import as_sdpa, attention_rows, average_members, four_dimensions, rows_of
from engine.kernels.audit import custom_operator
from engine.kernels.by_hand import SoftmaxByHand
from engine.kernels.contexts import CALLS
from engine.kernels.multihead import multi_head_attention
from engine.kernels.provenance import Trace
from engine.kernels.sites import Site, SiteTracker

_FUSED = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_FUSED_CPU = ("query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")
_DROPOUTS = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "native_dropout", "alpha_dropout", "alpha_dropout_")
_DROPOUTS += ("feature_dropout", "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_")
_PROPERTIES = frozenset({"T", "mT", "H", "mH", "data"})


class AttentionMode(TorchFunctionMode):
    """Intercepts torch functions for one tracked model; `nu` draws a query, or None for the deterministic replay.

    A sequence gives each attention call its own, by the call's number; calls beyond its end take its last.
    """

    def __init__(self, tracker: SiteTracker, nu: int | Sequence[int] | None) -> None:
        super().__init__()
        self.tracker, self.nu, self.trace = tracker, nu, Trace()
        self.by_hand = SoftmaxByHand(tracker, self.trace, self._draws)
        self.reduced, self.seen = False, None
        self._handlers: dict[str, Callable[..., Any]] = {
            "scaled_dot_product_attention": self._fused,
            "_scaled_dot_product_flash_attention_for_cpu": self._fused_parts,
            "multi_head_attention_forward": self._multi_head,
            **self.by_hand.handlers,
            **dict.fromkeys(_DROPOUTS, self._dropout),
        }

    def reaches(self, name: str) -> bool:
        """Whether a softmax inside the function is accounted for."""
        return name in self._handlers or "log_softmax" in name or "cross_entropy" in name

    def _draws(self, site: Site) -> int | None:
        """ν of one attention call."""
        return self.nu[min(site.index, len(self.nu) - 1)] if isinstance(self.nu, Sequence) else self.nu

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Hand attention, softmax and what may follow it to a handler; everything else runs untouched."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").partition(".")[0]  # an operator's overload is named `softmax.int`
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
            if name not in _PROPERTIES:
                return func(*args, **kwargs)
        if not CALLS.belongs(self.tracker):
            return func(*args, **kwargs)
        self._name_foreign(func, name)
        handler, before, self.seen = self._handlers.get(name), self.seen, name
        try:
            out = func(*args, **kwargs) if handler is None else handler(name, func, args, kwargs)
        finally:
            self.seen = before
        self.trace.note(name, func, args, kwargs, out)
        return out

    def _name_foreign(self, func: Any, name: str) -> None:
        """Name kernels that cannot be seen into."""
        place = self.tracker.module or "the model"
        if isinstance(func, HigherOrderOperator):
            if "attention" in name:
                self.by_hand.hidden[f"{place}: {name}, a kernel of its own; use torch's fused attention"] = None
        elif (foreign := custom_operator(func)) is not None:
            self.by_hand.hidden[f"{place}: the operator {foreign}, which cannot be seen into and may hold attention"] = None

    def _fused(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict, names: Sequence[str] = _FUSED) -> Any:
        call = dict(zip(names, args, strict=False)) | kwargs
        q, k, v, dropout = call["query"], call["key"], call["value"], call.pop("dropout_p", 0.0)
        if dropout:
            self.tracker.note_dropout(name)
        site, keys = self.tracker.place("T1", q.shape, k.shape, rows_of(q, k, v), v.shape)
        if not site.active:
            return func(q, k, v, **{n: value for n, value in call.items() if n not in ("query", "key", "value")})
        kind = self._autocast(q)
        if kind is not None:
            q, k, v = (x.to(kind) for x in (q, k, v))
        q4, k4, v4, mask = four_dimensions(q, k, v, call.get("attn_mask"), call.get("enable_gqa", False))
        with torch.autocast(q.device.type, enabled=False):
            nu = self._draws(site)
            rows = attention_rows(q4, k4, mask, call.get("is_causal", False), call.get("scale"), nu)
            return as_sdpa(average_members(rows, v4, nu, keys, mask is not None)[0], q, k, v)

    def _autocast(self, q: Tensor) -> torch.dtype | None:
        """The dtype to which autocast takes a fused call's inputs, as torch does; None where it is off or they are of double precision."""
        device = q.device.type
        if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
            return None
        self.reduced = True
        return torch.get_autocast_dtype(device) if q.dtype != torch.float64 else None

    def _fused_parts(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """A decomposed export's call returns the log-sum-exp too, which only a backward pass reads."""
        out = self._fused(name, func, args, kwargs, _FUSED_CPU)
        return out if isinstance(out, tuple) else (out, out.new_empty(0))

    def _multi_head(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        training = kwargs.get("training", args[13] if len(args) > 13 else True)
        if training and kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0):
            self.tracker.note_dropout(name)

        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, Tensor | None]:
            site, keys = self.tracker.place("T2", q.shape, k.shape, len(q), v.shape)
            nu = self._draws(site) if site.active else None
            self._autocast(q)
            with torch.autocast(q.device.type, enabled=False):
                out, used = average_members(attention_rows(q, k, mask, False, None, nu), v, nu, keys, mask is not None, need_weights)
            return out.to(q.dtype), used

        return multi_head_attention(attend, *args, **kwargs)

    def _dropout(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        values = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
        rate, training = values.get("p", 0.5), values.get("training", values.get("train", True))
        if training and rate:
            self.tracker.note_dropout(name)
            kept = values["input"]
            return (kept, torch.ones_like(kept, dtype=torch.bool)) if name == "native_dropout" else kept
        return self.by_hand.carry("clone", func, args, kwargs)
