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

from engine.kernels.noise import uniforms

_STEP, _LEVELS, _OUTCOMES = 16, 1024, 128  # levels a unit of rate; levels; outcomes (P(N > 127) is below 1e-11 at rate 64)
_CHUNK = 2**16  # numbers handled at a time: what a core's cache holds


@lru_cache(maxsize=2)
def alias_table(device: torch.device) -> tuple[Tensor, Tensor]:
    """Thresholds and aliases, each `(levels * outcomes,)` float32: slot s of level i gives s below its threshold, else its alias."""
    rate = torch.arange(_LEVELS, dtype=torch.float64)[:, None] / _STEP
    outcome = torch.arange(_OUTCOMES, dtype=torch.float64)
    left = (torch.xlogy(outcome, rate) - rate - torch.lgamma(outcome + 1)).exp()
    left = left / left.sum(-1, keepdim=True) * _OUTCOMES
    threshold, alias = torch.ones_like(left), outcome.repeat(_LEVELS, 1)
    levels, settled = torch.arange(_LEVELS), torch.zeros_like(left, dtype=torch.bool)
    for _ in range(_OUTCOMES - 1):  # Walker's construction, all levels together: the fullest slot tops up the emptiest
        low = left.masked_fill(settled, torch.inf).argmin(-1)
        high = left.masked_fill(settled, -torch.inf).argmax(-1)
        threshold[levels, low], alias[levels, low] = left[levels, low], high.double()
        left[levels, high] -= 1 - left[levels, low]
        settled[levels, low] = True
    return threshold.float().flatten().to(device), alias.float().flatten().to(device)


def poisson_floor(rate: Tensor, sources: Sequence[torch.Generator], blocks: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Counts and what is left of the rates, each shaped as `rate`, `(rows, keys)` float32 >= 0: Poisson(rate) = counts + Poisson(left).

    `blocks[i]` rows in turn take their randomness from `sources[i]`. What is left is in [0, 1/16) and exact.
    """
    threshold, alias = alias_table(rate.device)
    counts, left = uniforms(sources, blocks, rate.shape[-1], rate.device), torch.empty_like(rate)
    rows = max(1, _CHUNK // rate.shape[-1])
    for at in range(0, len(rate), rows):
        part = slice(at, at + rows)
        level = (rate[part] * _STEP).floor_().clamp_(max=_LEVELS - 1)
        place = counts[part].mul_(_OUTCOMES)
        slot = place.floor()
        index = torch.add(slot, level, alpha=_OUTCOMES).long().flatten()
        below = place.sub_(slot) < threshold.index_select(0, index).view_as(slot)
        torch.where(below, slot, alias.index_select(0, index).view_as(slot), out=counts[part])
        torch.sub(rate[part], level, alpha=1 / _STEP, out=left[part])
    if float(rate.max()) >= _LEVELS / _STEP:
        start = 0
        for source, block in zip(sources, blocks, strict=True):
            part = slice(start, start + block)
            large = (rate[part] >= _LEVELS / _STEP).nonzero(as_tuple=True)
            counts[part][large] += torch.poisson(left[part][large], generator=source)
            left[part][large] = 0.0
            start += block
    return counts, left
