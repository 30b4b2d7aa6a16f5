"""Putting a forecast and what was observed on the same places and times, by coordinate value and never by position.

Latitude may run either way and longitude count from −180 or from 0: observed is brought to the forecast's coordinates, and
what was turned or dropped is said. What does not meet is refused with both extents.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ScoreError

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


def same_units(forecast: "xr.DataArray", observed: "xr.DataArray") -> None:
    """Refuse two different units attributes; a missing one is taken on trust."""
    ours, theirs = (str(f.attrs.get("units", "")).strip() for f in (forecast, observed))
    if ours and theirs and ours != theirs:
        raise ScoreError("units", found=f"forecast in {ours!r}, observed in {theirs!r}", expected="one unit", remedy="Convert one of them.")


def meet(forecast: "xr.DataArray", observed: "xr.DataArray", say: Say) -> "tuple[xr.DataArray, xr.DataArray]":
    """Both on their common latitudes, longitudes and times, in the forecast's order (times ascending)."""
    import xarray as xr

    for kind, names in (("latitude", LATITUDE), ("longitude", LONGITUDE), ("time", TIME)):
        ours, theirs = dimension(forecast, names), dimension(observed, names)
        if ours is None and theirs is None:
            continue
        if ours is None or theirs is None:
            has, lacks = ("observed", "forecast") if ours is None else ("forecast", "observed")
            raise ScoreError(
                kind, found=f"a {kind} dimension in {has} only", expected="it in both", remedy=f"Give {lacks} a {kind} dimension."
            )
        bare = [side for side, field, name in (("forecast", forecast, ours), ("observed", observed, theirs)) if name not in field.coords]
        if len(bare) == 2 and kind == "time" and forecast.sizes[ours] == observed.sizes[theirs]:
            observed = observed.rename({theirs: ours}) if ours != theirs else observed
            continue  # cases without labels on either side: their order is all there is
        if bare:
            raise ScoreError(
                kind,
                found=f"no coordinate values in {' and '.join(bare)}",
                expected="values to match by",
                remedy=f"Give the {kind} dimension its coordinate.",
            )
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


def _positions(kind: str, ours: NDArray[Any], theirs: NDArray[Any], say: Say) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions in both of the values they share."""
    if kind == "time":
        return _common_times(ours, theirs, say)
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


def _common_times(ours: NDArray[Any], theirs: NDArray[Any], say: Say) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    calendars = [_calendar(v) for v in (ours, theirs)]
    if calendars[0] != calendars[1]:
        raise ScoreError(
            "time", found=f"calendars {calendars[0]} and {calendars[1]}", expected="one calendar", remedy="Convert one of them first."
        )
    if calendars[0] == "standard":
        ours, theirs = (v.astype("datetime64[us]") for v in (ours, theirs))  # one resolution, so that equal times compare equal
    for side, values in (("forecast", ours), ("observed", theirs)):
        if len(set(values.tolist())) < len(values):
            raise ScoreError("time", found=f"a time twice in {side}", expected="each once", remedy="Drop the duplicates.")
    place = {value: i for i, value in enumerate(theirs.tolist())}
    pairs = [(value, i, place[value]) for i, value in enumerate(ours.tolist()) if value in place]
    if not pairs:
        raise ScoreError(
            "time",
            found=f"no common time: forecast {ours.min()} … {ours.max()}, observed {theirs.min()} … {theirs.max()}",
            expected="at least one valid time in both",
            remedy="Give observations of the forecast's valid times.",
        )
    if len(pairs) < len(ours):
        say(f"time: {len(pairs)} of {len(ours)} forecast times are observed; the others are left out")
    pairs.sort(key=lambda pair: pair[0])
    return np.array([p[1] for p in pairs]), np.array([p[2] for p in pairs])


def _calendar(values: NDArray[Any]) -> str:
    if values.dtype == object and len(values):
        return str(getattr(values[0], "calendar", type(values[0]).__name__))
    return "standard" if np.issubdtype(values.dtype, np.datetime64) else "numbers" if np.issubdtype(values.dtype, np.number) else "text"


def _spacing(values: NDArray[np.float64]) -> float:
    return float(np.abs(np.diff(np.sort(values))).min()) if values.size > 1 else 1.0


def _extent(values: NDArray[np.float64]) -> str:
    return f"{values.size} from {values.min():g} to {values.max():g}"
