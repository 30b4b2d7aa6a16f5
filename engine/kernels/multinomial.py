"""Exact multinomial draws for many rows at once: `nu` keys per row from that row's weights.

Rows are inverted from their cumulative weights: key = first i with CDF_i > t, t = min(u * CDF_last, the float below
CDF_last). The strict inequality leaves out keys of zero weight (they are plateaus of the CDF) and the bound leaves out
whatever follows the last key with mass; a rounded-up u cannot leave the range.
On a CPU `cumsum` runs along the row in double precision, so plateaus and order survive rounding to float32. A parallel
scan keeps neither, so other devices use an integer CDF (weights in units of 2^-40), whose sums are exact.

Many draws (`nu` above 64 and at least half the number of keys; measured): N_j ~ Poisson(lambda pi_j), lambda = nu - sqrt(nu);
rows with more than nu are drawn anew, and the nu - sum N missing draws are inverted from the CDF. Exact, because Poisson
counts given their sum are multinomial; cost grows as sqrt(nu) (topping up), memory does not.
Formula W ~ Multinomial(nu, pi): arXiv 2604.19530. The sampling algorithms and their regimes are this project's.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engine.kernels.inversion import PIECE, invert
from engine.kernels.noise import RowKeys, uniforms
from engine.kernels.poisson import poisson_floor

NU_MAX = 10**6
_WIDTH = 64  # draws held at a time: memory does not grow with nu
_UNIT = 2.0**40


@dataclass(frozen=True)
class Rows:
    """Weights of many categorical rows, `(batch, heads, queries, keys)`, float32, non-negative, not necessarily normalised."""

    weights: Tensor

    @cached_property
    def cdf(self) -> Tensor:
        """Cumulative weights, `(rows, keys)`: float32 on a CPU, int64 elsewhere."""
        return cumulative(self.weights.reshape(-1, self.weights.shape[-1]))

    @cached_property
    def mass(self) -> Tensor:
        """Total weight of each row, `(batch, heads, queries, 1)`; 0 or NaN marks a row from which nothing can be drawn."""
        total = self.cdf[:, -1:].reshape(*self.weights.shape[:-1], 1)
        return total if total.is_floating_point() else self.weights.sum(-1, keepdim=True)

    @cached_property
    def drawable(self) -> bool:
        """Whether every row has mass."""
        return bool((self.mass > 0).all())


def cumulative(weights: Tensor) -> Tensor:
    """Cumulative weights along the last dimension, keeping the plateaus of zero weights: float32 on a CPU, else int64."""
    return weights.cumsum(-1) if weights.device.type == "cpu" else (weights * _UNIT).round_().long().cumsum(-1)


def draw_keys(rows: Rows, nu: int, keys: RowKeys) -> Tensor:
    """`nu` independent keys a row, `(rows, nu)` int64; for small `nu` (memory grows with it)."""
    device, count = rows.cdf.device, len(rows.cdf) // len(keys)
    return invert(rows.cdf, uniforms(keys.generators(device), [count] * len(keys), nu, device))


def draw_counts(rows: Rows, nu: int, keys: RowKeys) -> Tensor:
    """Counts of `nu` independent draws a row, float32 of whole numbers, shaped as the weights; each row sums to `nu`.

    A row without mass has arbitrary counts; the caller overwrites its result.
    """
    sources = keys.generators(rows.cdf.device)
    if nu >= max(_WIDTH + 1, rows.weights.shape[-1] // 2):
        counts = _poisson_counts(rows, nu, sources)
        missing = nu - counts.sum(-1)
        missing = missing if rows.drawable else missing.masked_fill_((rows.mass > 0).logical_not().flatten(), 0)
        _top_up(counts, rows.cdf, missing, sources)
    else:
        counts = torch.zeros(rows.cdf.shape, device=rows.cdf.device)
        one, block = torch.ones((), device=counts.device), len(counts) // len(keys)
        for start in range(0, nu, _WIDTH):
            drawn = invert(rows.cdf, uniforms(sources, [block] * len(keys), min(_WIDTH, nu - start), counts.device))
            counts.scatter_add_(-1, drawn, one.expand(drawn.shape))
    return counts.view(rows.weights.shape)


def _top_up(counts: Tensor, cdf: Tensor, missing: Tensor, sources: list[torch.Generator]) -> None:
    """Add `missing` single draws a row, `(rows,)`, from `cdf` to `counts`, both `(rows, keys)`.

    A case's draws come from its source in the order of its rows; on a CPU, where a source yields one number after another,
    the rows are handled in pieces of about as many draws as there are weights.
    """
    missing, rows, one = missing.long(), len(counts), torch.ones((), device=cdf.device)
    block, most = rows // len(sources), max(1, int(missing.max()))
    step = max(1, max(8 * PIECE, counts.numel()) // most) if cdf.device.type == "cpu" else rows
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        cases = range(start // block, -(-stop // block))
        totals = [int(missing[max(start, i * block) : min(stop, (i + 1) * block)].sum()) for i in cases]
        row = torch.arange(stop - start, device=cdf.device).repeat_interleave(missing[start:stop])
        u = uniforms([sources[i] for i in cases], totals, 1, cdf.device)[:, 0]
        place = invert(cdf[start:stop], u, row).add_(row, alpha=counts.shape[-1])
        counts[start:stop].view(-1).scatter_add_(0, place, one.expand(place.shape))


def _poisson_counts(rows: Rows, nu: int, sources: list[torch.Generator]) -> Tensor:
    """Poisson counts, `(rows, keys)`, of rate (nu - sqrt(nu)) pi, each row redrawn until its sum is at most `nu`."""
    rate = rows.weights * ((nu - nu**0.5) / rows.mass)
    rate = (rate if rows.drawable else rate.masked_fill_((rows.mass > 0).logical_not(), 0.0)).flatten(0, 2)
    blocks = [len(rate) // len(sources)] * len(sources)
    counts, left = poisson_floor(rate, sources, blocks)
    more = _poisson(left.sum(-1), sources, blocks)
    over = counts.sum(-1) + more > nu
    while bool(over.any()):
        at, blocks = over.nonzero()[:, 0], over.view(len(sources), -1).sum(1).tolist()
        counts[at], again = poisson_floor(rate[at], sources, blocks)
        more[at] = _poisson(again.sum(-1), sources, blocks)
        over[at] = counts[at].sum(-1) + more[at] > nu
    _top_up(counts, cumulative(left), more, sources)
    return counts


def _poisson(rate: Tensor, sources: list[torch.Generator], blocks: list[int]) -> Tensor:
    """One Poisson number per entry of `rate`, `(rows,)`, block by block from its own source."""
    return torch.cat([torch.poisson(part, generator=source) for part, source in zip(rate.split(blocks), sources, strict=True)])
