"""Conformal intervals: the margin that covered on the calibration split, with a guarantee at any number of cases.

    score    cqr     max(q_low − y, y − q_high) of the ensemble's central interval (Romano, Patterson and Candès 2019)
             split   |y − x̄|, or |y − x̄|/s with `normalised`
    margin   t, the smallest with mass(score ≤ t) ≥ level
    interval [q_low − t, q_high + t], or x̄ ± t, or x̄ ± t s

Cases are the exchangeable units, never gridpoints: the points of one field hang together. Each of n cases carries the mass 1/(n + 1),
spread by area over its valid points, and 1/(n + 1) lies at infinity (hierarchical conformal prediction: Lee, Barber and Willett 2023).
If the n cases and a new one are exchangeable, then

    P(a random point of the new case, drawn by area, lies in its interval) ≥ level

over calibration sets and new cases together: on average over maps, at no place in particular, and not given this calibration set. It
needs n ≥ level/(1 − level): 1, 4, 9 and 19 cases for 50, 80, 90 and 95 %. A level with fewer is left out (NaN, and the report
says so): its margin is infinite.

What breaks it on time series: neighbouring starts are not exchangeable, and weigh as fewer cases than they are; a climate or a model
that drifts from the calibration to the verification period; ensembles made otherwise there, with another number of members above all;
a ν chosen on the same cases. The shares that verification reports are the check.

`per` region: one margin for each part of the map. A point belongs to the first region that holds it, in the order of the weights and
without a first region that holds everything (globe; tropics, northern and southern extratropics). A region whose points all belong to
earlier ones (Europe) has no margin of its own, and no guarantee of its own; points of no region form one more part; points without area
(poles) take the widest margin. With one region it is the same as `per` output, whose margin is learned on the first region (our choice).
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.errors import CalibrationError
from engine.kernels.area import point_weights
from engine.kernels.quantiles import central, linear_quantiles
from engine.methods._pool import agree, pooled, refuse_few_members, same_members
from engine.types import Array, EnsembleView, PostHoc

LEVELS = (50, 80, 90, 95)
MASS_TOLERANCE = 1e-8
"""Of a case's mass: 19 cases are enough for 95 % although 20 million shares add up to 19 − 1e-9."""


