"""Which operand's axis an axis of a result is: products, einsums, views. Axes are negative, counted from the last."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def matmul_owners(left: Sequence[int], right: Sequence[int], axis: int) -> tuple[int, ...]:
    """Operands (0 left, 1 right) that have the axis of `left @ right`; both for an axis of the batch."""
    if len(right) == 1:
        return (0,)
    if len(left) == 1:
        return (1,)
    if axis == -1:
        return (1,)
    if axis == -2:
        return (0,)
    return tuple(i for i, shape in enumerate((left, right)) if len(shape) >= -axis and shape[axis] > 1)


def einsum_parts(equation: str, operands: int) -> tuple[list[str], str] | None:
    """The operands' letters and the result's, `...` as one full stop; None where they cannot be read."""
    left, arrow, right = equation.replace(" ", "").replace("...", ".").partition("->")
    parts = left.split(",")
    if len(parts) != operands:
        return None
    if not arrow:
        letters = "".join(parts)
        right = ("." if "." in letters else "") + "".join(sorted(x for x in set(letters) if x.isalpha() and letters.count(x) == 1))
    return parts, right


def einsum_owners(equation: str, operands: int, dimensions: int, axis: int) -> tuple[int, ...] | None:
    """Operands that have the axis of an einsum's result of so many dimensions; None where it is not told."""
    found = einsum_parts(equation, operands)
    if found is None:
        return None
    parts, right = found
    letter = letter_at(right, dimensions, axis)
    return None if letter is None else tuple(i for i, part in enumerate(parts) if letter in part)


def letter_at(letters: str, dimensions: int, axis: int) -> str | None:
    """The letter at an axis of an operand of so many dimensions; None where `...` stands there."""
    before, dots, after = letters.partition(".")
    if not dots:
        return letters[axis] if -axis <= len(letters) else None
    if -axis <= len(after):
        return after[axis]
    place = dimensions + axis
    return before[place] if 0 <= place < len(before) else None


def parent_axis(view: Callable[[Tensor], Tensor], before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """The axis of a view's input that became `axis` of its result, or None where that axis was merged or cut.

    Read off a probe that counts along one axis and is the same along the others (stride 0).
    """
    length = after[axis]
    for candidate in range(-1, -len(before) - 1, -1):
        if before[candidate] != length or length == 1:
            continue
        shape = [1] * len(before)
        shape[candidate] = length
        probe = torch.arange(length).view(shape).expand(tuple(before))
        try:
            seen = view(probe)
        except (RuntimeError, TypeError, IndexError):
            return None
        if isinstance(seen, Tensor) and key_axis(seen) == axis:
            return candidate
    return None


def split_axis(view: Callable[[Tensor], Tensor], before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """The axis of a view's input of which `axis` of its result is a part, where the view split it into several."""
    for candidate in range(-1, -len(before) - 1, -1):
        if before[candidate] <= after[axis] or before[candidate] % after[axis] or after[axis] == 1:
            continue
        shape = [1] * len(before)
        shape[candidate] = before[candidate]
        try:
            seen = view(torch.arange(before[candidate]).view(shape).expand(tuple(before)))
        except (RuntimeError, TypeError, IndexError):
            return None
        if isinstance(seen, Tensor) and seen.dim() == len(after) and seen.stride(axis):
            return candidate
    return None


def key_axis(probe: Tensor) -> int | None:
    """Axis (negative) along which a probe counts the keys, or None where they no longer lie along one axis, all of them."""
    moving = [i - probe.dim() for i, (step, length) in enumerate(zip(probe.stride(), probe.shape, strict=True)) if step and length > 1]
    if len(moving) != 1 or probe.stride(moving[0]) != 1:
        return None
    return moving[0] if probe.shape[moving[0]] == probe.untyped_storage().nbytes() // probe.element_size() else None
