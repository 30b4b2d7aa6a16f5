"""Initial, lead and valid times of a file, brought to one form; none is dropped, and what is assumed is said.

The form: fields on `time`, which are valid times (beside it, where known, `init_time` and `lead_time` along it); or, where
each start has the same lead times, on `init_time` × `lead_time`, whose sum is the valid time.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon
from engine.data._coordinates import axis_of, iso
from engine.data._time_roles import Role, kind_of_values, lead_seconds, role_of
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

_SPACE = ("member", "latitude", "longitude", "level")
_AGREE = 60
"""Seconds within which a valid time is the sum of initial and lead time: float32 hours and six decimals of a day are closer."""
_SAY = "rename it to init_time or to valid_time with --rename (rename= in Python)"


@dataclass
class _Times:
    """What was found: for each role the coordinate's name in the file and its values."""

    init: "xr.DataArray | None" = None
    lead: "xr.DataArray | None" = None
    valid: "xr.DataArray | None" = None


def settle_times(data: "xr.Dataset", what: str, changes: list[str]) -> "xr.Dataset":
    """The dataset with its times in the one form, sorted out by what they say together.

    `time` beside lead times and nothing else is the initial time (as forecasts of WeatherBench have it), and that is said.
    Raises DatasetError where initial, lead and valid times contradict one another, or could be read in two ways.
    """
    data, found = _found(data, what)
    bare = [str(d) for d in data.dims if d not in data.coords and role_of(str(d), None, what)]
    if not found:
        return _bare_time(data, bare)
    times = _resolved(found, what, changes)
    mine = tuple(dict.fromkeys(str(d) for a in vars(times).values() if a is not None for d in a.dims))
    strange = [d for d in mine if d in _SPACE]
    if strange or len(mine) > 2:
        listed = ", ".join(f"{a.name} on {', '.join(map(str, a.dims)) or 'nothing'}" for a in found.values())
        raise DatasetError(
            what,
            found=f"times that vary over {', '.join(mine)}: {listed}",
            expected="initial and lead times, or valid times",
            remedy="Select along the other dimensions in the file first.",
        )
    for dim in bare:
        if dim not in mine:
            raise DatasetError(
                what,
                found=f"a dimension {dim} without values",
                expected="times for each field",
                remedy=f"Write the coordinate of {dim} into the file.",
            )
    _complete(times, what)
    return _shaped(data.drop_vars([str(a.name) for a in found.values()], errors="ignore"), times, mine, what)


def _found(data: "xr.Dataset", what: str) -> "tuple[xr.Dataset, dict[str, xr.DataArray]]":
    """Coordinates that are times, by name: those of the file, and variables off the grid that are no coordinates only by neglect."""
    promoted = [
        str(n)
        for n, v in data.data_vars.items()
        if v.ndim <= 2 and not set(map(str, v.dims)) & set(_SPACE) and role_of(str(n), v, what) and kind_of_values(v) in ("date", "span")
    ]
    data = data.set_coords(promoted)
    found: dict[str, xr.DataArray] = {}
    for name in data.coords:
        role = None if axis_of(str(name), data[name].attrs) in _SPACE else role_of(str(name), data[name], what)
        beside = data[name].ndim > 0 and data[name].dims != (name,)
        if role is None or (role != "lead" and beside and kind_of_values(data[name]) in ("number", "text")):
            continue  # such as the day of the year along time
        found[str(name)] = _gregorian(_decoded(data[name].reset_coords(drop=True), what))
    return data, found


def _decoded(coordinate: "xr.DataArray", what: str) -> "xr.DataArray":
    """Dates that are written as text, as dates."""
    if kind_of_values(coordinate) != "text":
        return coordinate
    texts = [str(v).strip().removesuffix("Z") for v in np.ravel(coordinate.values)]
    try:
        if not all("-" in text for text in texts):
            raise ValueError("no date")
        dates = np.asarray(texts, "datetime64[ns]").reshape(coordinate.shape)
    except ValueError as error:
        raise DatasetError(
            what,
            found=f"{coordinate.name} of type {coordinate.dtype} ({', '.join(map(str, np.ravel(coordinate.values)[:3]))})",
            expected="times with units such as 'hours since 2000-01-01' and a calendar",
            remedy="Give the time variable CF units.",
        ) from error
    return coordinate.copy(data=dates)


