"""Cutting a pre-norm stack into transitions: what its architectures share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.stack import Heads, Stack, Step

if TYPE_CHECKING:
    from torch import Tensor

    Branch = Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Cut:
    """A pre-norm block, `x += attend(x); x += mlp(x)`, each branch with its norm inside; the rest as in `Step`."""

    attend: "Branch"
    mlp: "Branch"
    heads: Heads | None = None
    out_weight: "Tensor | None" = None
    moments: Any = None


def pre_norm(embed: "Callable[[Any], tuple[Tensor, Any]]", blocks: Sequence[Cut], finish: "Branch", **named: Any) -> Stack:
    """A stack of pre-norm blocks; `finish(x, context)` is what follows the last; `named` are the rest of the Stack's fields."""

    def step(t: int) -> Step:
        block, before = blocks[t], blocks[t - 1].mlp
        between: Branch = (lambda x, context: x) if t == 0 else (lambda x, context: x + before(x, context))
        return Step(between, block.attend, heads=block.heads, out_weight=block.out_weight, moments=block.moments)

    last = blocks[-1].mlp
    steps = tuple(step(t) for t in range(len(blocks)))
    return Stack(embed=embed, steps=steps, tail=lambda x, context: finish(x + last(x, context), context), **named)
