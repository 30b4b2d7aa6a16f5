"""Calibration of a classifier's confidence: bins of confidence, and the CORP reliability curve, which needs none.

Everything with `weights` takes them with any leading shape, `(..., case)`: a bootstrap hands over all of its replicates at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.types import Array


class Bins(NamedTuple):
    """Per bin, `(..., bin)`: weight in it, mean confidence and accuracy; the last two NaN where it is empty."""

    counts: Array
    confidence: Array
    accuracy: Array


class Reliability(NamedTuple):
    """`(knot,)` each: stated probabilities ascending, the recalibrated frequency of each, and the ends of its consistency band."""

    probability: Array
    frequency: Array
    low: Array
    high: Array


def equal_width(bins: int = 15) -> Array:
    """Edges of bins of equal width on [0, 1], `(bin + 1,)`: quotients, so that 9 of 15 is the number that 0.6 is."""
    return np.arange(bins + 1) / bins


def bins(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None, edges: ArrayLike) -> Bins:
    """Weight, mean confidence and accuracy of the bins (lo, hi] between ascending `edges` `(bin + 1,)`.

    `confidence` in [0, 1] and `correct` `(case,)`; `weights` `(..., case)` or None for ones. The outer bins take what lies on or
    beyond the outer edges, so that p = 0 is in the first and p = 1 in the last. Edges are rounded to the precision of the
    confidences: 0.2 in float32 lies on the edge 0.2, not a hair above it (our choice).
    """
    stated = np.asarray(confidence)
    stated = stated if stated.dtype in (np.float32, np.float64) else stated.astype(np.float64)
    inner = np.asarray(edges, dtype=np.float64)[1:-1]
    place = np.digitize(stated, inner.astype(stated.dtype), right=True)
    within = (place[:, None] == np.arange(len(inner) + 1)).astype(np.float64)
    w = np.ones(len(stated)) if weights is None else np.asarray(weights, dtype=np.float64)
    counts = w @ within
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [
            (w @ (within * np.asarray(v, dtype=np.float64)[:, None])) / np.where(counts > 0, counts, np.nan) for v in (stated, correct)
        ]
    return Bins(counts, means[0], means[1])


ULPS = 4
"""Relative distance, in units of the last place, within which two probabilities are one (our choice): means of softmaxes and their sums
round by one or two, and a tie that is lost to rounding changes what sorting makes of it."""


def tie_tolerance(values: ArrayLike) -> float:
    """Relative distance within which values of this precision (float32 or float64) count as equal."""
    dtype = np.asarray(values).dtype
    return ULPS * float(np.finfo(dtype if dtype in (np.float32, np.float64) else np.float64).eps)


def tie_starts(ordered: Array, tolerance: float | None = None) -> NDArray[np.intp]:
    """Position at which each distinct value of a sorted `(case,)`, ascending or descending, begins.

    Values within `tolerance` (relative, to half the greatest at least; by the precision of the values where None) of a group's
    first are ties.
    """
    ordered = np.asarray(ordered)
    tolerance = tie_tolerance(ordered) if tolerance is None else tolerance
    values = ordered.astype(np.float64)
    if len(values) > 1 and values[0] > values[-1]:
        values = -values
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    distinct = values[starts]
    size = np.abs(distinct)
    within = tolerance * np.maximum(size, size.max() / 2)  # 1 − p carries the rounding of p, however small it is
    near = np.diff(distinct) <= np.maximum(within[1:], within[:-1])
    if not near.any():
        return starts
    kept = np.ones(len(distinct), dtype=bool)
    first = 0
    for i in np.flatnonzero(near) + 1:
        if i < 2 or not near[i - 2]:  # a new run of neighbours begins
            first = i - 1
        if distinct[i] - distinct[first] <= max(within[i], within[first]):
            kept[i] = False
        else:
            first = i
    return starts[kept]


def equal_count_gaps(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike, count: int = 15) -> Array:
    """Weighted sum of (correct − confidence) in each of `count` bins of equal weight by ascending confidence, `(..., bin)`.

    Every bin holds exactly 1/`count` of the weight: the cases among which an edge falls (all of one confidence, where confidences
    are tied) are shared between the two bins in proportion. So the order of tied cases does not matter, and a case of weight 3 is
    three cases (our choice: the sources cut the sorted list where it happens to be cut).
    """
    stated = np.asarray(confidence)
    order = np.argsort(stated, kind="stable")
    gap = np.asarray(correct, dtype=np.float64) - stated.astype(np.float64)
    w = np.asarray(weights, dtype=np.float64)
    rows = w.reshape(-1, w.shape[-1])[:, order]
    starts = tie_starts(stated[order])
    reached = np.cumsum(np.add.reduceat(rows, starts, axis=-1), axis=-1)
    summed = np.cumsum(np.add.reduceat(rows * gap[order], starts, axis=-1), axis=-1)
    share = np.arange(count + 1) / count
    sums = [np.diff(np.interp(share * r[-1], np.r_[0.0, r], np.r_[0.0, s])) for r, s in zip(reached, summed, strict=True)]
    return np.reshape(sums, (*w.shape[:-1], count))


def consistency_band(
    confidence: ArrayLike, correct: ArrayLike, *, replicates: int = 500, level: float = 0.95, seed: int = 0
) -> Reliability:
    """CORP reliability of confidence against correctness, with the band in which the curve lies were the confidence calibrated.

    `confidence` in [0, 1] and `correct` `(case,)`. The curve is the isotonic regression of `correct` on the confidence, at each
    distinct confidence. The band is pointwise at `level`: outcomes are drawn anew as Bernoulli(confidence), keyed by `seed`, and
    regressed in the same way. The diagonal lies in it by construction; a curve outside is miscalibration that chance does not
    explain.

    Source: Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118, consistency bands by resampling.
    """
    tolerance, stated = tie_tolerance(confidence), np.asarray(confidence, dtype=np.float64)
    order = np.argsort(stated, kind="stable")
    stated, outcome = stated[order], np.asarray(correct, dtype=np.float64)[order]
    starts = tie_starts(stated, tolerance)
    weight = np.diff(np.r_[starts, len(stated)]).astype(np.float64)
    generator = np.random.default_rng([seed, 0xC0B9])
    drawn = np.empty((replicates, len(starts)))
    for i in range(replicates):
        drawn[i] = _isotonic((generator.random(len(stated)) < stated).astype(np.float64), starts, weight)
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return Reliability(stated[starts], _isotonic(outcome, starts, weight), low, high)


def _isotonic(outcome: Array, starts: NDArray[np.intp], weight: Array) -> Array:
    """As `engine.kernels.corp.recalibrate`, for one curve of thousands of knots, where a loop over knots would not pay."""
    from scipy.optimize import isotonic_regression

    return np.clip(isotonic_regression(np.add.reduceat(outcome, starts) / weight, weights=weight).x, 0.0, 1.0)