def _gregorian(coordinate: "xr.DataArray") -> "xr.DataArray":
    """Dates of the standard calendar after its change in 1582, and proleptic ones, as datetime64: two names of one calendar."""
    values = coordinate.values
    if coordinate.dtype != object or values.size == 0 or not hasattr(values.ravel()[0], "calendar"):
        return coordinate
    calendar, first = values.ravel()[0].calendar, values.min()
    gregorian = calendar == "proleptic_gregorian" or (calendar == "standard" and (first.year, first.month, first.day) >= (1582, 10, 15))
    if not gregorian:
        return coordinate
    dates = np.asarray([np.datetime64(v.isoformat(), "us") for v in values.ravel()]).reshape(values.shape)
    return coordinate.copy(data=dates)


def _bare_time(data: "xr.Dataset", bare: list[str]) -> "xr.Dataset":
    """A time dimension without values under the engine's name: what comes next refuses it, or matches by order."""
    only = bare[0] if len(bare) == 1 and role_of(bare[0], None, "") != "lead" else None
    return data.rename_dims({only: "time"}) if only not in (None, "time") and "time" not in data.dims else data


def _resolved(found: "dict[str, xr.DataArray]", what: str, changes: list[str]) -> _Times:
    by_role: dict[Role, list[xr.DataArray]] = {}
    for name, values in found.items():
        role = role_of(name, values, what)
        assert role is not None
        if role == "lead":
            values = values.copy(data=lead_seconds(name, values, what, changes).astype("timedelta64[s]"))
        by_role.setdefault(role, []).append(values)
    init, lead, valid, time = (_one(by_role.get(role, []), what) for role in ("init", "lead", "valid", "time"))
    if time is None:
        return _Times(init, lead, valid)
    if init is not None and (lead is not None or valid is not None) and _agree(init, time):
        return _Times(init, lead, valid)  # the start twice
    if init is not None:
        return _Times(init, lead, time if valid is None else _one([valid, time], what))
    if valid is None:
        return _beside_leads(time, lead, what, changes)
    if _agree(valid, time):
        return _Times(None, lead, valid)
    changes.append(f"{time.name} replaced by the valid time {valid.name}, from which it differed: it is the initial time (forecast steps)")
    return _Times(time, lead, valid)


def _one(found: "list[xr.DataArray]", what: str) -> "xr.DataArray | None":
    """The one of a role: of several that say the same the one that is a dimension."""
    if not found:
        return None
    first, *others = sorted(found, key=lambda a: (a.dims != (a.name,), -a.ndim))
    for other in others:
        if not _agree(first, other):
            raise DatasetError(
                what,
                found=f"{first.name} ({_span(first)}) and {other.name} ({_span(other)}), which differ",
                expected="one coordinate of that meaning",
                remedy=f"Drop one of the two, or {_SAY}.",
            )
    return first


def _agree(a: "xr.DataArray", b: "xr.DataArray") -> bool:
    """Whether two coordinates hold the same times wherever both are defined."""
    import xarray as xr

    one, two = xr.broadcast(a.reset_coords(drop=True).drop_vars(a.dims, errors="ignore"), b.drop_vars(b.dims, errors="ignore"))
    if one.dtype != object and two.dtype != object and one.dtype.kind != two.dtype.kind:
        return False
    try:
        apart = np.abs(_seconds(one.values - two.values))
    except TypeError:  # two calendars
        return False
    return bool((apart <= _AGREE).all())


def _seconds(spans: np.ndarray) -> np.ndarray:
    spans = np.asarray(spans)
    if np.issubdtype(spans.dtype, np.timedelta64):
        return spans / np.timedelta64(1, "s")
    if spans.dtype == object:
        return np.reshape([s.total_seconds() for s in spans.ravel()], spans.shape)
    return spans.astype(np.float64)


def _beside_leads(time: "xr.DataArray", lead: "xr.DataArray | None", what: str, changes: list[str]) -> _Times:
    """`time` with lead times and no other: the start, unless the two rise together along one dimension, or CF's names say otherwise."""
    if lead is None:
        return _Times(valid=time)
    along = bool(time.dims) and time.dims == lead.dims and time.size > 1
    if along:
        starts = _seconds((time - lead).values - (time - lead).values[:1])
        if (np.abs(starts) <= _AGREE).all():
            changes.append(f"{time.name} rises with {lead.name}: valid times of one start")
            return _Times(lead=lead, valid=time)
        changes.append(f"{time.name} has lead times beside it that vary, one to each: taken for valid times")
        return _Times(lead=lead, valid=time)
    standard = str(time.attrs.get("standard_name", "")).lower()
    if standard == "time" and kind_of_values(time) == "date":
        if str(lead.attrs.get("standard_name", "")).lower() == "forecast_period" and lead.size == 1:
            changes.append(f"{time.name} is the valid time, by the standard names of {time.name} and {lead.name}")
            return _Times(lead=lead, valid=time)
        raise DatasetError(
            what,
            found=f"{time.name} with standard_name time (when a field is valid) beside lead times {lead.name} ({_span(lead)})"
            " and no initial time",
            expected="to be told whether it is the initial or the valid time",
            remedy=_SAY[0].upper() + _SAY[1:] + ".",
        )
    changes.append(f"{time.name} is taken for the initial time, since {lead.name} ({_span(lead)}) stands beside it: valid at their sum")
    return _Times(init=time, lead=lead)


