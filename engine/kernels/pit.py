"""Probability integral transform and rank histogram of an ensemble, ties shared, missing members allowed.

An observation with b members below and e equal among m present owns the interval [b/(m + 1), (b + e + 1)/(m + 1)] of
(0, 1): the randomised PIT is uniform on it, and its expected CDF is linear across it. Both follow from that interval,
whatever m is at the point (mass of an interval, not a rank, so that ensembles with holes share one histogram).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.kernels.area import flat, point_weights
from engine.types import Array, EnsembleView


def pit_interval(view: EnsembleView) -> tuple[Array, Array]:
    """Lower and upper end of the interval that each observation owns, each `(case, *event)` in [0, 1]; NaN where invalid."""
    m = np.where(view.valid, view.count, np.nan)
    return view.below / (m + 1), (view.below + view.equal + 1) / (m + 1)


def randomised_pit(view: EnsembleView, *, seed: int, case_ids: Sequence[int]) -> Array:
    """PIT u = (#{x < y} + V · (#{x = y} + 1)) / (m + 1), `(case, *event)` in (0, 1); NaN where invalid.

    V ~ U(0, 1) is keyed by (seed, case id), so the numbers do not depend on how cases are batched. u is exactly uniform
    when the observation and the members are exchangeable, ties included.
    """
    low, high = pit_interval(view)
    noise = np.empty(low.shape)
    for row, case in zip(noise, case_ids, strict=True):
        generator = np.random.Generator(np.random.Philox(key=[seed, case]))
        row[...] = generator.random(row.shape)
    return low + noise * (high - low)


def rank_share(view: EnsembleView, weights: Array) -> Array:
    """Weighted share of each rank 0 … M, `(case, region, M + 1)`, sum 1; NaN where a region has no valid point.

    Ties are shared equally over the ranks they could take. Where m < M members are present, the interval that the
    observation owns is laid over the M + 1 bins of width 1/(M + 1) in proportion to the overlap.
    """
    return view.once("rank_share", weights, _rank_share)


def _rank_share(view: EnsembleView, weights: Array) -> Array:
    share = point_weights(view, weights)
    cases, regions, bins = len(view.observed), share.shape[1], len(view.members) + 1
    below = flat(view.below, cases)
    tied = flat(view.equal, cases) > 0
    if not view.complete:
        tied = tied | (flat(view.count, cases) < len(view.members))
    tied &= flat(view.valid, cases)
    row = np.arange(cases)[:, None]
    index = (below + row * bins).ravel()
    out = np.empty((cases, regions, bins))
    any_tied = tied.any()
    for r in range(regions):
        weight = np.broadcast_to(np.nan_to_num(share[:, r]), below.shape)
        plain = np.where(tied, 0.0, weight) if any_tied else weight
        out[:, r] = np.bincount(index, weights=plain.ravel(), minlength=cases * bins).reshape(cases, bins)
    if any_tied:
        which, point = np.nonzero(tied)
        low, high = (flat(end, cases)[which, point] * bins for end in pit_interval(view))
        for r in range(regions):
            weight = np.broadcast_to(np.nan_to_num(share[:, r]), below.shape)[which, point]
            out[:, r] += _interval_mass(which, low, high, weight, cases, bins)
    lost = np.isnan(share).any(-1)
    if lost.any():
        out[np.broadcast_to(lost, (cases, regions))] = np.nan
    return out


def _interval_mass(which: NDArray[np.int64], low: Array, high: Array, weight: Array, cases: int, bins: int) -> Array:
    """Mass of uniform densities on [low, high] (in bins) by case and bin: steps up and down, added up by one cumulative sum."""
    size = bins + 3
    slope = np.zeros(cases * size)
    density = weight / (high - low)
    for end, sign in ((low, 1.0), (high, -1.0)):
        cell = np.floor(end)
        part = end - cell
        index = which * size + cell.astype(np.int64)
        slope += np.bincount(index, weights=sign * density * (1 - part), minlength=slope.size)
        slope += np.bincount(index + 1, weights=sign * density * part, minlength=slope.size)
    mass = np.cumsum(slope.reshape(cases, size), axis=-1)[:, :bins]
    return np.maximum(mass, 0.0)  # the cumulative sum leaves −1e-17 in empty bins


def bins_that_divide(members: int, points: int, *, most: int = 20, small: int = 8192) -> int:
    """Number of rank bins for maps: a divisor of M + 1, so that every bin holds the same number of ranks.

    All M + 1 on a small grid; else the largest divisor up to `most`, and M + 1 again where that is prime.
    """
    ranks = members + 1
    if points <= small:
        return ranks
    return max((d for d in range(2, most + 1) if ranks % d == 0), default=ranks)
