"""Axes: which dimension is which, latitude north to south, longitude 0 … 360 ascending, time ascending without doubles.

Everything is decided by coordinate values, never by position; what cannot be is refused.
"""

from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

AXES = {
    "latitude": ("latitude", "lat", "y_lat", "nav_lat", "xlat"),
    "longitude": ("longitude", "lon", "long", "nav_lon", "xlong"),
    "level": ("level", "lev", "plev", "pressure_level", "pressure", "isobaricinhpa", "isobaricinpa", "isobaric", "air_pressure"),
    "member": ("member", "number", "ensemble", "ens", "ensemble_member", "realization", "realisation", "sample"),
}
_STANDARD = {
    "latitude": "latitude",
    "longitude": "longitude",
    "air_pressure": "level",
    "realization": "member",
}


def axis_of(name: str, attrs: dict) -> str | None:
    """The axis that a coordinate is, by its standard name, its name or its units."""
    standard = str(attrs.get("standard_name", "")).lower()
    if standard in _STANDARD:
        return _STANDARD[standard]
    low = name.lower()
    for axis, names in AXES.items():
        if low in names:
            return axis
    units = str(attrs.get("units", "")).lower()
    return {"degrees_north": "latitude", "degree_north": "latitude", "degrees_east": "longitude", "degree_east": "longitude"}.get(units)


def rename_axes(data: "xr.Dataset", what: str, changes: list[str]) -> "xr.Dataset":
    """Dimensions under the engine's names; curvilinear and unstructured grids are refused."""
    for name in [*data.coords, *data.data_vars]:
        axis = (
            axis_of(str(name), data[name].attrs)
            if name in data.coords or str(name).lower() in (*AXES["latitude"], *AXES["longitude"])
            else None
        )
        if axis in ("latitude", "longitude") and (data[name].ndim == 2 or (data[name].ndim == 1 and data[name].dims[0] != name)):
            kind = "a curvilinear grid" if data[name].ndim == 2 else "an unstructured or reduced grid"
            raise DatasetError(
                what,
                found=f"{name} with dimensions {data[name].dims}: {kind}",
                expected="latitude and longitude as one-dimensional axes",
                remedy="Regrid to a regular or Gaussian latitude-longitude grid.",
            )
    names: dict[str, str] = {}
    for dim in data.dims:
        attrs = data[dim].attrs if dim in data.coords else {}
        axis = axis_of(str(dim), attrs)
        if axis is None or axis in names.values() or (axis != dim and axis in data.dims):
            continue
        names[str(dim)] = axis
    clash = [new for old, new in names.items() if new != old and new in data.variables]
    data = data.drop_vars(clash).rename({old: new for old, new in names.items() if new != old})
    said = [f"{old} → {new}" for old, new in names.items() if new != old]
    if said:
        changes.append("dimensions renamed: " + ", ".join(said))
    for axis in ("latitude", "longitude"):
        if axis not in data.dims:
            raise DatasetError(
                what,
                found=f"dimensions {', '.join(map(str, data.dims)) or 'none'}",
                expected=f"a {axis} dimension",
                remedy="Name the dimensions latitude and longitude (or lat and lon), with coordinates.",
            )
        if axis not in data.coords:
            raise DatasetError(
                what,
                found=f"a dimension {axis} without coordinate values",
                expected=f"a coordinate variable {axis} in degrees",
                remedy="Write the coordinate into the file; positions are not taken for degrees.",
            )
    return data


def _values(data: "xr.Dataset", axis: str, what: str) -> np.ndarray:
    values = np.asarray(data[axis].values, np.float64)
    if not np.isfinite(values).all():
        raise DatasetError(
            what,
            found=f"{axis} without a value at position {int(np.argmax(~np.isfinite(values)))}",
            expected="a number for each row and column",
            remedy="Repair the coordinate in the file.",
        )
    return values


