"""Vertical axes: pressures in hPa are told from heights, depths, potential temperatures, sigma and model levels.

An axis is a pressure by its units, its standard name or its name. A bare number under a name like `level` is taken for one
where its values can be pressures and do not merely count, and that is said; nothing else ever is.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from engine import units
from engine.data._coordinates import axis_of
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

_HIGHEST = 1100.0
_MODEL = ("sigma", "hybrid", "model_level", "eta", "layer", "generalvertical", "soil", "terrain_following", "ln_pressure")
_HEIGHTS = "heights or depths"
_PRESSURES = ("plev", "pres", "isobar", "mbar", "hpa")


def levels(field: "xr.DataArray", what: str, changes: list[str]) -> "list[tuple[float | None, xr.DataArray]] | str":
    """A field by pressure level in hPa (None: it has no level); or what its vertical axis is, where it is no pressure.

    Raises DatasetError for pressures that cannot be.
    """
    if "level" not in field.dims:
        scalar = next(
            (c for c in field.coords if c not in field.dims and field[c].ndim == 0 and axis_of(str(c), field[c].attrs) == "level"), None
        )
        if scalar is None or not np.issubdtype(field[scalar].dtype, np.number):
            return [(None, field)]
        found = pressures(str(scalar), np.atleast_1d(field[scalar].values), dict(field[scalar].attrs), what, changes)
        return [(None if isinstance(found, str) else found[0], field)]
    if "level" not in field.coords:
        raise DatasetError(
            what,
            found=f"{field.name} with a level dimension without values",
            expected="pressures in hPa",
            remedy="Write the level coordinate into the file.",
        )
    axis = field["level"]
    found = pressures(str(axis.attrs.get("file_name", "level")), axis.values, dict(axis.attrs), what, changes)
    if isinstance(found, str):
        return [(None, field.isel(level=0))] if field.sizes["level"] == 1 and found.startswith(_HEIGHTS) else found
    return [(value, field.isel(level=i)) for i, value in enumerate(found)]


def pressures(name: str, values: np.ndarray, attrs: dict[str, Any], what: str, changes: list[str]) -> list[float] | str:
    """The values of an axis in hPa; or in words what the axis is, where it is no pressure."""
    label = attrs.get("units")
    text = " ".join(str(attrs.get(a, "")) for a in ("standard_name", "long_name", "GRIB_typeOfLevel", "axis_type")).lower()
    if not np.issubdtype(values.dtype, np.number):
        return f"levels {', '.join(map(str, values[:3]))}"
    numbers = np.asarray(values, np.float64)
    ends = f"{numbers.min():g} … {numbers.max():g}" if numbers.size > 1 else f"{numbers[0]:g}"
    if any(word in text.replace(" ", "_") for word in _MODEL):
        return f"model levels ({(str(attrs.get('standard_name', '')) or text).strip()})"
    how = None if units.is_bare(label) or units.is_one(label) else units.affine(label, "hPa")
    if how is not None:
        return _checked([float(how[0]) * float(v) for v in numbers], numbers, str(label), what)
    if not units.is_bare(label) and not units.is_one(label):
        if units.known(label):
            kind = {"m": _HEIGHTS, "K": "potential temperatures"}.get(
                next((u for u in ("m", "K") if units.affine(label, u) is not None), ""), "levels"
            )
            return f"{kind} {ends} {label}"
        return f"levels {ends} in {str(label)!r}, which is no unit of pressure"
    named = "pressure" in text or any(word in name.lower() for word in _PRESSURES) or "pressure" in name.lower()
    if not named and numbers.size > 1 and np.array_equal(numbers, np.arange(numbers.size) + numbers[0]) and numbers[0] in (0, 1):
        return f"levels numbered {ends} without units"
    if not named and numbers.size > 1 and numbers.max() <= 1.0:
        return f"levels {ends} without units, as of sigma"
    pascals = bool(numbers.max() > _HIGHEST)
    found = _checked([float(v) / 100 if pascals else float(v) for v in numbers], numbers, "", what)
    said = f"levels {ends} without units taken as {'Pa' if pascals else 'hPa'}"
    if said not in changes:
        changes.append(said)
    return found


def height_of(field: "xr.DataArray") -> dict[str, Any]:
    """The one height or depth that a field is of, where a coordinate without a dimension says so: `{"height", "height_units"}`."""
    for name, coordinate in field.coords.items():
        label = coordinate.attrs.get("units")
        if (
            coordinate.ndim
            or coordinate.dtype.kind not in "iuf"
            or units.is_bare(label)
            or axis_of(str(name), coordinate.attrs) not in (None, "level")
        ):
            continue
        if units.affine(label, "m") is not None:
            return {"height": float(coordinate), "height_units": str(label)}
    return {}


def _checked(found: list[float], numbers: np.ndarray, label: str, what: str) -> list[float]:
    for value, number in zip(found, numbers, strict=True):
        if not 0 < value <= _HIGHEST:
            raise DatasetError(
                what,
                found=f"level {number:g} {label}".strip(),
                expected=f"a pressure up to {_HIGHEST:g} hPa",
                remedy="Check the level coordinate and its units.",
            )
    return [round(value, 6) for value in found]
