"""Spread scaling: the deviations from the ensemble mean times one number T, learned on the calibration split.

    x' = x̄ + T (x − x̄)

Three rules for T, one of which is named in the parameters and in every report:

    coverage   coverage_95 reaches what a perfect ensemble of this size covers (engine.kernels.quantiles.perfect_coverage)
    w1_pit     the smallest Wasserstein-1 distance of the PIT from uniform
    nll        closed form T² = mean((y − x̄)²/s²) / c, c = (M + 1)(M − 1) / (M (M − 3))

c is our choice. The minimum of the Gaussian likelihood of N(x̄, T²s²) itself has c = 1, and then widens a perfect ensemble:
x̄ carries a variance of σ²/M, which gives (M + 1)/M, and 1/s² is above 1/σ² on average by (M − 1)/(M − 3). With c a perfect
Gaussian ensemble keeps T = 1 at any M ≥ 4; with (M + 1)/M alone it would not. The state holds the plain T beside it.

The M members are calibrated as they are: T takes up the sampling error of x̄, so that it tends to the law's own factor only as M grows
(for one of 0.5 at M = 20, to 0.53). But scaled members all carry the same error of x̄ and are no independent draws, which the fair CRPS
supposes; it allows for that (`engine.kernels.crps.decoupling`), and so is the CRPS of the law that T makes of theirs.

One T moves the spread everywhere alike: it mends neither a bias, nor a shape, nor a spread that is too small here and too
large there. Means run over the first region; cases weigh by their share of valid area.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from engine.errors import CalibrationError
from engine.kernels.area import valid_share
from engine.kernels.pit import rank_share
from engine.kernels.quantiles import central, linear_quantiles, perfect_coverage
from engine.kernels.wasserstein import w1_uniform
from engine.methods._pool import agree, nothing_valid, point_mass, pooled, refuse_few_members
from engine.types import Array, EnsembleView, PostHoc

BOUNDS = (0.01, 100.0)
"""T stays between these (our choice): beyond, the ensemble's spread says nothing that is worth scaling."""
LEVEL = 95


