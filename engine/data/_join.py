"""Several files into one dataset: along time where they hold the same variables, side by side where they hold different ones."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.data._coordinates import calendar_of, iso, seconds_of
from engine.data._guarded import guarded
from engine.data._readers import recognise
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
    found = {name: calendar_of(data["time"].values) for name, data in parts if "time" in data.dims}
    if policy is not None and policy not in CALENDARS:
        raise DatasetError(
            "calendar", found=repr(policy), expected=" or ".join(CALENDARS), remedy="Correct it in --calendar (calendar= in Python)."
        )
    if len(set(found.values())) <= 1 and policy in (None, *found.values()):
        return parts
    if policy is None:
        listing = "; ".join(f"{calendar} in {name}" for name, calendar in found.items())
        raise DatasetError(
            "calendars",
            found=listing,
            expected="one calendar",
            remedy="Name standard, noleap or 360_day with --calendar (calendar= in Python); dates that it lacks are dropped.",
        )
    result = []
    for name, data in parts:
        if name in found and found[name] != policy:
            before = data.sizes["time"]
            data = data.convert_calendar(policy, align_on="date")  # pyright: ignore[reportArgumentType] -- a user's word; xarray checks it
            changes.append(f"{name}: calendar {found[name]} to {policy}, {before - data.sizes['time']} times dropped")
        result.append((name, data))
    return result


def join(parts: "list[tuple[str, xr.Dataset]]", what: str) -> "xr.Dataset":
    """One dataset of canonical ones: concatenated along time by sets of variables, then merged on equal times."""
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
    joined = [along_time(members, what) for members in groups.values()]
    timed = [d for d in joined if "time" in d.dims]
    for data in timed[1:]:
        if not np.array_equal(seconds_of(data["time"].values), seconds_of(timed[0]["time"].values)):
            raise DatasetError(
                what,
                found=f"{_span(timed[0])}, and {_span(data)}",
                expected="the same times for all variables",
                remedy="Bring files that cover the same times.",
            )
    seen: dict[str, int] = {}
    for data in joined:
        for name in data.data_vars:
            if name in seen:
                raise DatasetError(
                    what,
                    found=f"{name} in two files that hold different sets of variables",
                    expected="each variable in one set of files",
                    remedy="Leave out one of the files, or choose with --read (variables= in Python).",
                )
            seen[str(name)] = 1
    return xr.merge(joined, join="exact", compat="override", combine_attrs="drop_conflicts")


def _span(data: "xr.Dataset") -> str:
    times = data["time"].values
    names = ", ".join(map(str, list(data.data_vars)[:3]))
    return f"{names} at {len(times)} times {iso(times[0])} … {iso(times[-1])}"


def along_time(parts: "list[tuple[str, xr.Dataset]]", what: str) -> "xr.Dataset":
    """Concatenate in order of time; a time in two files is refused."""
    import xarray as xr

    if len(parts) == 1:
        return parts[0][1]
    still = [name for name, data in parts if "time" not in data.dims]
    if still:
        raise DatasetError(
            what,
            found=f"no time in {still[0]}, and the same variables in {len(parts)} files",
            expected="a time dimension to join them along",
            remedy="Leave out one of the files.",
        )
    parts = sorted(parts, key=lambda p: int(seconds_of(p[1]["time"].values)[0]))
    owner: dict[int, str] = {}
    for name, data in parts:
        for i, second in enumerate(seconds_of(data["time"].values)):
            if int(second) in owner:
                raise DatasetError(
                    what,
                    found=f"{iso(data['time'].values[i])} in {owner[int(second)]} and in {name}",
                    expected="each time in one file",
                    remedy="Leave out one of the files, or cut them so that they do not overlap.",
                )
            owner[int(second)] = name
    data = xr.concat(
        [d for _, d in parts],
        "time",
        join="exact",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        combine_attrs="drop_conflicts",
    )
    order = np.argsort(seconds_of(data["time"].values), kind="stable")
    return data if (np.diff(order) == 1).all() else data.isel(time=order)
