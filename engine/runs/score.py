"""One score of a forecast from anywhere: arrays, labelled fields that meet by coordinate value, or class probabilities."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.data._time_roles import kind_of_values, role_of
from engine.data._times import settle_times
from engine.data._valid import on_valid_times
from engine.errors import ScoreError
from engine.kernels.area import cell_area, valid_share
from engine.labelled import ClassScore
from engine.registry import get
from engine.runs.accumulate import require
from engine.runs.align import LATITUDE, LONGITUDE, TIME, dimension, meet, member_dimension
from engine.runs.classify.scores import class_score
from engine.runs.one_unit import in_one_unit
from engine.runs.score_files import score_files
from engine.types import Array, EnsembleView, Score

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["score", "score_files"]

BLOCK = 4_000_000
"""Member values scored at a time: bounds memory whatever the number of cases."""


def score(
    name: str,
    forecast: "ArrayLike | xr.DataArray",
    observed: "ArrayLike | xr.DataArray",
    *,
    weights: "ArrayLike | xr.DataArray | None" = None,
    climatology: "ArrayLike | xr.DataArray | None" = None,
    thresholds: Sequence[float] | float | None = None,
    reference: "ArrayLike | xr.DataArray | None" = None,
    spread_edges: Sequence[float] = (),
    member_dim: str | None = None,
    lead_time: float | None = None,
    outside: ArrayLike | None = None,
) -> float | dict[str, Any] | NDArray[np.floating[Any]]:
    """The score `name` (of `engine.catalogue("scoring")`) of `forecast` against `observed`, over all cases.

    Arrays: `forecast` `(member, case, *event)`, `observed` `(case, *event)`, equal weights unless `weights` has the shape of
    the end of the event, or of `observed`. Labelled fields: the member dimension (member, number, ensemble, realization,
    ens, or `member_dim`) stands anywhere, both meet by coordinate value, and points weigh by area where there is a latitude.
    Where times are dates they meet by valid time, however initial, lead and valid times are written, within a fraction of the
    time step; `lead_time` (hours) chooses one where there are several or none is told; what is assumed is a `UserWarning`.
    NaN marks a missing member or observation; cases weigh by their share of valid weight. `climatology` and `reference`
    broadcast against `observed`; `thresholds` are on x − climatology; `spread_edges` split the spread-skill diagram.

    Class probabilities: `forecast` `(case, class)`, or `(member, case, class)` whose mean over members is scored; `observed`
    `(case,)` integers, positions of the observed class; `weights` `(case,)`, how often each case counts; `outside` are the
    probabilities of out-of-distribution examples, for the detection scores. Nothing may be missing.

    Returns a float; a dict of floats of a decomposition; arrays of a histogram or a diagram. Raises `ScoreError` where
    shapes, units, grids, members, probabilities or labels do not fit, or an option belongs to the other kind of score.
    """
    options = {"climatology": climatology, "thresholds": thresholds, "reference": reference, "member_dim": member_dim}
    options |= {"lead_time": lead_time}
    options |= {"spread_edges": spread_edges if len(spread_edges) else None}
    chosen: Score | ClassScore = get("scoring", name)
    if isinstance(chosen, ClassScore):
        _refuse(name, "a score of class probabilities", options)
        return class_score(name, forecast, observed, weights=weights, outside=outside)
    _refuse(name, "a score of an ensemble", {"outside": outside})
    extras: dict[str, Any] = {"climatology": climatology, "reference": reference}
    if hasattr(forecast, "dims") or hasattr(observed, "dims"):
        forecast, observed, weights, extras = _labelled(forecast, observed, weights, extras, member_dim, lead_time)
    x, y = _floats(forecast), _floats(observed)
    if x.ndim == 1 and y.ndim == 0:
        x, y = x[:, None], y[None]
    _check(x, y)
    limits = () if thresholds is None else tuple(np.atleast_1d(np.asarray(thresholds, dtype=np.float64)).tolist())
    fields = {k: None if v is None else np.broadcast_to(_floats(v), y.shape) for k, v in extras.items()}
    require(chosen, EnsembleView(x, y, fields["climatology"], fields["reference"], limits))
    sums: dict[str, Any] = {}
    totals: dict[str, Any] = {}
    for part, space, case_weight in _parts(x, y, None if weights is None else np.asarray(weights, dtype=np.float64)):
        normal, single = (None if f is None else f[part] for f in fields.values())
        view = EnsembleView(x[:, part], y[part], normal, single, limits, tuple(spread_edges))
        share = valid_share(view, space)[:, 0] * case_weight
        for key, statistic in chosen.statistics(view, space).items():
            values = statistic[:, 0]
            used = np.where(np.isnan(values), 0.0, share.reshape(-1, *[1] * (values.ndim - 1)))
            with np.errstate(invalid="ignore"):
                sums[key] = sums.get(key, 0.0) + np.where(used > 0, values * used, 0.0).sum(0)
            totals[key] = totals.get(key, 0.0) + used.sum(0)
    if not any(np.any(total > 0) for total in totals.values()):
        raise ScoreError(name, found="no valid point", expected="an observation with enough members", remedy="Check the missing values.")
    with np.errstate(invalid="ignore"):
        value = chosen.combine({key: sums[key] / np.where(totals[key] > 0, totals[key], np.nan) for key in sums})
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else _plain(value)


def _refuse(name: str, kind: str, options: dict[str, Any]) -> None:
    """Raise at an option that this kind of score would pass over in silence."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise ScoreError(name, found=", ".join(given), expected=f"only what fits {kind}", remedy=f"Leave out {' and '.join(given)}.")


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def _floats(values: Any) -> NDArray[np.floating[Any]]:
    values = np.asarray(values)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _check(x: Array, y: Array) -> None:
    if x.ndim != y.ndim + 1 or x.shape[1:] != y.shape:
        axis = next((i for i in range(x.ndim) if x.shape[:i] + x.shape[i + 1 :] == y.shape), None)
        remedy = (
            f"Move axis {axis} to the front: members come first."
            if axis
            else "Give forecast (member, case, *event) and observed (case, *event)."
        )
        raise ScoreError(
            "shapes", found=f"forecast {x.shape}, observed {y.shape}", expected="forecast = (member, *observed)", remedy=remedy
        )
    if 0 in x.shape:
        raise ScoreError(
            "forecast", found=f"shape {x.shape}", expected="at least one member and one value", remedy="Give a forecast that is not empty."
        )
    for side, values in (("forecast", x), ("observed", y[None])):
        if any(np.isinf(part).any() for part in values):  # member by member: no boolean twin of the whole ensemble
            place = tuple(int(i) for i in np.argwhere(np.isinf(values))[0])[0 if side == "forecast" else 1 :]
            raise ScoreError(
                side,
                found=f"an infinite value at {place}",
                expected="finite values, NaN where missing",
                remedy="Mark missing values by NaN.",
            )


