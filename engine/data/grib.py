"""GRIB 1 and 2 by ecCodes: messages are listed once, in a process of their own, and values are decoded when they are read.

Every parameter is a variable on each of its levels, so that several types of level and different sets of levels stand side by
side; members, starts and steps are axes, the control a member beside the perturbed forecasts. Nothing is written beside the file
(index files are pickles). What is skipped is listed, never dropped quietly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon
from engine.data._grib_axes import Axes, Variable, axes_of, table_of, valid_time, variables_of
from engine.data._grib_names import UNNAMED, Message, identity, named, picked, pressure, stem
from engine.errors import DatasetError
from engine.safety import kind_of, readable_file

if TYPE_CHECKING:
    import xarray as xr

_NO_LENGTH = frozenset((3, 4, 5, 6, 7))
"""Units of time that are months or longer (code table 4.4)."""
_NO_VALUE = {5: "probabilities", 6: "percentiles", 9: "probabilities", 10: "percentiles"}
"""Product definition templates whose fields are no values of the parameter."""


class Grib:
    """A GRIB file on regular latitude-longitude or Gaussian grids."""

    key = "grib"
    title = "GRIB 1 and 2"
    endings = (".grib", ".grib1", ".grib2", ".grb", ".grb1", ".grb2", ".gb", ".gb2")
    requires = ("eccodes",)
    selects = True
    """Takes `select`: messages by the values of their keys."""

    def sniff(self, path: Path) -> bool:
        """The file begins with GRIB, or with a bulletin's heading before it."""
        return path.is_file() and kind_of(path) == "grib"

    def open(
        self,
        path: Path,
        *,
        select: Mapping[str, str] | None = None,
        variables: Sequence[str] | None = None,
        **_: object,
    ) -> "xr.Dataset":
        """Open lazily.

        `select` picks messages by their keys ({"typeOfLevel": "isobaricInhPa", "level": "500/850"}); `variables` leaves out what
        is called otherwise, where something is called so. Raises DatasetError for files that are damaged or hold no regular grid.
        """
        file = readable_file(path, "dataset")
        what = f"dataset {file.name}"
        state = file.stat()
        messages, grids, notes = _listed(str(file), state.st_size, state.st_mtime_ns)
        notes = list(notes)
        names = named([m for m in messages if not m["unusable"]])
        chosen = picked(messages, select, what) if select else messages
        chosen = _usable(chosen, notes, what)
        chosen = _wanted(chosen, names, variables)
        chosen = _one_grid(chosen, grids, notes)
        found, left = variables_of(chosen, names, file)
        if left and (not found or select or variables):
            remedy = "Select more narrowly (select= in Python, --select on the command line), or remove the double messages."
            raise DatasetError(what, found=left[0], expected="one message for each member and time", remedy=remedy)
        notes += [f"left out: {line}" for line in left]
        axes = axes_of(found, what, notes)
        data = _dataset(found, axes, grids[chosen[0]["md5GridSection"]], file, notes)
        data.attrs = {"reader_notes": tuple(notes)}
        return data


@lru_cache(maxsize=16)
def _listed(path: str, size: int, changed: int) -> tuple[list[Message], dict[str, Any], tuple[str, ...]]:
    """Messages, grids, and what to say of the file as a whole; remembered while the file stays as it is."""
    del size, changed  # the file's state is what the memory is keyed by
    from engine.data._grib_process import list_messages

    file = Path(path)
    said = list_messages(file)
    notes = []
    strange = [(offset, length) for offset, length, something, _ in said["between"] if something]
    if any(ends for _, _, _, ends in said["between"]):
        raise DatasetError(
            f"dataset {file.name}",
            found=f"{strange[0][1]} bytes at byte {strange[0][0]} that end like a message and are none",
            expected="complete messages",
            remedy="Copy or download it again and compare the sizes.",
        )
    if strange:
        notes.append(f"{sum(n for _, n in strange)} bytes at byte {strange[0][0]} and elsewhere belong to no GRIB message; passed over")
    messages, alike = [], _alike(said["grids"])
    for row in said["rows"]:
        message = dict(zip(said["keys"], row, strict=True))
        message["md5GridSection"], message["scanning"] = alike[message["md5GridSection"]]
        message["unusable"] = _why_not(message, said["grids"])
        message["init"] = _start(message)
        message["step"] = None if message["end"] is None else message["end"] / 60
        message["dataTime"] = None if message["hour"] is None else message["hour"] * 100 + (message["minute"] or 0)
        messages.append(message)
    return messages, said["grids"], tuple(notes)