class Conformal(PostHoc):
    """Intervals beside members that stay as they are."""

    key = "conformal"
    title = "Conformal intervals"
    reference = "Lee, Barber and Willett (2023), arXiv 2306.06342; Romano, Patterson and Candès (2019), arXiv 1905.03222"
    guarantee = (
        "If calibration and verification cases are exchangeable, an area-weighted random point of a new case lies inside its interval with "
        "at least the stated probability, whatever the number of calibration cases; starts that neighbour in time, drift between the two "
        "periods, another number of members, or a ν chosen on the same cases break it."
    )

    class Params(BaseModel):
        """Which score, and where one margin holds."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        kind: Literal["cqr", "split"] = Field(default="cqr", description="about the ensemble's quantiles (cqr) or about its mean (split)")
        per: Literal["output", "region"] = Field(default="output", description="one margin for the variable, or one for each region")
        normalised: bool = Field(default=False, description="split only: errors in units of the ensemble's sd at their point")

        @model_validator(mode="after")
        def _only_split_is_normalised(self) -> "Conformal.Params":
            if self.normalised and self.kind != "split":
                raise ValueError("normalised goes with kind split: the quantiles of cqr carry the ensemble's spread already")
            return self

    def fit(self, ensemble: EnsembleView, weights: Array, params: Params) -> dict[str, NDArray[Any]]:
        """`margin` (level, part) in the variable's unit (normalised: in sds), infinite where unknown; `part` `(*space)`, −1 without area.

        `cases` (part,) is the n that counted. Raises `CalibrationError` where no level is possible.
        """
        if params.normalised:
            refuse_few_members(ensemble, 2, "Use more members, or normalised = false: one member has no sd.")
        part, area = _parts(np.asarray(weights, dtype=np.float64), params.per)
        margin, cases = np.full((len(LEVELS), len(area)), np.inf), np.zeros(len(area), dtype=np.int64)
        for some in [(level,) for level in LEVELS] if params.kind == "cqr" else [LEVELS]:  # split has one score for all levels
            score, mass, owner, cases = _scores(ensemble, area, params, some[0])
            for p in range(len(area)):
                order = np.argsort(score[owner == p], kind="stable")
                ascending, cumulated = score[owner == p][order], np.cumsum(mass[owner == p][order])
                for level in some:
                    if cases[p] >= needed(level):
                        at = np.searchsorted(cumulated, level / 100 * (cases[p] + 1) - MASS_TOLERANCE)
                        margin[LEVELS.index(level), p] = ascending[min(at, len(ascending) - 1)]
        if not np.isfinite(margin).all(axis=1).any():
            few = int(cases.min()) < needed(LEVELS[0])
            raise CalibrationError(
                "conformal intervals",
                found=f"{cases.min()} calibration cases with a valid point" if few else "members that agree where the observation differs",
                expected=", ".join(f"at least {needed(v)} for {v} %" for v in LEVELS) if few else "spread to measure errors by",
                remedy="Bring more calibration cases, or one margin (per output)." if few else "Use kind cqr, or split without normalised.",
            )
        state = {"levels": np.asarray(LEVELS), "margin": margin, "cases": cases, "part": part.reshape(np.shape(weights)[1:])}
        return state | {"members": np.asarray(len(ensemble.members))}

    def apply(self, members: Array, state: Mapping[str, NDArray[Any]], params: Params, weights: Array) -> Array:
        """The members themselves."""
        del state, params, weights
        return members

    def intervals(
        self, members: Array, state: Mapping[str, NDArray[Any]], params: Params, weights: Array
    ) -> Mapping[int, tuple[Array, Array]]:
        """Every level's ends; NaN at a level that had too few cases, and at points without members.

        Where a negative margin would turn an interval over, both ends are its middle.
        """
        del weights
        same_members(members, state, "exchangeable ensembles are of one size")
        view = EnsembleView(members, np.zeros(members.shape[1:]))
        given = {}
        for level, of_part in zip(LEVELS, state["margin"], strict=True):
            known = bool(np.isfinite(of_part).all())
            margin = np.where(state["part"] < 0, of_part.max(), of_part[state["part"]]) if known else np.nan
            low, high, unit = _ends(view, params, level)
            # closed intervals: rounding of the ends must not lose the very scores that the margin is made of
            slack = 4 * np.finfo(np.float64).eps * (np.abs(low) + np.abs(high) + np.abs(margin * unit))
            low, high = low - margin * unit - slack, high + margin * unit + slack
            middle = (low + high) / 2
            given[level] = np.minimum(low, middle), np.maximum(high, middle)
        return given

    def report(self, state: Mapping[str, NDArray[Any]], params: Params) -> str:
        """The margins, and the levels that are left out with what they need."""
        least = int(state["cases"].min())
        margins = {level: row for level, row in zip(LEVELS, state["margin"], strict=True) if np.isfinite(row).all()}
        numbers = "; ".join(f"{level} %: {', '.join(f'{m:.4g}' for m in row)}" for level, row in margins.items())
        unit = ", in sds of the ensemble" if params.normalised else ""
        said = f"Margins ({params.kind}, per {params.per}{unit}) from {least} cases: {numbers}."
        short = [level for level in LEVELS if least < needed(level)]
        if short:
            wanted = ", ".join(f"at least {needed(level)} for {level} %" for level in short)
            said += f" Left out: found {least} calibration cases, expected {wanted}; bring more calibration cases."
        still = [f"{level} %" for level in LEVELS if level not in margins and level not in short]
        if still:
            said += f" Left out as well: {', '.join(still)}, since members agree where the observation differs."
        return said


def needed(level: int) -> int:
    """Cases without which a level in percent has no finite margin: level/(1 − level), rounded up."""
    return -(-level // (100 - level))


def _ends(view: EnsembleView, params: Conformal.Params, level: int) -> tuple[Array, Array, Array]:
    """What the margin is added to, each `(case, *event)`, and the unit that it is in."""
    if params.kind == "cqr":
        count = None if view.complete else view.count
        low, high = (linear_quantiles(view.ordered, p, count) for p in central(level))
        return low, high, np.ones(())
    return view.mean, view.mean, np.where(agree(view), 0.0, np.sqrt(view.variance)) if params.normalised else np.ones(())


def _scores(
    ensemble: EnsembleView, area: Array, params: Conformal.Params, level: int
) -> tuple[Array, Array, NDArray[np.int64], NDArray[np.int64]]:
    """Scores, their masses (each case's sum 1 in each part), the part of each, all `(value,)`; and the cases of each part."""
    parts, cases = [], np.zeros(len(area), dtype=np.int64)
    for view, share in pooled(ensemble, area, held=3):
        by_part = point_weights(view, share)
        mass = np.nan_to_num(by_part)
        cases += np.count_nonzero(np.broadcast_to(mass, (len(view.observed), *mass.shape[1:])).any(-1), axis=0)
        low, high, unit = _ends(view, params, level)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.maximum(low - view.observed, view.observed - high)
            score = np.where(distance == 0, 0.0, distance / unit)  # members that agree and are right have no error in any unit
        here = np.broadcast_to(mass.sum(1), score.shape)
        owner = np.broadcast_to(share.argmax(0), score.shape)  # a point has area in one part only
        keep = here > 0
        parts.append((score[keep], here[keep], owner[keep]))
    score, mass, owner = (np.concatenate(same) for same in zip(*parts, strict=True))
    return score, mass, owner, cases


def _parts(weights: Array, per: str) -> tuple[NDArray[np.int64], Array]:
    """The part that each point belongs to, `(point,)`, −1 where it has no area; and the area of each part, `(part, point)`."""
    space = weights.reshape(len(weights), -1)
    if per == "output":
        return np.zeros(space.shape[1], dtype=np.int64), space[:1]
    inside = space > 0
    anywhere = inside.any(0)
    first = 1 if len(space) > 1 and (inside[0] == anywhere).all() else 0
    part, areas = np.full(space.shape[1], -1), []
    for region in (*range(first, len(space)), 0):  # what no region holds is left to the first, the whole
        own = inside[region] & (part < 0)
        if own.any():
            part[own] = len(areas)
            areas.append(np.where(own, space[region], 0.0))
    return part, np.stack(areas)


ENTRIES = (Conformal(),)