def _complete(times: _Times, what: str) -> None:
    """The third of the three times from two; where all are there, that they agree."""
    for role, values in vars(times).items():
        if values is not None and values.dtype.kind in "mM" and np.isnat(values.values).any():
            if role == "valid" and times.init is not None and times.lead is not None:
                times.valid = None  # where fields are absent, tools leave the valid time out
                break
            place = int(np.argmax(np.isnat(values.values).ravel()))
            raise DatasetError(what, found=f"a missing time in {values.name} at position {place}", expected="a time for each field",
                               remedy="Repair the coordinate in the file.")  # fmt: skip
    init, lead, valid = times.init, times.lead, times.valid
    numbers = [a for a in (init, valid) if a is not None and kind_of_values(a) == "number"]
    if numbers and (lead is not None or (init is not None and valid is not None)):
        raise DatasetError(
            what,
            found=f"{numbers[0].name} as plain numbers beside other times",
            expected="times with units such as 'hours since 2000-01-01' and a calendar",
            remedy="Give the time variable CF units.",
        )
    if init is not None and lead is not None:
        total = plus(init, lead)
        if valid is not None and not _agree(valid, total):
            raise DatasetError(
                what,
                found=f"{valid.name} ({_span(valid)}) that is not {init.name} ({_span(init)}) plus {lead.name} ({_span(lead)})",
                expected="valid time = initial time + lead time",
                remedy=f"Mend one of the three in the file; where the names mislead, {_SAY}.",
            )
        times.valid = total
    elif init is not None and valid is not None:
        spans = _seconds((valid - init).values)
        times.lead = (valid - init).copy(data=np.round(spans).astype(np.int64).astype("timedelta64[s]"))
    elif lead is not None and valid is not None:
        times.init = plus(valid, -lead)


def plus(times: "xr.DataArray", leads: "xr.DataArray") -> "xr.DataArray":
    """Times moved by lead times (timedelta64), in any calendar, broadcast by dimension."""
    times, leads = (a.drop_vars(a.dims, errors="ignore") for a in (times, leads))
    if times.dtype != object:
        return (times + leads).rename(times.name)
    import xarray as xr

    when, spans = xr.broadcast(times, leads)
    moved = [t + timedelta(seconds=float(s)) for t, s in zip(when.values.ravel(), _seconds(spans.values).ravel(), strict=True)]
    values = np.empty(len(moved), object)
    values[:] = moved
    return when.copy(data=values.reshape(when.shape))


def _shaped(data: "xr.Dataset", times: _Times, mine: tuple[str, ...], what: str) -> "xr.Dataset":
    """Dimensions and coordinates in the one form."""
    init, lead, valid = times.init, times.lead, times.valid
    if lead is None and valid is None and init is None:
        raise DatasetError(what, found="no times", expected="at least one time", remedy="Check the file.")
    if lead is not None and valid is None:
        raise DatasetError(
            what,
            found=f"lead times {lead.name} ({_span(lead)}) without an initial or valid time",
            expected="the time at which each forecast began",
            remedy="Write the initial time (forecast_reference_time) into the file, as a coordinate or a dimension.",
        )
    data = data.drop_vars([c for c in data.coords if c in mine])
    if valid is not None and init is not None and lead is not None and len(mine) == 1 and data.sizes[mine[0]] == 1:
        init, lead, valid = (a.isel({d: 0 for d in a.dims}) for a in (init, lead, valid))
        data, mine = data.isel({mine[0]: 0}), ()
    if valid is None or init is None or lead is None:  # one kind of time
        only = valid if valid is not None else init
        assert only is not None
        name = "time" if valid is not None else "init_time"
        if only.ndim > 1:
            raise DatasetError(what, found=f"{only.name} on {', '.join(map(str, only.dims))}", expected="a time for each field along one"
                               " dimension", remedy="Write initial and lead times beside the valid ones.")  # fmt: skip
        return _along(data, str(only.dims[0]) if only.ndim else None, name, only)
    if len(mine) == 2 or init.dims != lead.dims or not mine:
        start, ahead = _factors(init, lead, valid, mine, what)
        if start is not None:
            return _along(_along(data, start[0], "init_time", start[1]), ahead[0], "lead_time", ahead[1])
        moved = _along(_along(data, valid.dims[0], "time", valid), ahead[0], "lead_time", ahead[1])
        ordered = init.transpose(*valid.dims, ahead[0])
        return moved.assign_coords(init_time=(("time", "lead_time"), ordered.values))
    data = _along(data, mine[0], "time", valid)
    return data.assign_coords(init_time=("time", init.values), lead_time=("time", lead.values))


