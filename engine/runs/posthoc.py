"""The post-hoc step of a run: one state for each variable and ν, learned on the calibration split, kept in a file, laid over ensembles.

The order is fixed: `settle` before the model is opened, `fit_state` once all calibration ensembles of a variable and ν are there,
`save_state`, then `after` in place of `EnsembleView` for every ensemble that is verified. Both kinds of ensembles must be made
alike, with the same number of members above all: what is learned depends on it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from engine.errors import CalibrationError, SpecError
from engine.registry import entries
from engine.runs import pieces
from engine.types import Array, EnsembleView, PostHoc

State = dict[str, NDArray[Any]]
MARK = "posthoc"
"""The entry of a state's file that says which method and which parameters it is of."""


def settle(key: str, given: Mapping[str, Any]) -> tuple[PostHoc, BaseModel]:
    """The post-hoc method of this name and its parameters. Raises `SpecError` for another name, or parameters that do not fit."""
    known = {name: entry for name, entry in entries("methods").items() if isinstance(entry, PostHoc)}
    if key not in known:
        makes = "a method that makes forecasts" if key in entries("methods") else "no such method"
        raise SpecError(
            f"post-hoc method {key!r}",
            found=makes,
            expected=f"one of {', '.join(sorted(known))}",
            remedy="Name one of these; what makes the ensemble is named by --method.",
        )
    entry = known[key]
    try:
        return entry, entry.Params(**given)
    except ValidationError as fault:
        fields = ", ".join(entry.Params.model_fields) or "none"
        raise SpecError(
            f"posthoc_params of {key}", found=str(dict(given)), expected=f"fields: {fields}", remedy=f"{fault.errors()[0]['msg']}."
        ) from fault


def fit_state(entry: PostHoc, members: Array, observed: Array, weights: Array, params: BaseModel) -> State:
    """Learn from the calibration split's ensembles of one variable and ν.

    `members` `(member, case, *space)`, `observed` `(case, *space)`, NaN where missing; `weights` `(region, *space)`. Raises
    `CalibrationError` for shapes that do not match, infinite values, and whatever the method refuses.
    """
    if members.shape[1:] != observed.shape or not members.size:
        raise CalibrationError(
            "calibration split",
            found=f"members {members.shape}, observed {observed.shape}",
            expected="members (member, case, *space) and observed (case, *space), none of them empty",
            remedy="Bring calibration data in which at least one case has its initial and valid time.",
        )
    if any(np.isinf(member).any() for member in members) or np.isinf(observed).any():
        raise CalibrationError(
            "calibration split",
            found="infinite values",
            expected="finite values, NaN where missing",
            remedy="Check the model's output, or the calibration data.",
        )
    return entry.fit(EnsembleView(members, observed), weights, params)


def after(
    entry: PostHoc | None,
    params: BaseModel | None,
    state: Mapping[str, NDArray[Any]],
    members: Array,
    observed: Array,
    weights: Array,
    **view: Any,
) -> EnsembleView:
    """The view that verification scores: members after the correction, and the intervals that it gives.

    Shapes as in `fit_state`, of any cases; `view` holds what else an EnsembleView takes (climatology, reference, thresholds,
    spread_edges). Without an entry it is the plain view. Raises `CalibrationError` where the ensemble does not fit the state.
    """
    if entry is None:
        return EnsembleView(members, observed, **view)
    given = entry.intervals(members, state, params, weights)
    factor = entry.spread_factor(state, params)
    return EnsembleView(entry.apply(members, state, params, weights), observed, intervals=given, spread_factor=factor, **view)


def save_state(path: Path, entry: PostHoc, params: BaseModel, state: Mapping[str, NDArray[Any]]) -> None:
    """Write a state as npz, whole or not at all; the file says which method and parameters it is of."""
    pieces.save(path, {MARK: np.asarray(_mark(entry, params)), **dict(state)})


def load_state(path: Path, entry: PostHoc, params: BaseModel) -> State | None:
    """A state that `save_state` wrote; None where there is none, where it is damaged, or of another method or other parameters."""
    state = pieces.read(path)
    if state is None:
        return None
    if str(state.pop(MARK, "")) != _mark(entry, params):
        pieces.log.warning("post-hoc state %s is of another method or other parameters and is learned again", path.name)
        return None
    return state


def _mark(entry: PostHoc, params: BaseModel) -> str:
    return json.dumps({"method": entry.key, "params": params.model_dump(mode="json")}, sort_keys=True)