def orient(data: "xr.Dataset", what: str, changes: list[str]) -> "xr.Dataset":
    """Latitude north to south, longitude 0 … 360 ascending, a repeated column dropped."""
    latitude = _values(data, "latitude", what)
    steps = np.diff(latitude)
    if len(latitude) > 1 and not ((steps > 0).all() or (steps < 0).all()):
        raise DatasetError(
            what,
            found=f"latitudes that turn or repeat at position {_turn(steps)}",
            expected="latitudes that rise or fall throughout",
            remedy="Sort the rows in the file, or remove the double ones.",
        )
    if np.abs(latitude).max() > 90.001:
        raise DatasetError(
            what,
            found=f"latitude {latitude[np.argmax(np.abs(latitude))]:g}",
            expected="−90 … 90",
            remedy="Check whether latitude and longitude are swapped.",
        )
    if len(latitude) > 1 and steps[0] > 0:
        data = data.isel(latitude=slice(None, None, -1))
        changes.append("latitude turned: it ran south to north")

    longitude = _values(data, "longitude", what)
    steps = np.diff(longitude)
    spacing = float(np.median(np.abs(steps))) if len(steps) else 1.0
    if len(steps) and (steps <= 0).sum() > 1:
        raise DatasetError(
            what,
            found=f"longitudes that fall or repeat at position {_turn(-steps)}",
            expected="longitudes that rise from west to east",
            remedy="Sort the columns by longitude in the file.",
        )
    if (longitude < -361).any() or (longitude > 721).any():
        raise DatasetError(
            what, found=f"longitudes {longitude.min():g} … {longitude.max():g}", expected="degrees east", remedy="Check the coordinate."
        )
    wrapped = np.mod(longitude, 360)
    wrapped[wrapped > 360 - 1e-4 * spacing] = 0.0
    if len(wrapped) > 1 and abs(longitude[-1] - longitude[0] - 360) < 1e-3 * spacing:
        data, wrapped, longitude = data.isel(longitude=slice(None, -1)), wrapped[:-1], longitude[:-1]
        changes.append(f"last column dropped: it repeats longitude {longitude[0]:g}")
    shift = int(np.argmin(wrapped))
    rolled = np.roll(wrapped, -shift)
    if len(rolled) > 1 and not (np.diff(rolled) > 1e-3 * spacing).all():
        raise DatasetError(
            what,
            found=f"longitudes {longitude[0]:g} … {longitude[-1]:g} that meet twice at {rolled[_turn(np.diff(rolled))]:g}",
            expected="each meridian once, west to east",
            remedy="Sort the columns by longitude, and remove double ones.",
        )
    if shift:
        data = data.isel(longitude=np.roll(np.arange(len(wrapped)), -shift))
    if shift or np.abs(wrapped - longitude).max() > 1e-6:
        changes.append(f"longitude taken to 0 … 360 and sorted: it ran {longitude[0]:g} … {longitude[-1]:g}")
    # float32 degrees differ in the seventh digit between files of one grid
    return data.assign_coords(
        longitude=("longitude", rolled, {"units": "degrees_east"}),
        latitude=("latitude", np.asarray(data["latitude"].values, np.float64), {"units": "degrees_north"}),
    )


def _turn(steps: np.ndarray) -> int:
    positive = (steps > 0).sum() >= (steps < 0).sum()
    return int(np.argmax(steps <= 0 if positive else steps >= 0)) + 1


def calendar_of(times: np.ndarray) -> str:
    """`standard` for datetime64, else cftime's name of the calendar."""
    return "standard" if np.issubdtype(times.dtype, np.datetime64) else str(times[0].calendar)


def seconds_of(times: np.ndarray) -> np.ndarray:
    """Whole seconds since 0001-01-01 in the times' own calendar, int64: exact, and comparable within a calendar."""
    if np.issubdtype(times.dtype, np.datetime64):
        return (times.astype("datetime64[s]") - np.datetime64("0001-01-01", "s")).astype(np.int64)
    import cftime

    return np.asarray(cftime.date2num(times, "seconds since 0001-01-01", calendar=times[0].calendar), np.int64)


def iso(time: object) -> str:
    """Minutes resolution, any calendar: `0021-02-30T06:00`."""
    if isinstance(time, np.datetime64):
        return str(np.datetime_as_string(time, unit="m"))
    return time.isoformat()[:16]  # type: ignore[attr-defined]


def order_times(data: "xr.Dataset", what: str, changes: list[str], *, numbered: bool = False) -> "xr.Dataset":
    """Times decoded, ascending, without doubles. `numbered` also takes plain numbers, which can be matched but not dated."""
    for axis in ("time", "init_time", "lead_time"):
        if axis in data.dims:
            data = _ordered(data, axis, what, changes, numbered)
    return data


def _ordered(data: "xr.Dataset", axis: str, what: str, changes: list[str], numbered: bool) -> "xr.Dataset":
    if axis not in data.coords:
        raise DatasetError(
            what,
            found=f"a {axis.replace('_', ' ')} dimension without values",
            expected="a time coordinate",
            remedy="Write the times into the file.",
        )
    times = data[axis].values
    if len(times) == 0:
        raise DatasetError(what, found="no times", expected="at least one time", remedy="Check the file.")
    plain = numbered and axis == "time" and np.issubdtype(times.dtype, np.number)
    if plain:
        changes.append("times are plain numbers without units: they are matched by value, and have no dates")
    elif times.dtype.kind not in "mM" and not (times.dtype == object and hasattr(times[0], "calendar")):
        raise DatasetError(
            what,
            found=f"times of type {times.dtype} ({', '.join(map(str, times[:3]))})",
            expected="times with units such as 'hours since 2000-01-01' and a calendar",
            remedy="Give the time variable CF units.",
        )
    if times.dtype.kind in "mM" and np.isnat(times).any():
        raise DatasetError(
            what,
            found=f"a missing time at position {int(np.argmax(np.isnat(times)))}",
            expected="a time for each field",
            remedy="Repair the coordinate in the file.",
        )
    seconds = times if plain or times.dtype.kind == "m" else seconds_of(times)
    if (np.diff(seconds).astype(np.int64 if not plain else times.dtype) <= 0).any():
        order = np.argsort(seconds, kind="stable")
        double = np.flatnonzero(np.diff(seconds[order]).astype(np.float64) == 0)
        if len(double):
            first = times[order[double[0]]]
            leads = (
                "; it holds several lead times, of which --lead-time chooses one" if axis == "time" and "lead_time" in data.coords else ""
            )
            raise DatasetError(
                what,
                found=f"{len(double)} times twice, the first {first if plain or axis == 'lead_time' else iso(first)}{leads}",
                expected="each time once",
                remedy="Remove the double times: which of two fields is right cannot be told from here.",
            )
        data = data.isel({axis: order})
        changes.append(f"{'times' if axis == 'time' else axis.replace('_', ' ') + 's'} sorted: they were not in order")
    return data
