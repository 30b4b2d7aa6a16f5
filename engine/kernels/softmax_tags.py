"""Softmax written by hand (tier T3): a tag on the softmax's result, carried until it meets the values.

A softmax over any axis but the batch's is tagged, and only operations that leave the keys whole carry the tag: casts, copies,
dropout that is off, masking with zeros, and views. Whatever else touches the weights loses the tag, and the softmax is
reported as loose (a router's softmax is rightly one). Where the keys are after a view is read off a probe, key numbers
0…n-1 that are the same in every row (stride 0) and are viewed alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.kernels.axes import einsum_parts, key_axis, letter_at
from engine.kernels.provenance import VIEWS, Origin

_ATTRIBUTE = "_stochastic_attention_tag"

CASTS = frozenset({"to", "type", "float", "half", "bfloat16", "double", "type_as", "_to_copy"})
COPIES = frozenset({"contiguous", "clone", "detach", "alias", "lift_fresh_copy"})
ZEROING = frozenset({"masked_fill", "nan_to_num"})
CARRIERS = CASTS | COPIES | VIEWS | ZEROING
IN_PLACE = frozenset({"masked_fill_", "nan_to_num_", "mul_"})
PRODUCTS = {name: (0, 1) for name in ("matmul", "__matmul__", "bmm", "mm", "mv")} | {"__rmatmul__": (1, 0), "baddbmm": (1, 2)}
"""Positions of the left and the right factor among the arguments."""


@dataclass
class Softmax:
    """One softmax of a forward: the module that called it, what it normalises over, and what its result met.

    `form`, how it was written; `consumed`, it was reached as attention; `met`, it multiplied something that depends on the input;
    `constants`, it multiplied what does not.
    """

    module: str
    origin: Origin
    form: str = "softmax"
    consumed: bool = False
    met: bool = False
    constants: bool = False

    @property
    def missed(self) -> bool:
        """Whether it stands for attention, or may, and was not reached."""
        return not self.consumed and (self.origin.kind == "attention" or (self.origin.kind == "places" and self.met))

    @property
    def words(self) -> str:
        """For people: the module, and what stands there."""
        use = ""
        if self.origin.kind == "attention":
            use = " that meets constants" if self.constants and not self.met else " that meets its values in no product that is followed"
        return f"{self.module or 'the model'}: a {self.form} over {self.origin.words}{use}"


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
    def axis(self) -> int:
        """Axis (negative) of the keys; 0 where there is none."""
        return key_axis(self.probe) or (-1 if self.probe.shape[-1] == 1 else 0)


def fresh(out: Tensor, owner: object, softmax: Softmax, axis: int) -> Tensor:
    """Tag the result of a softmax over the axis (negative) and return it."""
    shape = [1] * out.dim()
    shape[axis] = out.shape[axis]
    return put(out, Tag(owner, softmax, torch.arange(out.shape[axis], device=out.device).view(shape).expand(out.shape)))


def tag_of(value: Any, owner: object) -> Tag | None:
    """The tag that `owner` put on a tensor, if any."""
    found = getattr(value, _ATTRIBUTE, None) if isinstance(value, Tensor) else None
    return found if found is not None and found.owner is owner else None


def put(tensor: Tensor, tag: Tag) -> Tensor:
    """Tag a tensor and return it."""
    setattr(tensor, _ATTRIBUTE, tag)
    return tensor


def drop(tensor: Tensor) -> None:
    """Take a tag off."""
    if hasattr(tensor, _ATTRIBUTE):
        delattr(tensor, _ATTRIBUTE)


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


def contracted(equation: str, operands: Sequence[Any], position: int, axis: int) -> list[int]:
    """The other operands of an einsum with which `axis` of the operand at `position` is summed; none where it is not summed."""
    found = einsum_parts(equation, len(operands))
    if found is None or not axis:
        return []
    parts, right = found
    letter = letter_at(parts[position], operands[position].dim(), axis)
    if letter is None or not letter.isalpha() or letter in right or parts[position].count(letter) != 1:
        return []
    return [i for i, part in enumerate(parts) if i != position and letter in part]
