"""Block bootstrap over cases, on stored statistics: replicates are weights of cases, never copies of fields.

Weather of neighbouring start times is not independent, so cases are resampled in blocks; blocks wrap around the end
(circular), which gives every case the same chance. A score's replicates are one matrix product with its statistics.
"""

import numpy as np
from numpy.typing import ArrayLike

from engine.types import Array


def block_length(series: ArrayLike) -> int:
    """Block length in cases, from the data: `(case,)` or `(case, series)` in case order; at least 1, at most a quarter of the cases.

    The automatic rule for the circular bootstrap of Politis and White (2004, corrected by Patton et al. 2009) through
    `arch.bootstrap.optimal_block_length`, rounded up; the largest over the series. Series that are constant or hold
    non-finite values, and records of fewer than 12 cases (too short to estimate a correlation time), count as 1.
    """
    values = np.asarray(series, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    cases = len(values)
    if cases < 12:
        return 1
    varies = np.isfinite(values).all(0) & (np.ptp(np.nan_to_num(values), axis=0) > 1e-12 * (1 + np.abs(np.nan_to_num(values)).max(0)))
    if not varies.any():
        return 1
    from arch.bootstrap import optimal_block_length

    lengths = optimal_block_length(values[:, varies])["circular"].to_numpy()
    longest = np.nanmax(np.where(np.isfinite(lengths), lengths, 1.0))
    return int(np.clip(np.ceil(longest), 1, max(1, cases // 4)))


def resample(cases: int, block: int, replicates: int, seed: int) -> Array:
    """How often each case occurs in each replicate, `(replicates, cases)`; each row sums to the number of cases.

    Circular blocks of `block` cases from uniformly drawn starts, the last one cut. Keyed by `seed` only.
    """
    generator = np.random.default_rng([seed, 0xB007])
    blocks = -(-cases // block)
    starts = generator.integers(0, cases, size=(replicates, blocks))
    counts = np.empty((replicates, cases))
    offset = np.arange(block)
    for i, row in enumerate(starts):
        picked = ((row[:, None] + offset) % cases).ravel()[:cases]
        counts[i] = np.bincount(picked, minlength=cases)
    return counts


def weighted_means(resampled: Array, statistic: Array, weight: Array) -> Array:
    """Replicates of a weighted mean over cases, `(replicates, region, *k)`.

    `resampled` `(replicates, case)`, `statistic` `(case, region, *k)`, `weight` `(case, region)`: a case without weight
    (or with a NaN statistic) is left out, and a replicate that holds no other is NaN.
    """
    cases, regions = weight.shape
    values = np.reshape(statistic, (cases, regions, -1))
    used = np.where(np.isnan(values), 0.0, weight[..., None])
    products = (np.nan_to_num(values) * used).reshape(cases, -1)
    sums = resampled @ products
    if (used == used[..., :1]).all():
        totals = np.repeat(resampled @ used[..., 0], values.shape[-1], axis=-1)
    else:
        totals = resampled @ used.reshape(cases, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(totals > 0, sums / totals, np.nan)
    return means.reshape(len(resampled), regions, *np.shape(statistic)[2:])


def interval(value: Array, replicates: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Percentile interval over the first axis of `replicates`, moved so that the replicates' median falls on `value`.

    The move takes out the bootstrap's median bias, which is large for distances that cannot go below zero (w1 of a
    calibrated ensemble: replicates add their noise to the record's); for means it is nearly nothing. The value is inside.
    """
    tail = (1 - level) / 2
    if len(replicates) == 0:
        return np.full(np.shape(value), np.nan), np.full(np.shape(value), np.nan)
    with np.errstate(invalid="ignore"):
        low, middle, high = np.quantile(replicates, [tail, 0.5, 1 - tail], axis=0)
    return value - (middle - low), value + (high - middle)
