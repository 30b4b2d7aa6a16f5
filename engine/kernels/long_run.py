"""95 % intervals of scores over dependent cases, from the influence of each case: no resampling, no random numbers.

A score is a smooth function of means over cases. The jackknife gives what each case moves it by,
ψ_i = (n − 1)(mean θ₍₋·₎ − θ₍₋ᵢ₎), and the score errs as the mean of that series does.
Two estimates of that error are made, and the wider one counts (our choice):

    EWC      the mean square of the series' B lowest cosine waves, with Student's t of B degrees; B = 0.2 n^⅔, at least 5
             (Lazarus, Lewis, Stock and Watson 2018, doi:10.1080/07350015.2018.1506926). It sees any slow dependence and supposes no
             model, but at strong dependence in a short record its B waves reach beyond what is slow.
    AR(1)    the posterior of the mean's error when the series is a first-order autoregression, over its correlation ρ with a flat prior on
             −0.6 … 0.98, given which the error is Student's t (Zellner 1971, chapter 7). A ρ that is not known widens the interval.

Percentiles of a block bootstrap are too narrow for few blocks; docs/intervals.md has what each covers in simulation. What has a bounded
range is laid out on the scale on which it has none: logarithm for [0, ∞), logit for [0, 1] and other bounded ranges.

Cases are taken as evenly spaced in the order given. What none of this can see is a swing slower than the record.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.judging import FEW
from engine.types import Array

CORRELATIONS = np.r_[np.linspace(-0.6, 0.6, 25), np.linspace(0.64, 0.98, 18)]
LEVEL = 0.95


class Error(NamedTuple):
    """`(*k)` each: half the width of the 95 % interval, the standard error, and how many independent cases the series is worth."""

    half: Array
    standard: Array
    independent: Array


def leave_one_out(statistic: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted mean over cases `(region, *k)`, and the same without each case `(case, region, *k)`.

    `statistic` `(case, region, *k)`, `weight` `(case, region)`; a NaN statistic does not count; NaN where nothing else has weight.
    """
    values = np.asarray(statistic, dtype=np.float64)
    wide = np.reshape(weight, (*np.shape(weight), *(1,) * (values.ndim - 2)))
    used = np.where(np.isnan(values), 0.0, wide)
    own = np.nan_to_num(values) * used
    sums, total = own.sum(0), used.sum(0)
    least = 1e-12 * total  # what is left of a total after subtraction may be rounding
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = np.where(total > 0, sums / total, np.nan)
        rest = np.where(total - used > least, (sums - own) / (total - used), np.nan)
    return whole, rest