def _parts(x: Array, y: Array, weights: Array | None) -> Iterator[tuple[slice, Array, Array | float]]:
    """Slices of cases with their space weights `(1, *space)` and case weights."""
    cases, event = len(y), y.shape[1:]
    step = max(1, BLOCK // max(1, x[:, 0].size))
    if weights is not None and (np.isnan(weights).any() or (weights < 0).any() or weights.sum() <= 0):
        raise ScoreError(
            "weights", found="negative, missing or no weight", expected="weights ≥ 0 with a positive sum", remedy="Check the weights."
        )
    if weights is not None and weights.shape == y.shape:
        if not event:
            for start in range(0, cases, step):
                part = slice(start, start + step)
                yield part, np.ones(1), weights[part]
            return
        for case in range(cases):
            total = float(weights[case].sum())
            if total > 0:
                yield slice(case, case + 1), weights[case][None], total
        return
    if weights is None:
        weights = np.ones(event)
    elif weights.ndim > len(event) or weights.shape != event[len(event) - weights.ndim :]:
        raise ScoreError(
            "weights",
            found=f"shape {weights.shape}",
            expected=f"the end of the event {event}, or {y.shape}",
            remedy="Give one weight a point.",
        )
    for start in range(0, cases, step):
        yield slice(start, start + step), weights[None], 1.0


def _labelled(
    forecast: Any, observed: Any, weights: Any, extras: dict[str, Any], member_dim: str | None, lead_time: float | None
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Arrays from labelled fields: member, case, event with latitude and longitude last; area weights where none are given."""
    import xarray as xr

    if not (isinstance(forecast, xr.DataArray) and isinstance(observed, xr.DataArray)):
        raise ScoreError(
            "forecast and observed",
            found="one labelled, one not",
            expected="two DataArrays, or two arrays",
            remedy="Pass both in the same form.",
        )
    member = member_dimension(forecast, member_dim)
    notes: list[str] = []
    forecast = _on_valid_times(forecast, "forecast", lead_time, member)
    observed = _on_valid_times(observed, "observed", None)
    forecast, observed = in_one_unit(forecast, observed, notes.append)
    forecast, observed = meet(forecast, observed, notes.append)
    case, latitude, longitude = (dimension(forecast, names) for names in (TIME, LATITUDE, LONGITUDE))
    space = [d for d in (latitude, longitude) if d is not None]
    event = [str(d) for d in observed.dims if d not in (case, *space)] + space
    lacking = [str(d) for d in forecast.dims if d not in observed.dims and d != member]
    if lacking:
        raise ScoreError(
            "observed",
            found=f"no dimension {', '.join(lacking)}",
            expected="the forecast's dimensions without the member",
            remedy="Select along it, or say which is the member dimension.",
        )
    order = ([case] if case else []) + event
    forecast, observed = forecast.transpose(member, *order), observed.transpose(*order)
    extras = {name: _beside(extra, observed, name).values if isinstance(extra, xr.DataArray) else extra for name, extra in extras.items()}
    if isinstance(weights, xr.DataArray):
        weights = weights.broadcast_like(observed.isel({case: 0}, drop=True) if case else observed).transpose(*event).values
    elif weights is None and latitude is not None:
        area = cell_area(forecast[latitude].values)
        weights = np.broadcast_to(area[:, None], (area.size, forecast.sizes[longitude])) if longitude is not None else area
    x, y = forecast.values, observed.values
    return (x, y, weights, extras) if case else (x[:, None], y[None], weights, extras)


def _on_valid_times(field: "xr.DataArray", side: str, lead_time: float | None, member: str | None = None) -> "xr.DataArray":
    """The field on its valid times, as files are brought to them. Cases that are numbered, or told by order alone, stay as they are."""
    dated = [n for n, c in field.coords.items() if role_of(str(n), c, side) and kind_of_values(c) in ("date", "span")]
    if not dated and lead_time is None:
        return field
    forecast, said = side == "forecast", []
    data = field.rename("field").to_dataset()
    if member not in (None, "member"):
        data = data.rename({member: "member"})  # the one name that settling times knows
    found = on_valid_times(settle_times(data, side, said), side, said, lead=lead_time, forecast=forecast)["field"]
    if said:
        warnings.warn(f"{side}: {'; '.join(said)}", UserWarning, stacklevel=4)
    return found if member in (None, "member") else found.rename(member=member)


def _beside(extra: "xr.DataArray", observed: "xr.DataArray", name: str) -> "xr.DataArray":
    """A climatology or reference on the places (and, where it has them, the times) of the observed."""
    for names in (LATITUDE, LONGITUDE, TIME):
        ours, theirs = dimension(observed, names), dimension(extra, names)
        if ours and theirs and ours != theirs:
            extra = extra.rename({theirs: ours})
    base = observed.isel({str(d): 0 for d in observed.dims if d not in extra.dims}, drop=True)
    base, extra = meet(base, extra, lambda _: None)
    if base.sizes != {d: observed.sizes[d] for d in base.dims}:
        raise ScoreError(
            name,
            found=f"{dict(extra.sizes)}",
            expected=f"{dict(observed.sizes)}",
            remedy=f"Give a {name} for every place and time that is scored.",
        )
    return extra.broadcast_like(observed).transpose(*observed.dims)