def _alike(grids: Mapping[str, Any]) -> dict[str, tuple[str, list[int]]]:
    """For each grid the first that has its places, and the scanning, with whether its rows run the other way."""
    found: dict[str, tuple[str, list[int]]] = {}
    for name, grid in grids.items():
        found[name] = (name, [*grid.get("scanning", ()), 0])
        for other in [n for n, (first, _) in found.items() if n == first != name and "error" not in grids[n]]:
            turn = next((k for k in (1, -1) if _close(grids[other], grid, k)), None) if "error" not in grid else None
            if turn is not None:
                found[name] = (other, [*grid["scanning"], int(turn < 0)])
                break
    return found


def _close(a: Mapping[str, Any], b: Mapping[str, Any], direction: int) -> bool:
    """Equal up to the rounding of coordinates (edition 1 has thousandths of a degree), `b`'s rows in one direction or the other."""
    for axis, step in (("latitude", direction), ("longitude", 1)):
        ours, theirs = np.asarray(a[axis]), np.asarray(b[axis])[::step]
        if len(ours) != len(theirs):
            return False
        spacing = float(np.abs(np.diff(ours)).min()) if len(ours) > 1 else 1.0
        if np.abs(ours - theirs).max() > min(2e-3, 0.02 * spacing):
            return False
    return True


def _why_not(message: Message, grids: Mapping[str, Any]) -> str:
    """Why a message cannot be used, "" where it can."""
    grid = grids[message["md5GridSection"]]
    if "error" in grid:
        return f"on a grid of type {grid['type']} ({grid['error']})"
    if _start(message) is None:
        return "without a date"
    units = {message["indicatorOfUnitOfTimeRange"] if message["end"] else None, message["indicatorOfUnitForTimeRange"]}
    if message["end"] is None or units & _NO_LENGTH:
        return "with a step in months or years, which have no fixed length"
    if kind := _NO_VALUE.get(message["productDefinitionTemplateNumber"]):
        return f"of {kind}, no values"
    return ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _start(message: Message) -> np.datetime64 | None:
    date = message["dataDate"]
    if not date:
        return None
    text = f"{date // 10000:04d}-{date // 100 % 100:02d}-{date % 100:02d}"
    try:
        clock = np.timedelta64((message["hour"] or 0) * 3600 + (message["minute"] or 0) * 60 + (message["second"] or 0), "s")
        return np.datetime64(text, "s") + clock
    except ValueError:
        return None


def _usable(messages: Sequence[Message], notes: list[str], what: str) -> list[Message]:
    """Those that can be read; the others are listed by reason."""
    reasons = Counter(m["unusable"] for m in messages)
    for reason, count in reasons.items():
        if reason:
            those = list(dict.fromkeys(stem(m) for m in messages if m["unusable"] == reason))
            notes.append(f"skipped by the GRIB reader: {count} message{'s' * (count > 1)} ({_some(those)}) {reason}")
    left = [m for m in messages if not m["unusable"]]
    if not left:
        raise DatasetError(
            what,
            found="no message that can be read" + (f"; {notes[-1]}" if notes else ""),
            expected="fields on a regular latitude-longitude or Gaussian grid",
            remedy="Check it with grib_ls; regrid it (for example with cdo remapbil or grib_interpolate).",
        )
    return left