def influence(without: Array, counts: NDArray[np.bool_]) -> Array:
    """ψ `(case, …)` from a score without each case `(case, …)`; NaN for cases that do not count (`counts` `(case, …)` false)."""
    counts = np.broadcast_to(np.reshape(counts, (*np.shape(counts), *(1,) * (np.ndim(without) - np.ndim(counts)))), np.shape(without))
    n = counts.sum(0)
    held = np.where(counts, without, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(counts, (n - 1) * (held.sum(0) / n - without), np.nan)


def error_of_mean(series: ArrayLike) -> Error:
    """How far the mean of each series `(case, *k)` errs, in case order; cases that are NaN are left out, fewer than two give NaN."""
    values = np.asarray(series, dtype=np.float64)
    flat = values.reshape(len(values), -1)
    out = np.full((3, flat.shape[1]), np.nan)
    known = ~np.isnan(flat)
    patterns, which = np.unique(known, axis=1, return_inverse=True)
    for p, pattern in enumerate(patterns.T):
        columns = np.flatnonzero(np.ravel(which) == p)
        if pattern.sum() >= 2:
            out[:, columns] = _errors(flat[pattern][:, columns])
    return Error(*out.reshape(3, *values.shape[1:]))


def interval(value: ArrayLike, half: ArrayLike, bounds: tuple[float, float] = (-np.inf, np.inf)) -> tuple[Array, Array]:
    """Ends of the interval about `value`, on the scale on which `bounds` are out of reach; the value itself is inside.

    A value at or beyond a bound keeps the plain ± half, held within the bounds.
    """
    value, half = np.asarray(value, dtype=np.float64), np.asarray(half, dtype=np.float64)
    least, most = bounds
    low, high = value - half, value + half
    with np.errstate(all="ignore"):
        if np.isfinite(least) and np.isfinite(most):
            share = (value - least) / (most - least)
            odds, moved = np.log(share / (1 - share)), half / ((most - least) * share * (1 - share))
            ends = [least + (most - least) / (1 + np.exp(-(odds + sign * moved))) for sign in (-1, 1)]
            inside = (value > least) & (value < most)
        elif np.isfinite(least) and least == 0:
            ends = [value * np.exp(sign * half / value) for sign in (-1, 1)]
            inside = (value > 0) & (half < value)  # noise as large as the value: no scale can be judged by it
        else:
            return low, high
        inside &= np.isfinite(ends[0]) & np.isfinite(ends[1])
        low, high = np.where(inside, ends[0], low), np.where(inside, ends[1], high)
    return np.clip(low, least, most), np.clip(high, least, most)


def _errors(series: Array) -> Array:
    """`(3, k)` as in `Error`, of complete series `(case, k)`."""
    from scipy.special import stdtrit

    n = len(series)
    d = series - series.mean(0)
    size = np.abs(series).max(0)
    variance = (d**2).sum(0) / n
    moves = variance > (1e-12 * size) ** 2  # a series that only rounds has no error
    unit = np.where(moves, np.sqrt(np.where(moves, variance, 1.0)), 1.0)
    d = d / unit
    waves = int(np.clip(np.rint(0.2 * n ** (2 / 3)), min(5, n - 1), n - 1))
    phase = np.pi * np.outer(np.arange(1, waves + 1), np.arange(n) + 0.5) / n
    slow = ((np.sqrt(2 / n) * np.cos(phase) @ d) ** 2).mean(0)
    half, long_run = stdtrit(waves, (1 + LEVEL) / 2) * np.sqrt(slow / n), slow
    if n >= 4:
        of_ar, ar_run = _autoregression(d)
        half, long_run = np.maximum(half, of_ar), np.maximum(long_run, ar_run)
    independent = np.clip(n / np.maximum(long_run, 1e-300), 1.0, n)
    spread = np.where(moves, unit, 0.0)
    return np.stack([half * spread, np.sqrt(long_run / n) * spread, np.where(moves, independent, n)])


def _autoregression(d: Array) -> tuple[Array, Array]:
    """Half width of the posterior of the mean's error, `(k,)`, and the long-run variance at the posterior mean of ρ; d of variance 1."""
    from scipy.special import stdtr

    n = len(d)
    rho = CORRELATIONS[:, None]
    square, inner, product = (d**2).sum(0), (d[1:-1] ** 2).sum(0), (d[1:] * d[:-1]).sum(0)
    ends = d[0] + d[-1]
    scale = 1 - rho**2
    whole = (2 * (1 - rho) + (n - 2) * (1 - rho) ** 2) / scale  # 1′R⁻¹1
    first = (ends * (1 - rho) - ends * (1 - rho) ** 2) / scale  # 1′R⁻¹d, since Σd = 0
    rest = np.maximum((square + rho**2 * inner - 2 * rho * product) / scale - first**2 / whole, 1e-300)
    log_posterior = -0.5 * (n - 1) * np.log(scale) - 0.5 * np.log(whole) - 0.5 * (n - 1) * np.log(rest)
    width = np.gradient(CORRELATIONS)[:, None]
    posterior = np.exp(log_posterior - log_posterior.max(0)) * width
    posterior /= posterior.sum(0)
    lag = np.arange(1, n)
    of_mean = (n + 2 * ((n - lag) * rho**lag).sum(1, keepdims=True)) / n**2  # 1′R1/n²: the mean is the plain one
    sd = np.sqrt(rest / (n - 1) * of_mean)
    low, high = np.zeros(d.shape[1]), 20 * sd.max(0)
    for _ in range(30):
        middle = (low + high) / 2
        beyond = (posterior * 2 * stdtr(n - 1, -middle / sd)).sum(0)
        low, high = np.where(beyond > 1 - LEVEL, middle, low), np.where(beyond > 1 - LEVEL, high, middle)
    mean = (posterior * rho).sum(0)
    return high, (1 + mean) / (1 - mean)


def said_few(cases: int, independent: float) -> list[str]:
    """One sentence where the cases are worth fewer than `FEW` independent ones; none otherwise."""
    if not independent < FEW:
        return []
    return [
        f"Too few independent cases: {cases} cases that hang together are worth about {independent:.0f} independent ones. "
        "The 95 % intervals are uncertain and may be too narrow; verify more cases, further apart."
    ]


def w1_floor(standard: Array) -> Array:
    """Mean of ∫|F̂ − F|, to `(*k)`: what `w1_pit` of a perfect ensemble is on average. `standard` `(*k, knot)`: errors of F̂.

    √(2/π) ∫ se(u) du over equally spaced knots; 0.3133/√n for n independent values, and a bound on the upward bias for any F, since
    the distance is convex and |W(F̂) − W(F)| ≤ ∫|F̂ − F|.
    """
    return np.sqrt(2 / np.pi) * (standard[..., 1:] + standard[..., :-1]).mean(-1) / 2