_Axis = "tuple[str | None, xr.DataArray]"


def _factors(init: "xr.DataArray", lead: "xr.DataArray", valid: "xr.DataArray", mine: tuple[str, ...], what: str) -> Any:
    """Initial and lead times each with the dimension along which they stand (None: a scalar)."""
    if lead.ndim == 2:  # derived from a valid time of two dimensions: the same for every start?
        along = next((d for d in lead.dims if d not in init.dims), lead.dims[-1])
        first = lead.isel({d: 0 for d in lead.dims if d != along})
        if _agree(lead, first):
            lead = first
    if lead.ndim == 2 or init.ndim == 2:
        ahead = str(lead.dims[0]) if lead.ndim == 1 else None
        if ahead and valid.ndim == 1 and valid.dims != lead.dims:
            return None, (ahead, lead)
        raise DatasetError(
            what,
            found=f"lead times that differ from start to start ({init.name} on {', '.join(map(str, init.dims))},"
            f" valid from {_span(valid)})",
            expected="the same lead times for every start",
            remedy="Cut the file into one for each start.",
        )
    return (str(init.dims[0]) if init.ndim else None, init), (str(lead.dims[0]) if lead.ndim else None, lead)


def _along(data: "xr.Dataset", dim: Any, name: str, values: "xr.DataArray") -> "xr.Dataset":
    """A dimension under its final name with its values; one of size 1 for a scalar, on every field that is no constant."""
    attrs = {"file_name": str(values.name)} | ({"precision_seconds": p} if (p := _precision(values)) else {})
    if dim is None:
        moving = [n for n in data.data_vars if not _constant(str(n)) and data[n].ndim]
        grown = {n: data[n].expand_dims({name: 1}) for n in moving}
        data = data.assign(grown)
        return data.assign_coords({name: (name, np.atleast_1d(values.values), attrs)}) if moving else data
    if dim != name:
        if name in data.dims:
            raise DatasetError(f"dimension {name}", found=f"{name} beside {dim}, which is the same", expected="one of them",
                               remedy="Select along the other in the file first.")  # fmt: skip
        data = data.drop_vars([v for v in (name,) if v in data.variables]).rename_dims({dim: name})
    return data.assign_coords({name: (name, values.values, attrs)})


def _constant(name: str) -> bool:
    """Whether a variable has no time by its nature: a mask, heights of the ground."""
    known = lexicon.identify(name)
    return known is not None and known[0].stem in ("land_sea_mask", "orography", "lattitude")


def _precision(values: "xr.DataArray") -> float | None:
    """Half a unit in the last place of times that the file holds in float32, in seconds; None for exact ones."""
    units, dtype = str(values.encoding.get("units", "")), values.encoding.get("dtype")
    if dtype is None or np.dtype(dtype) != np.float32 or " since " not in units or kind_of_values(values) != "date":
        return None
    import cftime

    unit = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}.get(units.strip().lower()[:1])
    if unit is None:
        return None
    start = cftime.num2date(0, units, "standard")
    last = np.max(values.values)
    years = (last.year if values.dtype == object else int(str(last.astype("datetime64[Y]")))) - start.year
    return float(np.spacing(np.float32(max(1, abs(years) + 1) * 365.25 * 86400 / unit))) / 2 * unit


def _span(values: "xr.DataArray") -> str:
    """A time, or the first and last of several, for people."""
    flat = values.values.ravel()
    if values.dtype.kind == "m":
        words = [f"{s / 3600:g} h" for s in (_seconds(flat).min(), _seconds(flat).max())]
    elif values.dtype.kind in "OM":
        words = [iso(flat.min()), iso(flat.max())]
    else:
        words = [f"{flat.min():g}", f"{flat.max():g}"]
    return words[0] if words[0] == words[1] else f"{words[0]} … {words[1]}"
