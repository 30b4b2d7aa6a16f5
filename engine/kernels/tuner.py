"""Bayesian optimisation under uncertainty: the ν at which the perturbation's scale matches the residual's.

Each pass at a ν gives a noisy scale. A log-linear surrogate is fitted to all passes, its posterior is drawn, each draw has
its optimum in closed form, and new passes are made at some of those, until the draws agree about the loss.

Source: arXiv 2510.06439, for ν in arXiv 2604.19530: the surrogate, 10 log-spaced ν to start with, 100 draws, the score (98th
percentile over draws of f(ν_j)/f(ν_OLS), f with the parameters of the least-squares fit), three scores below 1.03, 10 passes a
round, 50 rounds. This project's choices, which the sources leave open:

- the three scores must come in a row, and between them the passes of a round are made: a score that is met by luck is undone;
- optima are held inside 1 … nu_max, in the score too (continuous there, rounded only to be evaluated): draws that all lie
  beyond an edge agree on that edge;
- starting ν that round to the same number stay, as further passes at it: the start always has `initial` passes;
- the round's passes are the first draws' optima, in the order drawn. A draw with a slope of 0 or more has no optimum: it
  counts as an infinite loss in the score, and its place is taken by a log-uniform ν, which tells most about the slope;
- of the two draws beside the 98th percentile, the higher is taken;
- where 98 % of the draws rise in as many rounds in a row as the patience, the search ends: no further pass would help;
- a loss below 10⁻¹⁸ s₀² is rounding: passes without noise end the search instead of prolonging it.

The loop asks for passes in an order that depends only on `seed` and on the scales it got: one that is repeated with stored
scales gives the same answer.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from engine.errors import CalibrationError
from engine.kernels.bootstrap import block_length, resample
from engine.kernels.surrogate import Draws, LogLinear, fit, log_optimum
from engine.types import Array

Edge = Literal["", "low", "high"]
Reading = Literal["scale", "per_example"]
_PERCENTILE = 98
_ROUNDING = np.log(1e-18)


class Evaluation(NamedTuple):
    """One pass: its ν, its number k among the passes at that ν, the round that asked for it (0 is the start), its scales."""

    nu: int
    k: int
    round: int
    scale: Array


@dataclass(frozen=True)
class Tuned:
    """The answer and how it came about."""

    nu: int
    """Best ν, within 1 … nu_max."""
    edge: Edge
    """The edge that the optimum was held at ("low": below 1, "high": above nu_max), or "" where it lies inside."""
    rising: bool
    """The fitted scale does not fall with ν: the answer is the evaluated ν whose mean scale is nearest the target, no optimum."""
    dropped: int
    """Scales of exactly 0, left out of the fit (their logarithm does not exist). More than 0 deserves a warning: some
    passes moved nothing, which the line cannot show."""
    rounds: int
    """Rounds of passes after the start."""
    stop: str
    """Why the search ended, in words."""
    score: float
    """Last score; 1 where all draws agree, infinite where the line rises or 2 % of the draws have no optimum."""
    fit: LogLinear
    evaluations: tuple[Evaluation, ...]
    """Every pass, in the order asked for."""


def tune(
    evaluate: Callable[[int, int], ArrayLike],
    target: float,
    *,
    nu_max: int,
    seed: int,
    initial: int = 10,
    draws: int = 100,
    per_round: int = 10,
    tolerance: float = 1.03,
    patience: int = 3,
    rounds: int = 50,
    on_round: Callable[[int, float, int], None] | None = None,
) -> Tuned:
    """The ν in 1 … `nu_max` whose scale meets `target` (s₀ = mean Z, more than 0, in the unit of the scales).

    `evaluate(nu, k)` makes the k-th pass (from 0) at `nu` and gives its scales, 0 or more, as an array `(point,)`: one number
    (mean R over the examples) for the reading "scale", every R_i for "per_example"; each is a point of the regression.
    `on_round(round, score, nu)` is told of each score with the answer as it then stands.
    Raises CalibrationError for a target that is not above zero, for scales that are negative or not finite (with their ν), and
    where too few different ν or scales above zero remain for a line, as with `nu_max` = 1.
    """
    if nu_max < 1 or min(initial, draws, per_round, patience) < 1 or rounds < 0:
        raise ValueError(f"nu_max {nu_max}, initial {initial}, draws {draws}, per_round {per_round}, patience {patience}, rounds {rounds}")
    if not (np.isfinite(target) and target > 0):
        raise CalibrationError(
            "target scale",
            found=f"{target:g}",
            expected="a finite mean residual above zero",
            remedy="Check the observations: a forecast without error has nothing to calibrate.",
        )
    rng = np.random.default_rng([seed, 0x70E])
    passes: list[Evaluation] = []
    asked: Counter[int] = Counter()

    def add(nus: Array, number: int) -> None:
        for nu in np.clip(np.rint(nus), 1, nu_max).astype(int).tolist():
            passes.append(Evaluation(nu, asked[nu], number, _scales(evaluate(nu, asked[nu]), nu, asked[nu])))
            asked[nu] += 1

    add(np.geomspace(1, nu_max, initial), 0)
    agreed = risen = number = 0
    while True:
        line = fit(*_points(passes))
        posterior = line.draw(draws, rng)
        score = _score(line, posterior, target, nu_max)
        agreed = agreed + 1 if score < tolerance else 0
        risen = risen + 1 if (posterior.slope >= 0).mean() >= _PERCENTILE / 100 else 0
        nu, edge = _answer(line, passes, target, nu_max)
        if on_round is not None:
            on_round(number, score, nu)
        if agreed >= patience or risen >= patience or number >= rounds:
            break
        number += 1
        filler = rng.uniform(0, np.log(nu_max), per_round)  # drawn in every round: what follows does not depend on its use
        optima = np.clip(log_optimum(*posterior, target), 0, np.log(nu_max))[:per_round]
        add(np.exp(np.where(np.isnan(optima), filler[: len(optima)], optima)), number)
    if agreed >= patience:
        stop = f"the score was below {tolerance:g} in {patience} rounds in a row"
    elif risen >= patience:
        stop = f"the scale did not fall with ν in {patience} rounds in a row"
    else:
        stop = f"the limit of {rounds} rounds was reached"
    dropped = sum(int((one.scale == 0).sum()) for one in passes)
    return Tuned(nu, edge, not line.slope < 0, dropped, number, stop, score, line, tuple(passes))


class Interval(NamedTuple):
    """Whole ν from `low` to `high`, and the ν of each replicate `(replicate,)`, not held in any range, NaN where the line rises."""

    low: int
    high: int
    replicates: Array


def interval(
    nu: ArrayLike,
    scales: ArrayLike,
    residual: ArrayLike,
    *,
    blocks: int | None = None,
    replicates: int = 1000,
    seed: int,
    nu_max: int,
    reading: Reading = "scale",
) -> Interval:
    """95 % interval of the best ν: how far another sample of cases and passes would have moved it.

    `nu` `(evaluation,)`; `scales` `(evaluation, case)`, R_i of each pass; `residual` `(case,)`, Z_i, in case order; `blocks`, cases in
    a block, from the data where None; `reading` as in `tune`. In each replicate, cases are drawn in blocks (R and Z of a
    case together), the line is fitted again, and its parameters are drawn once from the posterior. The draw adds what
    resampling of cases cannot see, how far the points lie off a straight line; noise of the passes is then in both, which
    errs to the wide side.

    The interval is Student's, in ln ν: the estimate ± t(0.975) times the replicates' standard deviation, with as many degrees of
    freedom as effective blocks (cases / block length) less one, and the deviation scaled by √(B/(B − 1)), since a
    bootstrap has the variance of a sum of squares over B. That is this project's choice: percentiles of replicates of few
    cases are too narrow. It is rounded outward and held inside 1 … `nu_max`; where the line, or more than 2.5 % of the
    replicates, rise with ν, the data do not bound ν and the interval is all of that range.
    Raises CalibrationError for fewer than two blocks, for values that are not finite or negative, for residuals that are all
    zero, and as `fit`; ValueError for shapes that do not fit.
    """
    v, r, z = (np.asarray(values, dtype=np.float64) for values in (nu, scales, residual))
    if r.ndim != 2 or v.shape != r.shape[:1] or z.shape != r.shape[1:]:
        raise ValueError(f"nu {v.shape}, scales {r.shape}, residual {z.shape}; expected (evaluation,), (evaluation, case), (case,)")
    for one, values in zip(v, r, strict=True):
        _scales(values, int(one))
    if not (np.isfinite(z).all() and (z >= 0).all() and z.any()):
        raise CalibrationError(
            "residuals", found="negative, infinite or only zero values", expected="norms", remedy="Check the observations."
        )
    points = (v, r.mean(1)) if reading == "scale" else (np.repeat(v, r.shape[1]), r.ravel())
    line = fit(*(values[points[1] > 0] for values in points))
    influence = z / z.mean() - (r.mean(0) / r.mean() if reading == "scale" else np.log(np.where(r > 0, r, r.mean())).mean(0))
    blocks = block_length(influence) if blocks is None else blocks
    effective = len(z) / blocks
    if effective < 2:
        raise CalibrationError(
            "interval of ν",
            found=f"{len(z)} cases in blocks of {blocks}",
            expected="at least two blocks",
            remedy="Give more calibration cases; until then no interval is known.",
        )
    weights = resample(len(z), blocks, replicates, seed)
    drawn = _refit(np.log(v), r, weights, reading, np.random.default_rng([seed, 0x717]))
    with np.errstate(divide="ignore", invalid="ignore"):
        log_nu = log_optimum(*drawn, weights @ z / len(z))
    ends = np.array([0.0, np.inf])
    known = log_nu[np.isfinite(log_nu)]
    middle = line.log_optimum(float(z.mean()))
    if len(known) >= 0.975 * replicates and not np.isnan(middle):
        half = special.stdtrit(effective - 1, 0.975) * known.std() * np.sqrt(effective / (effective - 1))
        ends = np.array([middle - half, middle + half])
    with np.errstate(over="ignore"):
        low, high = np.clip(np.exp(ends), 1, nu_max)
        return Interval(int(np.floor(low)), int(np.ceil(high)), np.exp(log_nu))


def _scales(values: ArrayLike, nu: int, k: int | None = None) -> Array:
    """The scales of a pass as an array `(point,)`; CalibrationError where one is no norm."""
    scale = np.atleast_1d(np.asarray(values, dtype=np.float64))
    wrong = ~(np.isfinite(scale) & (scale >= 0))
    if wrong.any():
        raise CalibrationError(
            f"scale at ν = {nu}" + ("" if k is None else f", pass {k}"),
            found=f"{scale[wrong][0]:g}",
            expected="finite numbers, 0 or more",
            remedy="Check that the model's forecasts of these cases are finite.",
        )
    return scale


def _points(passes: list[Evaluation]) -> tuple[Array, Array]:
    """ν and scale of every point above zero, `(point,)` each."""
    nu = np.concatenate([np.full(one.scale.shape, one.nu, dtype=np.float64) for one in passes])
    scale = np.concatenate([one.scale for one in passes])
    return nu[scale > 0], scale[scale > 0]


def _score(line: LogLinear, posterior: Draws, target: float, nu_max: int) -> float:
    """98th percentile over the draws of f(ν_j)/f(ν_OLS); infinite where the line rises."""
    floor = 2 * np.log(target) + _ROUNDING
    best = line.log_optimum(target)
    if np.isnan(best):
        return float("inf")
    optima, edges = log_optimum(*posterior, target), (0.0, np.log(nu_max))
    here = max(float(line.log_loss(np.clip(best, *edges), target)), floor)
    none = np.isnan(optima)
    ratios = np.maximum(line.log_loss(np.clip(np.where(none, best, optima), *edges), target), floor) - here
    worst = np.quantile(np.where(none, np.inf, ratios), _PERCENTILE / 100, method="higher")
    with np.errstate(over="ignore"):
        return float(np.exp(worst))


def _answer(line: LogLinear, passes: list[Evaluation], target: float, nu_max: int) -> tuple[int, Edge]:
    """The rounded optimum held inside the range, and the edge it was held at."""
    best = line.log_optimum(target)
    if np.isnan(best):
        nu, scale = _points(passes)
        distinct, which = np.unique(nu, return_inverse=True)
        means = np.bincount(which, weights=scale) / np.bincount(which)
        return int(distinct[np.argmin(np.abs(np.log(means) - np.log(target)))]), ""
    edge: Edge = "low" if best < 0 else "high" if best > np.log(nu_max) else ""
    return int(np.rint(np.exp(np.clip(best, 0, np.log(nu_max))))), edge


def _refit(log_nu: Array, scales: Array, weights: Array, reading: Reading, rng: np.random.Generator) -> Draws:
    """The line fitted to each replicate `(replicate,)` and drawn once from its posterior; NaN where there is no line.

    `weights` `(replicate, case)`. Sums over points are products with the weights, so that no replicate is looped over; ln ν
    and ln s are centred beforehand, so that the differences of sums keep their digits.
    """
    if reading == "scale":
        means = weights @ scales.T / weights.sum(1, keepdims=True)
        count = (means > 0).astype(np.float64)
        logs = np.log(np.where(means > 0, means, 1.0))
        zero = logs.sum() / count.sum()
        logs = (logs - zero) * count
        total, squares = logs, (logs**2).sum(1)
    else:
        kept = scales > 0
        logs = np.log(np.where(kept, scales, 1.0))
        zero = logs.sum() / kept.sum()
        logs = (logs - zero) * kept
        count, total, squares = weights @ kept.T.astype(np.float64), weights @ logs.T, (weights @ (logs**2).T).sum(1)
    x = log_nu - log_nu.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        points = count.sum(1)
        centre, middle = count @ x / points, total.sum(1) / points
        spread = count @ x**2 - points * centre**2
        spread = np.where((spread > 1e-9) & (points >= 3), spread, np.nan)
        slope = (total @ x - points * centre * middle) / spread
        rest = squares - points * middle**2 - slope**2 * spread
        freedom = np.maximum(points - 2, 1)
        sigma = np.sqrt(np.maximum(rest, 0.0) / rng.chisquare(freedom))
        slope = slope + sigma * rng.standard_normal(len(sigma)) / np.sqrt(spread)
        middle = middle + sigma * rng.standard_normal(len(sigma)) / np.sqrt(points)
    return Draws(slope, middle + zero - slope * (centre + log_nu.mean()), sigma)