class TemperatureVariance(PostHoc):
    """One factor on the spread."""

    key = "temperature_variance"
    title = "Spread scaling"
    reference = "Gneiting and Raftery (2007), doi:10.1198/016214506000001437, for the likelihood; the other rules are matches of our own"
    guarantee = (
        "On the calibration split the rule's own measure is met as closely as one factor can; there is no finite-sample guarantee, and "
        "errors whose size, bias or shape changes from the calibration to the verification period break what was matched."
    )

    class Params(BaseModel):
        """By which rule T is found."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        rule: Literal["coverage", "w1_pit", "nll"] = Field(
            default="coverage", description="match coverage_95 (coverage), least w1_pit (w1_pit), or Gaussian likelihood (nll)"
        )

    def fit(self, ensemble: EnsembleView, weights: Array, params: Params) -> dict[str, NDArray[Any]]:
        """T and what it reached; bounded by `BOUNDS`, and `at_bound` says whether it stopped there.

        Raises `CalibrationError` without valid points, without spread, or with fewer than 2 members (nll: 4).
        """
        refuse_few_members(ensemble, 2, "Make ensembles on the calibration split: one member has no spread.")
        found = {"coverage": _by_coverage, "w1_pit": _by_w1, "nll": _by_likelihood}[params.rule](ensemble, weights)
        free = found["temperature_variance"]
        kept = float(np.clip(free, *BOUNDS))
        edge = not BOUNDS[0] * 1.001 < free < BOUNDS[1] / 1.001
        found |= {"temperature_variance": kept, "at_bound": edge, "members": len(ensemble.members)}
        return {name: np.asarray(value) for name, value in found.items()}

    def apply(self, members: Array, state: Mapping[str, NDArray[Any]], params: Params, weights: Array) -> Array:
        """Members about their own mean, spread by T; any number of members."""
        del params, weights
        factor = float(state["temperature_variance"])
        if factor == 1:  # the very members, not their mean plus what rounding leaves of their deviations
            return members.copy()
        mean = EnsembleView(members, np.zeros(members.shape[1:])).mean
        out = np.empty_like(members)
        for new, old in zip(out, members, strict=True):  # member by member: no float64 copy of the whole ensemble
            new[...] = mean + factor * (old - mean)
        return out

    def spread_factor(self, state: Mapping[str, NDArray[Any]], params: Params) -> float:
        """T."""
        del params
        return float(state["temperature_variance"])

    def report(self, state: Mapping[str, NDArray[Any]], params: Params) -> str:
        """T, its rule, and what was reached."""
        number = {name: float(value) for name, value in state.items()}
        said = {
            "coverage": "coverage_95 is {reached:.3f} on the calibration split, a perfect ensemble's {aim:.3f}",
            "w1_pit": "w1_pit is {reached:.4f} on the calibration split, {before:.4f} before",
            "nll": "the plain likelihood's T is {plain:.3g}",
        }[params.rule].format(**number)
        edge = f" T stopped at a bound of {BOUNDS[0]:g} … {BOUNDS[1]:g}." if state["at_bound"] else ""
        factor, cases = number["temperature_variance"], int(state["cases"])
        return f"T = {factor:.3g} by rule {params.rule} from {cases} cases of {int(state['members'])} members: {said}.{edge}"


def _refuse_no_spread(share: float, least: float, remedy: str) -> None:
    """`share` of the valid area where all members agree; refused from `least` on."""
    if share >= least:
        raise CalibrationError(
            "calibration split",
            found="members that agree everywhere" if share >= 1 else f"members that agree on {share:.2%} of the valid area",
            expected="an ensemble with spread",
            remedy=remedy,
        )


def _gathered(
    ensemble: EnsembleView, weights: Array, what: Callable[[EnsembleView], tuple[NDArray[Any], ...]], held: int
) -> tuple[list[NDArray[Any]], int]:
    """Values, each `(value,)`, and last the mass (sum 1) of every valid point; and the number of cases that have one."""
    parts, cases = [], set()
    for block, (view, area) in enumerate(pooled(ensemble, weights, held)):
        mass = point_mass(view, area)
        keep = mass > 0
        parts.append([values[keep] for values in (*what(view), agree(view), mass)])
        cases |= {(block, int(k)) for k in np.flatnonzero(keep.any(-1))}
    *values, same, mass = (np.concatenate(p) for p in zip(*parts, strict=True))
    if not len(mass):
        raise nothing_valid()
    mass /= mass.sum()
    _refuse_no_spread(
        1.0 if same.all() else float(mass[same].sum()),
        1.0,
        "Check the method that makes the ensemble: a factor cannot widen members that are all the same.",
    )
    return [*values, same, mass], len(cases)


def _by_coverage(ensemble: EnsembleView, weights: Array) -> dict[str, float]:
    """Bisection of log T: linear quantiles move with the members, so their deviations are computed once."""

    def deviations(view: EnsembleView) -> tuple[Array, ...]:
        count = None if view.complete else view.count
        low, high = (linear_quantiles(view.ordered, p, count) - view.mean for p in central(LEVEL))
        perfect = np.empty(view.observed.shape)
        for present in np.unique(view.count):
            perfect[view.count == present] = perfect_coverage(int(present), LEVEL)
        return view.observed - view.mean, low, high, perfect

    (error, low, high, perfect, _, mass), cases = _gathered(ensemble, weights, deviations, held=6)
    aim = float((perfect * mass).sum())

    def reached(log_t: float) -> float:
        factor = np.exp(log_t)
        return float(mass[(factor * low <= error) & (error <= factor * high)].sum())

    left, right = np.log(BOUNDS)
    if reached(left) >= aim:
        right = left
    elif reached(right) < aim:
        left = right
    while right - left > 1e-6:  # T to one in a million: finer than any split determines it
        middle = (left + right) / 2
        left, right = (left, middle) if reached(middle) >= aim else (middle, right)
    return {"temperature_variance": float(np.exp(right)), "reached": reached(right), "aim": aim, "cases": cases}


def _by_w1(ensemble: EnsembleView, weights: Array) -> dict[str, float]:
    """Least w1_pit over a grid of log T, then between the neighbours of the best: some 30 looks at a quarter of the memory's limit."""
    from scipy.optimize import minimize_scalar

    _, cases = _gathered(ensemble, weights, lambda _: (), held=2)
    views = [(view, area) for view, area in pooled(ensemble, weights, held=4 * len(ensemble.members)) if area[0].any()]

    def distance(log_t: float) -> float:
        counts = np.zeros(len(ensemble.members) + 1)
        for view, area in views:
            scaled = EnsembleView(view.mean + np.exp(log_t) * (view.members - view.mean), view.observed)
            valid = valid_share(scaled, area[:1])
            counts += (np.where(valid > 0, rank_share(scaled, area[:1])[:, 0], 0.0) * valid).sum(0)
        return float(w1_uniform(counts))

    grid = np.linspace(np.log(BOUNDS[0]), np.log(BOUNDS[1]), 17)
    looked = [distance(point) for point in grid]
    best = int(np.argmin(looked))
    between = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    finer = minimize_scalar(distance, bounds=between, method="bounded", options={"xatol": 1e-3})  # T to a thousandth
    at, value = (float(finer.x), float(finer.fun)) if finer.fun < looked[best] else (float(grid[best]), looked[best])
    return {"temperature_variance": float(np.exp(at)), "reached": value, "before": distance(0.0), "cases": cases}


def _by_likelihood(ensemble: EnsembleView, weights: Array) -> dict[str, float]:
    refuse_few_members(ensemble, 4, "Use more members, or the rule coverage or w1_pit: 1/s² has no mean below four members.")
    (error2, count, variance, same, mass), cases = _gathered(
        ensemble, weights, lambda view: (view.error2, view.count.astype(np.float64), view.variance), held=5
    )
    remedy = "Use the rule coverage or w1_pit: one point without spread makes the likelihood's T infinite."
    _refuse_no_spread(float(mass[same].sum()), 1e-300, remedy)
    keep = count >= 4  # as above, where members are missing
    if not keep.any():
        raise nothing_valid()
    ratio, m, share = error2[keep] / variance[keep], count[keep], mass[keep] / mass[keep].sum()
    expected = (m + 1) * (m - 1) / (m * (m - 3))
    plain, square = float((ratio * share).sum()), float((ratio / expected * share).sum())
    return {"temperature_variance": square**0.5, "plain": plain**0.5, "cases": cases}


ENTRIES = (TemperatureVariance(),)
