"""Tier T3: softmaxes that a model writes by hand, told from those that are no attention, and sampled where they meet the values.

Reached: softmax over any axis but the batch's, `torch.special.softmax`, `softmin`, `log_softmax(x).exp()`, `exp(x - logsumexp(x))` and
an exponential divided by its own sum, as either factor of a product or einsum that sums over the keys. Such a softmax is attention
where its keys are rows of an activation that a query multiplied, and what it averages depends on the input
(`engine.kernels.provenance`); any other is left as it is, and named.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.errors import AttentionError
from engine.kernels import softmax_tags as tags
from engine.kernels.axes import einsum_parts
from engine.kernels.multinomial import Rows
from engine.kernels.noise import RowKeys
from engine.kernels.padding import padded_counts
from engine.kernels.provenance import MATMULS, SOFTMAXES, Node, Trace, derived_from, log_sum, origin_of, own_sum, softmax_axis
from engine.kernels.sites import Site, SiteTracker

_MULTIPLY = ("mul", "multiply", "__mul__", "__rmul__")
_DIVIDE = ("div", "divide", "true_divide", "__truediv__", "__div__", "div_", "__itruediv__", "__idiv__")
_ONE = 1e-3  # weights in half precision sum to one within 2^-9


class SoftmaxByHand:
    """The handlers of a mode; `draws` gives ν of a site, `trace` where tensors come from."""

    def __init__(self, tracker: SiteTracker, trace: Trace, draws: Callable[[Site], int | None]) -> None:
        self.tracker, self.trace, self.draws = tracker, trace, draws
        self.softmaxes: list[tags.Softmax] = []
        self.hidden: dict[str, None] = {}
        self.unnormalised: dict[str, None] = {}
        self.auditing = False
        self.handlers: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(SOFTMAXES, self._softmax),
            "gumbel_softmax": self._gumbel,
            "exp": self._exponential,
            "where": self._where,
            "einsum": self._einsum,
            **dict.fromkeys(tags.PRODUCTS, self._product),
            **dict.fromkeys(tags.CARRIERS, self.carry),
            **dict.fromkeys(tags.IN_PLACE, self._in_place),
            **dict.fromkeys(_MULTIPLY, self._multiply),
            **dict.fromkeys(_DIVIDE, self._divide),
        }
        del self.handlers["log_softmax"], self.handlers["_log_softmax"], self.handlers["special_log_softmax"]

    def start(self) -> None:
        """Forget the last forward."""
        self.softmaxes.clear()
        self.trace.forget()

    def _record(self, out: Any, logits: Tensor, axis: int, form: str) -> None:
        """Remember a softmax, and tag its result where it can be drawn from: rows of cases by keys."""
        if not isinstance(out, Tensor) or not out.dim():
            return
        axis = axis if axis < 0 else axis - out.dim()
        softmax = tags.Softmax(self.tracker.module, self.trace.origin(logits, axis), form)
        self.softmaxes.append(softmax)
        if out.dim() + axis > 0:
            tags.fresh(out, self, softmax, axis)

    def _softmax(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        out, logits = func(*args, **kwargs), args[0] if args else kwargs["input"]
        self._record(out, logits, softmax_axis(args, kwargs, logits.dim()), "softmin" if name == "softmin" else "softmax")
        return out

    def _gumbel(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Noise of its own inside: named, never drawn from."""
        out, logits = func(*args, **kwargs), args[0] if args else kwargs["logits"]
        axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
        self._record(out, logits, axis, "gumbel_softmax")
        tags.drop(out)
        self.softmaxes[-1].met = True
        return out

    def _exponential(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        out = func(*args, **kwargs)
        if args and isinstance(args[0], Tensor):
            node = self.trace.node(args[0])
            if node.name in SOFTMAXES and "log" in node.name:
                self._record(out, args[0], node.how, "log_softmax().exp()")
                self.softmaxes[-1].origin = origin_of(node.parents[0], node.how)
            elif (found := log_sum(node)) is not None:
                self._record(out, args[0], found[1], "exp(x - logsumexp(x))")
        return out

    def _divide(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        weights, *rest = args or (None,)
        if not rest or not isinstance(weights, Tensor):
            return func(*args, **kwargs)
        tag = tags.tag_of(weights, self)
        axis = own_sum(self.trace.node(weights), self.trace.node(rest[0])) if isinstance(rest[0], Tensor) else None
        if axis is None or (tag is not None and tag.axis != axis) or (tag is None and not self.trace.exponential(weights)):
            if tag is not None and name.endswith("_"):  # weights that are scaled otherwise, in place, are no longer a softmax
                tags.drop(weights)
            return func(*args, **kwargs)
        logits = self.trace.origin(weights, axis)
        out = func(*args, **kwargs)
        if tag is not None:  # weights whose sum is made one again stay what they are
            return tags.put(out, replace(tag, source=None))
        self._record(out, out, axis, "exponential over its own sum")
        self.softmaxes[-1].origin = logits
        return out

    def _multiply(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        for one, other in ((args[0], args[-1]), (args[-1], args[0])) if len(args) == 2 else ():
            tag = tags.tag_of(one, self)
            if tag is not None and isinstance(other, Tensor) and other.numel() > 1 and not self.trace.is_constant(other):
                tag.softmax.met = True
        return func(*args, **kwargs)

    def carry(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Run what leaves keys whole, and hand the tag on."""
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

    def _product(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        names = ("input", "batch1", "batch2") if name == "baddbmm" else ("input", "vec" if name == "mv" else "mat2")
        if name == "matmul":
            names = ("input", "other")
        values = [*args, *(kwargs.pop(n) for n in names[len(args) :] if n in kwargs)]
        left, right = tags.PRODUCTS[name]
        if len(values) <= max(left, right) or not all(isinstance(values[i], Tensor) for i in (left, right)):
            return func(*values, **kwargs)
        for position, other in ((left, right), (right, left)):
            summed = -1 if position == left or values[position].dim() == 1 else -2
            if self._attends(values, position, [other], summed):
                return self._sampled(func, values, position, other, kwargs)
        return func(*values, **kwargs)

    def _einsum(self, name: str, func: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if not args or not isinstance(args[0], str):
            return func(*args, **kwargs)
        listed = len(args) == 2 and isinstance(args[1], list | tuple)
        operands = list(args[1]) if listed else list(args[1:])
        for position, operand in enumerate(operands):
            tag = tags.tag_of(operand, self)
            axis = tag.axis if tag is not None else self._summed_last(args[0], operands, position)
            others = tags.contracted(args[0], operands, position, axis)
            if others and self._attends(operands, position, others, axis):
                return self._sampled(lambda *parts, **kw: func(args[0], list(parts), **kw), operands, position, others[0], kwargs)
        return func(*args, **kwargs)

    def _summed_last(self, equation: str, operands: Sequence[Any], position: int) -> int:
        """The one axis of an operand that an einsum sums; 0 where there are none or several. Only asked while a model is audited."""
        found = einsum_parts(equation, len(operands)) if self.auditing else None
        if found is None or "." in found[0][position]:
            return 0
        part, right = found[0][position], found[1]
        summed = [i - len(part) for i, letter in enumerate(part) if letter not in right]
        return summed[0] if len(summed) == 1 else 0

    def _attends(self, values: Sequence[Any], position: int, others: Sequence[int], axis: int) -> bool:
        """Whether the factor at `position` is attention weights over `axis`, which is summed, and the others depend on the input."""
        tag = tags.tag_of(values[position], self)
        varying = any(not self.trace.is_constant(values[i]) for i in others)
        if tag is None:
            if self.auditing and varying:
                self._audit(values[position], axis)
            return False
        tag.softmax.met |= varying
        tag.softmax.constants |= not varying
        return varying and tag.axis == axis and tag.softmax.origin.kind == "attention"

    def _audit(self, weights: Tensor, axis: int) -> None:
        """Name weights that no softmax which was seen explains: they sum to one over what is summed, or are exponentials of scores."""
        if weights.dim() < 2 or weights.shape[axis] < 2 or not weights.is_floating_point() or self.trace.is_constant(weights):
            return
        node, what = self.trace.node(weights), None
        if any(each.name == "exp" for each in derived_from(node)) and self.trace.origin(weights, axis).kind == "attention":
            what = "exponentials of query × key that are normalised after their product with the values"
        elif _averages(weights, axis):
            what = "weights that sum to one and meet values, made by no softmax that is followed"
        place = self.tracker.module or "the model"
        if what is not None:
            self.hidden[f"{place}: {what}"] = None
        elif self._product_behind(node) and self.trace.origin(weights, axis).kind == "attention":
            self.unnormalised[f"{place}: products of activations that meet values without a softmax (linear or sigmoid attention, say)"] = (
                None
            )

    @staticmethod
    def _product_behind(node: Node) -> bool:
        return any(each.name in MATMULS or each.name == "einsum" for each in derived_from(node))

    def _sampled(self, func: Callable[..., Any], values: list[Any], position: int, value: int, kwargs: dict) -> Any:
        """`func(*values)` with the weights at `position` replaced by drawn ones."""
        weights = values[position]
        tag = tags.tag_of(weights, self)
        assert tag is not None
        tag.softmax.consumed = True
        origin = tag.softmax.origin
        shapes = origin.query, origin.key, weights.shape[0], values[value].shape
        site, (keys, *others) = self.tracker.place("T3", *shapes, origin.words)
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
        nu = self.draws(site)
        drawn = source if nu is None else _drawn_weights(source.detach(), nu, keys, tag.axis)
        parts = [x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in values]
        parts[position] = drawn
        with torch.autocast(weights.device.type, enabled=False):
            return func(*parts, **kwargs).to(weights.dtype)


def _averages(weights: Tensor, axis: int) -> bool:
    """Whether weights are those of an average: none negative, sums of one, and not all ones and zeros, which choose."""
    if bool((weights < 0).any()) or not bool(((weights.float().sum(axis) - 1).abs() < _ONE).all()):
        return False
    return not bool(((weights == 0) | (weights == 1)).all())


def _drawn_weights(weights: Tensor, nu: int, keys: RowKeys, axis: int) -> Tensor:
    """W/nu times the rows' sums (1, unless the model masked after its softmax), shaped as `weights`, whose keys lie along `axis`."""
    turned = weights if axis == -1 else weights.movedim(axis, -1)
    shape = (len(turned), 1, 1, -1) if turned.dim() == 2 else (len(turned), -1, *turned.shape[-2:])
    rows = Rows(turned.reshape(shape))
    drawn = padded_counts(rows, nu, keys).mul_(rows.mass / nu)
    drawn = (drawn if rows.drawable else torch.where(rows.mass > 0, drawn, rows.weights)).view(turned.shape)
    return drawn if axis == -1 else drawn.movedim(-1, axis)
