"""Softmax written by hand (tier T3): a tag on the softmax's result, carried until it meets the values.

Only a softmax over the last dimension is tagged, and only operations that leave the keys whole carry the tag: casts, copies,
dropout that is off, masking with zeros, and views. Whatever else touches the weights loses the tag, and the softmax is
reported as loose (a router's softmax is rightly one). Where the keys are after a view is read off a probe, key numbers
0…n-1 that are the same in every row (stride 0) and are viewed alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

_ATTRIBUTE = "_stochastic_attention_tag"

CASTS = frozenset({"to", "type", "float", "half", "bfloat16", "double", "type_as", "_to_copy"})
COPIES = frozenset({"contiguous", "clone", "detach", "alias", "lift_fresh_copy"})
VIEWS = frozenset({"view", "reshape", "view_as", "expand", "expand_as", "flatten", "unflatten", "squeeze", "unsqueeze", "_unsafe_view"})
VIEWS |= {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "__getitem__", "select", "narrow", "slice"}
ZEROING = frozenset({"masked_fill", "nan_to_num"})
CARRIERS = CASTS | COPIES | VIEWS | ZEROING
IN_PLACE = frozenset({"masked_fill_", "nan_to_num_", "mul_", "div_"})
PRODUCTS = {"matmul": 0, "__matmul__": 0, "bmm": 0, "mm": 0, "__rmatmul__": 1, "baddbmm": 1}


@dataclass
class Softmax:
    """One softmax of a forward: the module that called it, and whether its result met values."""

    module: str
    consumed: bool = False


@dataclass(frozen=True)
class Tag:
    """What a tensor of weights carries: its softmax and the probe of its keys, in the tensor's shape.

    `source` holds the weights as they were before a cast. `owner` tells interceptors apart: a tag left by another one is
    not seen.
    """

    owner: object
    softmax: Softmax
    probe: Tensor
    source: Tensor | None = None

    @property
    def ready(self) -> bool:
        """Whether the keys lie along the last dimension, so that the left factor of a product is summed over them."""
        return self.probe.shape[-1] == 1 or key_axis(self.probe) == -1


def fresh(out: Tensor, owner: object, softmax: Softmax) -> Tensor:
    """Tag the result of a softmax over its last dimension and return it."""
    return put(out, Tag(owner, softmax, torch.arange(out.shape[-1], device=out.device).expand(out.shape)))


def tag_of(value: Any, owner: object) -> Tag | None:
    """The tag that `owner` put on a tensor, if any."""
    found = getattr(value, _ATTRIBUTE, None) if isinstance(value, Tensor) else None
    return found if found is not None and found.owner is owner else None


def put(tensor: Tensor, tag: Tag) -> Tensor:
    """Tag a tensor and return it."""
    setattr(tensor, _ATTRIBUTE, tag)
    return tensor


def softmax_axis(args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """The `dim` argument of a softmax call."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    return axis if isinstance(axis, int) else None


def carry(name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], out: Any, tag: Tag) -> None:
    """Give `out = func(*args)` the tag of `args[0]` where the keys are still whole."""
    old = args[0]
    if not isinstance(out, Tensor) or not out.is_floating_point():
        return
    if name in CASTS:
        kept = tag.source if tag.source is not None else old
        put(out, replace(tag, source=kept if out is not old and out.dtype != kept.dtype else tag.source))
    elif name in COPIES:
        put(out, tag)
    elif name in ZEROING:
        put(out, replace(tag, source=None))
    elif (probe := _seen_through(func, args, kwargs, tag.probe)) is not None:
        put(out, replace(tag, probe=probe, source=None if tag.source is None else func(tag.source, *args[1:], **kwargs)))


def _seen_through(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], probe: Tensor) -> Tensor | None:
    """The probe after a view, or None where the view cut the keys or merged them with another dimension."""
    try:
        seen = func(probe, *args[1:], **kwargs)
    except (RuntimeError, TypeError):  # keys merged with another dimension: the probe has no strides for that
        return None
    return seen if isinstance(seen, Tensor) and key_axis(seen) is not None and seen.numel() else None


def key_axis(probe: Tensor) -> int | None:
    """Axis (negative) along which a probe counts the keys, or None where they no longer lie along one axis, all of them."""
    moving = [i - probe.dim() for i, (step, length) in enumerate(zip(probe.stride(), probe.shape, strict=True)) if step and length > 1]
    if len(moving) != 1 or probe.stride(moving[0]) != 1:
        return None
    return moving[0] if probe.shape[moving[0]] == probe.untyped_storage().nbytes() // probe.element_size() else None


def contracted(equation: str, position: int, axis: int) -> bool:
    """Whether operand `position` of an einsum has the index at `axis` summed against another operand."""
    left, _, right = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    own = operands[position]
    letter = own[axis] if -axis <= len(own) else "."
    others = operands[:position] + operands[position + 1 :]
    return letter.isalpha() and letter not in right and own.count(letter) == 1 and any(letter in other for other in others)