def _wanted(messages: list[Message], names: Mapping[tuple[Any, ...], str], variables: Sequence[str] | None) -> list[Message]:
    """Messages of the variables that are asked for; all of them where none is called so."""
    if not variables:
        return messages

    def forms(name: str) -> set[str]:
        return {name, (lexicon.canonical(name) or name).replace("geopotential_height", "geopotential")}

    asked = set().union(*(forms(v) for v in variables))
    return [m for m in messages if forms(names[identity(m)]) & asked] or messages


def _one_grid(messages: list[Message], grids: Mapping[str, Any], notes: list[str]) -> list[Message]:
    """The messages on the grid that most of them share; the others are listed."""
    counts = Counter(m["md5GridSection"] for m in messages)
    if len(counts) == 1:
        return messages
    main = counts.most_common(1)[0][0]
    others = list(dict.fromkeys(stem(m) for m in messages if m["md5GridSection"] != main))
    size = f"{len(grids[main]['latitude'])}×{len(grids[main]['longitude'])}"
    notes.append(f"skipped by the GRIB reader: {_some(others)}, on another grid than the most ({size})")
    return [m for m in messages if m["md5GridSection"] == main]


def _dataset(found: Sequence[Variable], axes: Axes, grid: Mapping[str, Any], file: Path, notes: list[str]) -> "xr.Dataset":
    import xarray as xr

    from engine.data._grib_lazy import lazy_field

    fields: dict[str, Any] = {}
    for variable in found:
        notes += variable.notes
        dims, messages, table = table_of(variable, axes, notes)
        first = messages[0]
        attrs: dict[str, Any] = {"long_name": first["name"], "GRIB_typeOfLevel": first["typeOfLevel"], "GRIB_paramId": first["paramId"]}
        units = {m["units"] for m in messages}
        if len(units) == 1 and first["units"] not in UNNAMED:
            attrs["units"] = first["units"]
        if first["cfName"] not in UNNAMED:
            attrs["standard_name"] = first["cfName"]
        if (hpa := pressure(first)) is not None:
            attrs["level"] = hpa
        fields[variable.name] = xr.Variable((*dims, "latitude", "longitude"), lazy_field(file, messages, table, grid), attrs)
    unknown = sorted({v.name for v in found if next(iter(v.cells.values()))["shortName"] in UNNAMED})
    if unknown:
        notes.append(f"parameters that ecCodes' tables do not name are called by their numbers: {_some(unknown)}")
    coords: dict[str, Any] = {
        "latitude": ("latitude", np.asarray(grid["latitude"])),
        "longitude": ("longitude", np.asarray(grid["longitude"])),
    }
    if axes.members:
        coords["number"] = ("number", np.asarray(axes.numbers))
    if axes.valid:
        coords["time"] = ("time", _dates(axes.valid))
    elif axes.starts:
        coords |= _starts_and_steps(axes)
    return xr.Dataset(fields, coords=coords)


def _dates(times: Any) -> np.ndarray:
    """Nanoseconds as usual, seconds where their range (1678 … 2262) is left."""
    seconds = np.asarray(times, "datetime64[s]")
    inside = (seconds > np.datetime64("1678-01-01")).all() and (seconds < np.datetime64("2262-01-01")).all()
    return seconds.astype("datetime64[ns]") if inside else seconds


def _starts_and_steps(axes: Axes) -> dict[str, Any]:
    steps = np.asarray(axes.steps).astype("timedelta64[m]").astype("timedelta64[ns]")
    valid = _dates([[valid_time(start, step) for step in axes.steps] for start in axes.starts])
    several = len(axes.steps) > 1
    return {
        "time": ("time", _dates(axes.starts)),
        "step": ("step", steps, {"standard_name": "forecast_period"}) if several else ((), steps[0], {"standard_name": "forecast_period"}),
        "valid_time": (("time", "step"), valid) if several else ("time", valid[:, 0]),
    }


ENTRIES = (Grib(),)
