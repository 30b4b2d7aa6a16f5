"""Quantile recalibration: the level that the ensemble states becomes the frequency with which it came true.

R(u) is the frequency of PIT ≤ u on the calibration split; the recalibrated CDF is R(F(y)), so member k of M, in ascending
order, becomes the ensemble's quantile at level R⁻¹(k/(M + 1)) (Kuleshov, Fenner and Ermon 2018).

    R          isotonic (least squares, monotone) regression of the indicators PIT ≤ u on u, at the levels j/(M + 1). Its solution is
               the frequency itself, which is cumulated and thus monotone: it is written down directly, from exact rank counts
               with ties shared and missing members laid over the ranks, without drawing a randomised PIT. Linear in between.
    inside     level j/(M + 1) is the j-th order statistic, as in the PIT; linear in between.
    tails      below the least member: its share R(1/(M + 1)) is spread as the calibration split's own excess beyond the
               least member was, in units of the ensemble's sd; above the greatest member alike (our choice). A tail of the
               outer spacing or of a Gaussian would keep a narrow ensemble narrow, however often the observation lies outside.
    members    each member takes the quantile of its own rank, so that what hangs together in space and between variables still
               does (our choice, as in ensemble copula coupling: Schefzik, Thorarinsdottir and Gneiting 2013). Ties by position.

One R for all points of the first region; cases weigh by their share of valid area. It mends bias and shape on average over
places, never by place.

The moved members are no independent draws, as each depends on all: the fair CRPS, which takes them for such, is biased by +8.5 % for
Gaussian members that were twice too wide and −3 % for half as wide (M = 20; +16 and −5 % at M = 10), not at all where the map is none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from engine.errors import CalibrationError
from engine.kernels.area import valid_share
from engine.kernels.pit import rank_share
from engine.kernels.wasserstein import pit_cdf, w1_uniform
from engine.methods._pool import agree, nothing_valid, point_mass, pooled, refuse_few_members, same_members
from engine.types import Array, EnsembleView, PostHoc

KNOTS = np.linspace(0.0, 1.0, 101)
"""Levels within a tail at which its excess is kept (our choice: hundredths of the tail's own share)."""


class Isotonic(PostHoc):
    """The ensemble's quantiles, moved to the levels that came true."""

    key = "isotonic"
    title = "Isotonic recalibration"
    reference = "Kuleshov, Fenner and Ermon (2018), arXiv 1807.00263"
    guarantee = (
        "As the number of independent calibration cases grows, the PIT over the first region as a whole becomes uniform for new cases "
        "of the same climate; few or dependent cases make it overfit, drift between the two periods breaks it, and no single place is "
        "promised anything. Members are moved by quantiles of their own ensemble, which couples them: where the map is far from none, the "
        "fair CRPS after it is biased (20 Gaussian members: +8 % where they were twice too wide, −3 % where they were half as wide)."
    )

    class Params(BaseModel):
        """None."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def fit(self, ensemble: EnsembleView, weights: Array, params: Params) -> dict[str, NDArray[Any]]:
        """`frequency` (level,) at `level` (level,) = j/(M + 1), and the tails' excess in ensemble sds at `KNOTS`.

        Raises `CalibrationError` with fewer than 2 members, or fewer valid values than the M + 1 ranks that they fill.
        """
        del params
        refuse_few_members(ensemble, 2, "Make ensembles on the calibration split: one member has no quantiles.")
        ranks = len(ensemble.members) + 1
        counts, values, cases = np.zeros(ranks), 0, 0
        beyond: tuple[list[Array], list[Array]] = ([], [])
        for view, area in pooled(ensemble, weights, held=3):
            mass = point_mass(view, area)
            if not (mass > 0).any():
                continue
            valid = valid_share(view, area[:1])
            counts += (np.where(valid > 0, rank_share(view, area[:1])[:, 0], 0.0) * valid).sum(0)
            values, cases = values + np.count_nonzero(mass), cases + np.count_nonzero(mass.any(-1))
            greatest = np.where(np.isnan(view.members), -np.inf, view.members).max(0)
            for held, excess in zip(beyond, (view.ordered[0] - view.observed, view.observed - greatest), strict=True):
                outside = (mass > 0) & (excess > 0) & ~agree(view)
                held.append(np.stack([excess[outside] / np.sqrt(view.variance[outside]), mass[outside]]))
        if not values:
            raise nothing_valid()
        if values < ranks:
            raise CalibrationError(
                "calibration split",
                found=f"{values} valid values",
                expected=f"at least {ranks}, one for each rank among {ranks - 1} members",
                remedy="Bring more calibration cases, or use temperature_variance, which learns one number.",
            )
        lower, upper = (_quantiles(*np.concatenate(parts, axis=1)) for parts in beyond)
        state = {"frequency": pit_cdf(counts), "level": np.linspace(0, 1, ranks + 1), "lower_excess": lower, "upper_excess": upper}
        more = {"members": ranks - 1, "cases": cases, "w1_pit": w1_uniform(counts)}
        return state | {name: np.asarray(value) for name, value in more.items()}

    def apply(self, members: Array, state: Mapping[str, NDArray[Any]], params: Params, weights: Array) -> Array:
        """Recalibrated members, each in the place of the one that had its rank; a lone member at a point stays as it is."""
        del params, weights
        same_members(members, state, "the ranks that were learned are theirs")
        old = np.reshape(members, (len(members), -1))
        out = old.copy()
        view = EnsembleView(old, np.zeros(old.shape[1:]))
        for present in np.unique(view.count):
            if present < 2:
                continue
            at = slice(None) if view.complete else np.flatnonzero(view.count == present)
            order = np.argsort(old[:, at], axis=0, kind="stable")[:present]  # missing members sort last, and are left alone
            ordered = np.take_along_axis(old[:, at], order, axis=0).astype(np.float64)
            moved = _moved(ordered, np.sqrt(view.variance[at]), state).astype(out.dtype)
            part = out[:, at]
            np.put_along_axis(part, order, moved, axis=0)
            out[:, at] = part
        return out.reshape(members.shape)

    def report(self, state: Mapping[str, NDArray[Any]], params: Params) -> str:
        """How far the PIT was from uniform, and how often the observation was outside."""
        del params
        below, above, count = float(state["frequency"][1]), 1 - float(state["frequency"][-2]), int(state["members"])
        before = float(state["w1_pit"])
        return (
            f"Recalibrated from {int(state['cases'])} cases of {count} members, whose w1_pit was {before:.4f}: {below:.1%} of "
            f"what was observed lay below all members and {above:.1%} above, where a perfect ensemble has {1 / (count + 1):.1%} each."
        )


def _quantiles(excess: Array, mass: Array) -> Array:
    """Excess at `KNOTS` of its own weighted distribution, ascending; zeros where nothing was outside."""
    if not len(excess):
        return np.zeros(len(KNOTS))
    order = np.argsort(excess, kind="stable")
    middle = np.cumsum(mass[order]) - mass[order] / 2
    return np.interp(KNOTS, middle / mass.sum(), excess[order])


def _moved(ordered: Array, sd: Array, state: Mapping[str, NDArray[Any]]) -> Array:
    """Quantiles of ascending members `(m, point)` at R⁻¹(k/(m + 1)), k = 1 … m, by the same shape."""
    present = len(ordered)
    level = np.interp(np.arange(1, present + 1) / (present + 1), state["frequency"], state["level"])
    out = np.empty(ordered.shape)
    for new, place in zip(out, level * (present + 1), strict=True):  # place 1 is the least member, m the greatest
        if place < 1:
            new[...] = ordered[0] - sd * np.interp(1 - place, KNOTS, state["lower_excess"])
        elif place > present:
            new[...] = ordered[-1] + sd * np.interp(place - present, KNOTS, state["upper_excess"])
        else:
            low = min(int(place), present - 1)
            new[...] = ordered[low - 1] + (place - low) * (ordered[low] - ordered[low - 1])
    return out


ENTRIES = (Isotonic(),)
