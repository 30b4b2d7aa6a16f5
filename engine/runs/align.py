"""Putting a forecast and what was observed on the same places and times, by coordinate value and never by position.

Latitude may run either way and longitude count from −180 or from 0: observed is brought to the forecast's coordinates, and
what was turned or dropped is said. What does not meet is refused with both extents.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ScoreError
from engine.runs.match_times import NO_TIMES, match_times

if TYPE_CHECKING:
    import xarray as xr

MEMBER = ("member", "number", "ensemble", "realization", "realisation", "ens", "ensemble_member")
LATITUDE, LONGITUDE = ("latitude", "lat"), ("longitude", "lon", "long")
TIME = ("time", "valid_time", "case", "init_time")
Say = Callable[[str], None]


def dimension(field: "xr.DataArray", names: tuple[str, ...]) -> str | None:
    """The field's dimension that goes by one of these names, in any case of letters."""
    return next((str(d) for name in names for d in field.dims if str(d).lower() == name), None)


def member_dimension(forecast: "xr.DataArray", asked: str | None = None) -> str:
    """The member dimension, wherever it stands; `ScoreError` names the dimensions there are."""
    found = asked if asked in forecast.dims else None if asked else dimension(forecast, MEMBER)
    if found is None:
        raise ScoreError(
            "forecast",
            found=f"dimensions {', '.join(f'{d} ({n})' for d, n in forecast.sizes.items())}",
            expected=f"a member dimension named {asked or ', '.join(MEMBER)}",
            remedy="Name the member dimension with --member-dim (member_dim= in Python).",
        )
    return found


def meet(forecast: "xr.DataArray", observed: "xr.DataArray", say: Say) -> "tuple[xr.DataArray, xr.DataArray]":
    """Both on their common latitudes, longitudes and times, in the forecast's order (times ascending)."""
    import xarray as xr

    forecast, observed, _ = meet_times(forecast, observed, say)
    for kind, names in (("latitude", LATITUDE), ("longitude", LONGITUDE)):
        ours, theirs = dimension(forecast, names), dimension(observed, names)
        if ours is None and theirs is None:
            continue
        if ours is None or theirs is None:
            has, lacks = ("observed", "forecast") if ours is None else ("forecast", "observed")
            raise ScoreError(
                kind, found=f"a {kind} dimension in {has} only", expected="it in both", remedy=f"Give {lacks} a {kind} dimension."
            )
        bare = [side for side, field, name in (("forecast", forecast, ours), ("observed", observed, theirs)) if name not in field.coords]
        if bare:
            raise _without_values(kind, bare)
        first, second = _positions(kind, forecast[ours].values, observed[theirs].values, say)
        forecast, observed = forecast.isel({ours: first}), observed.isel({theirs: second})
        if ours != theirs:
            observed = observed.rename({theirs: ours})
        observed = observed.assign_coords({ours: forecast[ours]})  # equal within tolerance: from here on identical
    left = [str(d) for d in observed.dims if d not in forecast.dims]
    if left:
        raise ScoreError(
            "observed",
            found=f"dimension {', '.join(left)} that forecast lacks",
            expected="the forecast's dimensions without the member",
            remedy="Select along it first.",
        )
    shared = [d for d in observed.dims if d in forecast.dims and forecast.sizes[d] != observed.sizes[d]]
    if shared:
        raise ScoreError(
            "grids",
            found=f"{shared[0]}: {forecast.sizes[shared[0]]} and {observed.sizes[shared[0]]}",
            expected="equal sizes",
            remedy="Select the same part of both.",
        )
    return xr.align(forecast, observed, join="exact")


def _without_values(kind: str, bare: list[str]) -> ScoreError:
    return ScoreError(
        kind,
        found=f"no coordinate values in {' and '.join(bare)}",
        expected="values to match by",
        remedy=f"Give the {kind} dimension its coordinate.",
    )


