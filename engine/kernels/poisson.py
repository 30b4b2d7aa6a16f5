"""Many Poisson numbers at once, from a table: the fast part of a multinomial with many draws.

torch draws Poisson numbers one by one (60–100 ns each). Here a rate is cut as L + r, L the largest multiple of 1/16 below it:
Poisson(L + r) = Poisson(L) + Poisson(r), the first from an alias table of that level (a dozen vector operations, about
10 ns), the second left to the caller, for whom Poisson numbers of all r of a row are Poisson(sum r) single draws from r.
Rates from 64 on go to `torch.poisson`. Exact up to the 24 bits of a uniform number, as every draw here. This project's own.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from engine.kernels.inversion import PIECE, each
from engine.kernels.noise import uniforms

_STEP, _LEVELS, _OUTCOMES = 16, 1024, 128  # levels a unit of rate; levels; outcomes (P(N > 127) is below 1e-11 at rate 64)
_FINE = 2**17  # units of a threshold: with 7 bits for the slot, the 24 bits of a uniform number


@lru_cache(maxsize=2)
def alias_table(device: torch.device) -> Tensor:
    """Slots of all levels, `(levels * outcomes,)` int32: threshold * 128 + alias, thresholds in units of 2^-17.

    Slot s of level i gives s where the rest of the uniform number is below the threshold, else the alias.
    """
    rate = torch.arange(_LEVELS, dtype=torch.float64)[:, None] / _STEP
    outcome = torch.arange(_OUTCOMES, dtype=torch.float64)
    left = (torch.xlogy(outcome, rate) - rate - torch.lgamma(outcome + 1)).exp()
    left = left / left.sum(-1, keepdim=True) * _OUTCOMES
    threshold, alias = torch.ones_like(left), torch.arange(_OUTCOMES).repeat(_LEVELS, 1)
    levels, settled = torch.arange(_LEVELS), torch.zeros_like(left, dtype=torch.bool)
    for _ in range(_OUTCOMES - 1):  # Walker's construction, all levels together: the fullest slot tops up the emptiest
        low = left.masked_fill(settled, torch.inf).argmin(-1)
        high = left.masked_fill(settled, -torch.inf).argmax(-1)
        threshold[levels, low], alias[levels, low] = left[levels, low].clamp(0, 1), high
        left[levels, high] -= 1 - left[levels, low]
        settled[levels, low] = True
    return ((threshold * _FINE).round().int() * _OUTCOMES + alias.int()).flatten().to(device)


def poisson_floor(rate: Tensor, sources: Sequence[torch.Generator], blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Counts and what is left of the rates, each shaped as `rate`, `(rows, keys)` float32 >= 0: Poisson(rate) = counts + Poisson(left).

    `blocks[i]` rows in turn take their randomness from `sources[i]`. What is left is in [0, 1/16) and exact.
    """
    table = alias_table(rate.device)
    counts, left = uniforms(sources, blocks, rate.shape[-1], rate.device), torch.empty_like(rate)

    def piece(start: int, stop: int) -> None:
        part = slice(start, stop)
        level = (rate[part] * _STEP).floor_().clamp_(max=_LEVELS - 1)
        number = counts[part].mul_(_FINE * _OUTCOMES).int()  # 24 bits: 7 choose the slot, 17 are compared
        slot = number.bitwise_right_shift(17)
        found = table.index_select(0, level.int().mul_(_OUTCOMES).add_(slot).flatten()).view_as(slot)
        below = number.bitwise_and_(_FINE - 1) < found.bitwise_right_shift(7)
        counts[part] = torch.where(below, slot, found.bitwise_and_(_OUTCOMES - 1))
        torch.sub(rate[part], level, alpha=1 / _STEP, out=left[part])

    each(piece, len(rate), max(1, PIECE // rate.shape[-1]))
    large = (rate >= _LEVELS / _STEP).view(-1).nonzero()[:, 0]
    if len(large):
        ends = torch.tensor(blocks).cumsum(0).to(large.device) * rate.shape[-1]
        sizes = torch.searchsorted(large, ends).diff(prepend=large.new_zeros(1)).tolist()
        rest = left.view(-1)[large].split(sizes)
        counts.view(-1)[large] += torch.cat([torch.poisson(part, generator=source) for part, source in zip(rest, sources, strict=True)])
        left.view(-1)[large] = 0.0
    return counts, left
