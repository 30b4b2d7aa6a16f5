"""Several files into one dataset: along time where they hold the same variables, side by side where they hold different ones."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.data._coordinates import calendar_of, iso, seconds_of
from engine.data._guarded import guarded
from engine.data._readers import recognise
from engine.data._series import joined
from engine.errors import DatasetError
from engine.safety import reading, resolved

if TYPE_CHECKING:
    import xarray as xr


CALENDARS = ("standard", "noleap", "360_day")
"""Calendars that times are converted to where files differ."""


def open_path(path: str | Path, **options: object) -> "tuple[xr.Dataset, str]":
    """The raw dataset of a path by the first reader that recognises its content, and that reader's key.

    `select` picks messages by their keys, where a reader has messages (GRIB); others refuse it.
    """
    place = resolved(path, "dataset")
    what = f"dataset {place.name}"
    with reading(what):
        reader, key = recognise(place, "fields", "dataset")
    if options.get("select") and not getattr(reader, "selects", False):
        raise DatasetError(
            f"dataset {place.name}",
            found=f"a selection of messages for {reader.title}",
            expected="GRIB, whose messages have keys",
            remedy="Leave the selection out (select= in Python, --select on the command line); choose variables by name.",
        )
    with reading(what):
        return guarded(reader.open(place, **options), what), key


def same_grid(parts: "list[tuple[str, xr.Dataset]]") -> "list[tuple[str, xr.Dataset]]":
    """Refuse different grids, naming both files; rounding differences are taken from the first."""
    name, first = parts[0]
    result = [parts[0]]
    for other, data in parts[1:]:
        for axis in ("latitude", "longitude"):
            a, b = first[axis].values, data[axis].values
            if len(a) != len(b) or np.abs(a - b).max() > 1e-3 * max(1e-9, float(np.abs(np.diff(a)).min()) if len(a) > 1 else 1.0):
                raise DatasetError(
                    "grids",
                    found=f"{_grid(data)} in {other}",
                    expected=f"{_grid(first)} as in {name}",
                    remedy="Regrid one of the files; rows and columns are never matched by position.",
                )
        result.append((other, data.assign_coords(latitude=first["latitude"], longitude=first["longitude"])))
    return result


def _grid(data: "xr.Dataset") -> str:
    lat, lon = data["latitude"].values, data["longitude"].values
    return f"{len(lat)}×{len(lon)} ({lat[0]:.4g} … {lat[-1]:.4g}, {lon[0]:.4g} … {lon[-1]:.4g})"


def same_calendar(parts: "list[tuple[str, xr.Dataset]]", policy: str | None, changes: list[str]) -> "list[tuple[str, xr.Dataset]]":
    """Refuse to join calendars unless `policy` names the one to convert to; conversion drops dates that it lacks."""
    dims = [next((d for d in ("time", "init_time") if d in data.dims and data[d].dtype.kind in "MO"), None) for _, data in parts]
    found = [None if d is None else calendar_of(data[d].values) for d, (_, data) in zip(dims, parts, strict=True)]
    if policy is not None and policy not in CALENDARS:
        raise DatasetError(
            "calendar", found=repr(policy), expected=" or ".join(CALENDARS), remedy="Correct it in --calendar (calendar= in Python)."
        )
    if len(set(found) - {None}) <= 1 and policy in (None, *found):
        return parts
    if policy is None:
        told = {c: name for c, (name, _) in reversed(list(zip(found, parts, strict=True))) if c is not None}
        raise DatasetError(
            "calendars",
            found="; ".join(f"{calendar} in {name}" for calendar, name in told.items()),
            expected="one calendar",
            remedy="Name standard, noleap or 360_day with --calendar (calendar= in Python); dates that it lacks are dropped.",
        )
    result = []
    for (name, data), dim, own in zip(parts, dims, found, strict=True):
        if dim is not None and own != policy:
            before = data.sizes[dim]
            aside = data.drop_vars([c for c in ("init_time", "lead_time") if c in data.coords and c not in data.dims])
            data = aside.convert_calendar(policy, dim=dim, align_on="date")  # pyright: ignore[reportArgumentType] -- one of CALENDARS
            changes.append(f"{name}: calendar {own} to {policy}, {before - data.sizes[dim]} times dropped")
        result.append((name, data))
    return result


def join(parts: "list[tuple[str, xr.Dataset]]", what: str, changes: list[str], *, members_by_file: bool = False) -> "xr.Dataset":
    """One dataset of canonical ones: joined along what differs by sets of variables, then merged on equal times."""
    import xarray as xr

    groups: dict[frozenset[str], list[tuple[str, xr.Dataset]]] = {}
    for name, data in parts:
        groups.setdefault(frozenset(map(str, data.data_vars)), []).append((name, data))
    families = [{n.replace("geopotential_height", "geopotential") for n in names} for names in groups]
    if any(a & b for i, a in enumerate(families) for b in families[:i]) and len(set().union(*groups)) > len(set().union(*families)):
        raise DatasetError(
            what,
            found="a mix: geopotential in some files, geopotential height in others (" + ", ".join(name for name, _ in parts[:6]) + ")",
            expected="one of the two throughout",
            remedy="Convert the files to one quantity; parts are not guessed.",
        )
    whole = [joined(members, what, changes, members_by_file=members_by_file) for members in groups.values()]
    timed = [d for d in whole if "time" in d.dims or "init_time" in d.dims]
    for data in timed[1:]:
        if any(not np.array_equal(_seconds(data, a), _seconds(timed[0], a)) for a in ("time", "init_time", "lead_time", "member")):
            raise DatasetError(
                what,
                found=f"{_span(timed[0])}, and {_span(data)}",
                expected="the same times and members for all variables",
                remedy="Bring files that cover the same times.",
            )
    seen: dict[str, int] = {}
    for data in whole:
        for name in data.data_vars:
            if name in seen:
                raise DatasetError(
                    what,
                    found=f"{name} in two files that hold different sets of variables",
                    expected="each variable in one set of files",
                    remedy="Leave out one of the files, or choose with --read (variables= in Python).",
                )
            seen[str(name)] = 1
    return xr.merge(whole, join="exact", compat="override", combine_attrs="drop_conflicts")


def _seconds(data: "xr.Dataset", axis: str) -> np.ndarray:
    """An axis's values in a form that compares; empty where it is not there."""
    values = data[axis].values if axis in data.coords and axis in data.dims else np.zeros(0)
    return seconds_of(values) if values.dtype.kind in "MO" and axis != "member" and len(values) else values


def _span(data: "xr.Dataset") -> str:
    names = ", ".join(map(str, list(data.data_vars)[:3]))
    times = data["time" if "time" in data.dims else "init_time"].values
    return f"{names} at {len(times)} times {iso(times[0])} … {iso(times[-1])}"