def meet_times(forecast: "xr.DataArray", observed: "xr.DataArray", say: Say) -> "tuple[xr.DataArray, xr.DataArray, dict[str, Any]]":
    """Both on their common valid times under the forecast's name, and what the answer says of it (`Match.as_dict`).

    Times of which there is one alone on one side, and none on the other, are taken for the same, and that is said.
    """
    ours, theirs = dimension(forecast, TIME), dimension(observed, TIME)
    if ours is None and theirs is None:
        return forecast, observed, dict(NO_TIMES)
    if ours is None or theirs is None:
        name, count = (ours, forecast.sizes[ours]) if ours else (theirs, observed.sizes[theirs or ""])
        has, lacks = ("forecast", "observed") if ours else ("observed", "forecast")
        if count > 1:
            raise ScoreError(
                "time",
                found=f"{count} times in {has} only",
                expected="them in both",
                remedy=f"Give the {lacks} its times.",
            )
        say(f"the {lacks} has no time: taken to be valid at the only time of the {has}")
        if ours:
            return (
                forecast,
                observed.expand_dims({name: forecast[name].values}) if name in forecast.coords else observed.expand_dims(name),
                dict(NO_TIMES),
            )
        grown = forecast.expand_dims({name: observed[name].values}) if name in observed.coords else forecast.expand_dims(name)
        return grown, observed, dict(NO_TIMES)
    bare = [side for side, field, name in (("forecast", forecast, ours), ("observed", observed, theirs)) if name not in field.coords]
    counts = {"forecast": forecast.sizes[ours], "observed": observed.sizes[theirs]}
    if len(bare) == 2 and counts["forecast"] == counts["observed"]:
        observed = observed.rename({theirs: ours}) if ours != theirs else observed
        return forecast, observed, dict(NO_TIMES) | counts | {"matched": counts["forecast"]}  # their order is all there is
    if bare:
        raise _without_values("time", bare)
    match = match_times(forecast[ours], observed[theirs])
    found = match.as_dict()
    if found["matched"] < counts["forecast"]:
        say(f"time: {found['matched']} of {counts['forecast']} forecast times are observed; the others are left out")
    if match.largest and match.within:
        say(f"time: matched within {match.within:.4g} s; the largest difference is {match.largest:.3g} s")
    forecast, observed = forecast.isel({ours: match.ours}), observed.isel({theirs: match.theirs})
    if ours != theirs:
        observed = observed.rename({theirs: ours})
    return forecast, observed.assign_coords({ours: forecast[ours]}), found


def _positions(kind: str, ours: NDArray[Any], theirs: NDArray[Any], say: Say) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions in both of the values they share."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    tolerance = 0.01 * min(_spacing(a), _spacing(b))  # float32 against float64 coordinates, never a neighbour
    distance = a[:, None] - b[None, :]
    if kind == "longitude":
        distance = (distance + 180) % 360 - 180
    distance = np.abs(distance)
    nearest = distance.argmin(1)
    first = np.flatnonzero(distance[np.arange(a.size), nearest] <= tolerance)
    second = nearest[first]
    smaller = min(a.size, b.size)
    if first.size < 0.9 * smaller:
        raise ScoreError(
            f"{kind} grids",
            found=f"forecast {_extent(a)}, observed {_extent(b)}: {first.size} values in common",
            expected="the same grid, or one that holds the other",
            remedy="Regrid one of them.",
        )
    if a.size != first.size or b.size != np.unique(second).size:
        lost, others = a.size - first.size, b.size - np.unique(second).size
        say(f"{kind}: {first.size} values in common; {lost} of the forecast and {others} of the observed left out")
    if kind == "latitude" and first.size > 1 and second[0] > second[-1]:
        say("latitude of the observed turned to the forecast's direction")
    if kind == "longitude" and np.abs(a[first] - b[second]).max() > 180:
        say("longitude of the observed counted in the forecast's convention (modulo 360)")
    return first, second


def _spacing(values: NDArray[np.float64]) -> float:
    return float(np.abs(np.diff(np.sort(values))).min()) if values.size > 1 else 1.0


def _extent(values: NDArray[np.float64]) -> str:
    return f"{values.size} from {values.min():g} to {values.max():g}"
