"""What post-hoc methods read of a calibration split: views of bounded size, and the refusals that all of them share."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import CalibrationError, ScoreError
from engine.kernels.area import flat
from engine.types import Array, EnsembleView

LIMIT = 20_000_000
"""Values that are held at a time: some 160 MB in float64."""


def pooled(ensemble: EnsembleView, weights: Array, held: int = 1) -> Iterator[tuple[EnsembleView, Array]]:
    """Views `(member, case, point)` of a calibration split, block by block, with the points' weights `(region, point)`.

    `held` is the number of values that the caller keeps of each point. Every point of every case where cases × points × held
    is within `LIMIT`; beyond, case k gives every n-th point from the (k mod n)-th on, with the smallest n that fits: evenly
    spaced, and all points have their turn (our choice). Raises `ScoreError` where weights and points do not match.
    """
    cases = len(ensemble.observed)
    if not ensemble.observed.size:
        raise nothing_valid()
    observed, members = flat(ensemble.observed, cases), np.reshape(ensemble.members, (len(ensemble.members), cases, -1))
    space = np.reshape(np.asarray(weights, dtype=np.float64), (len(weights), -1))
    points = observed.shape[1]
    if space.shape[1] != points:
        raise ScoreError(
            "weights", found=f"space {np.shape(weights)[1:]}", expected=f"{ensemble.observed.shape[1:]}", remedy="Give one weight a point."
        )
    step = max(1, min(points, -(-cases * points * held // LIMIT)))
    at_once = step * max(1, LIMIT * step // (points * len(members)))
    for offset in range(step):
        for start in range(offset, cases, at_once):
            part = slice(start, start + at_once, step)
            yield EnsembleView(members[:, part, offset::step], observed[part, offset::step]), space[:, offset::step]


def point_mass(view: EnsembleView, weights: Array) -> Array:
    """Area of each valid point in the first region, `(case, point)`, 0 where invalid: cases weigh by their share of valid area."""
    return np.where(view.valid, weights[0] / weights[0].sum() if weights[0].sum() > 0 else 0.0, 0.0)


def agree(view: EnsembleView) -> NDArray[np.bool_]:
    """Points where all members that are there are the same, `(case, *event)`: their variance is rounding, and rarely exactly zero."""
    return np.fmax.reduce(view.members, axis=0) == np.fmin.reduce(view.members, axis=0)


def refuse_few_members(ensemble: EnsembleView, least: int, remedy: str) -> None:
    """Raise where the ensemble has too few members for what is to be learned."""
    if len(ensemble.members) < least:
        raise CalibrationError(
            "calibration split", found=f"{len(ensemble.members)} member(s)", expected=f"at least {least} members", remedy=remedy
        )


def nothing_valid() -> CalibrationError:
    """The refusal of a split without one valid point in the first region."""
    return CalibrationError(
        "calibration split",
        found="no point with an observation and enough members",
        expected="at least one",
        remedy="Check the missing values of the calibration data, and that the first region reaches them.",
    )


def same_members(members: Array, state: Mapping[str, NDArray[Any]], why: str) -> None:
    """Raise where an ensemble has another number of members than the ones that were learned from."""
    if len(members) != int(state["members"]):
        raise CalibrationError(
            "ensemble",
            found=f"{len(members)} members",
            expected=f"{int(state['members'])}, as on the calibration split: {why}",
            remedy="Make both ensembles with the same number of members.",
        )
