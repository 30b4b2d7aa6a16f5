"""What a file, or the one who brings it, declares to be missing: `valid_range`, `valid_min`, `valid_max`, and a value by hand.

`_FillValue` and `missing_value` are xarray's; netCDF's default fill values are declared by the reader (`_decode`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

Mask = Callable[[np.ndarray], np.ndarray]


def mask_of(field: "xr.DataArray", missing: float | None, what: str) -> tuple[Mask | None, list[str]]:
    """A function that puts NaN where values are declared missing, in the file's units; and what to say of it.

    The bounds of packed data count in packed units where they are whole numbers of a whole-number type, as the NetCDF
    conventions have it, else in those of the data.
    """
    low, high, said = _bounds(field, what)
    wanted = None if missing is None or np.isnan(missing) else float(missing)
    if wanted is not None:
        said.append(f"{field.attrs.get('file_variable', field.name)}: {wanted:g} is missing, as asked")
    if low is None and high is None and wanted is None:
        return None, said

    def mask(values: np.ndarray) -> np.ndarray:
        found = values if np.issubdtype(values.dtype, np.floating) else values.astype(np.float64)
        absent = np.zeros(found.shape, bool)
        if low is not None:
            absent |= found < low
        if high is not None:
            absent |= found > high
        if wanted is not None:
            absent |= np.abs(found - wanted) <= 1e-6 * abs(wanted)
        return np.where(absent, np.asarray(np.nan, found.dtype), found)

    return mask, said


def _bounds(field: "xr.DataArray", what: str) -> tuple[float | None, float | None, list[str]]:
    attrs = field.attrs
    name = attrs.get("file_variable", field.name)
    pair = np.atleast_1d(np.asarray(attrs["valid_range"])) if "valid_range" in attrs else None
    ends = list(pair) if pair is not None and pair.size == 2 else [attrs.get("valid_min"), attrs.get("valid_max")]
    if pair is not None and (pair.size != 2 or not np.issubdtype(pair.dtype, np.number)):
        raise DatasetError(
            f"{what}: {name}",
            found=f"valid_range {attrs['valid_range']!r}",
            expected="two numbers",
            remedy="Correct or remove this attribute.",
        )
    found: list[float | None] = []
    for end in ends:
        try:
            found.append(None if end is None else _unpacked(np.asarray(end).reshape(-1)[0], field.encoding))
        except (TypeError, ValueError, IndexError) as error:
            raise DatasetError(
                f"{what}: {name}",
                found=f"valid_min or valid_max {end!r}",
                expected="a number",
                remedy="Correct or remove this attribute.",
            ) from error
    low, high = found
    if low is not None and high is not None and low > high:  # a negative scale turns the bounds round
        low, high = high, low
    if low is None and high is None:
        return None, None, []
    # half a packing step, and the rounding of single precision: a bound itself is valid
    slack = abs(float(field.encoding.get("scale_factor", 0.0))) / 2
    text = " … ".join("" if v is None else f"{v:g}" for v in (low, high)).strip()
    room = [slack + 1e-6 * abs(v) if v is not None else 0.0 for v in (low, high)]
    said = [f"{name}: values outside its declared valid range ({text}) are missing"]
    return (None if low is None else low - room[0]), (None if high is None else high + room[1]), said


def _unpacked(end: Any, encoding: dict[Any, Any]) -> float:
    """A bound in the units of the unpacked data."""
    stored = np.dtype(encoding.get("dtype", np.float32))
    packed = "scale_factor" in encoding or "add_offset" in encoding
    unsigned = str(encoding.get("_Unsigned", "false")).lower() == "true"
    if unsigned and isinstance(end, np.signedinteger):
        end = np.asarray(end).view(f"u{end.dtype.itemsize}")[()]
    value = float(end)
    if packed and stored.kind in "iu" and isinstance(end, np.integer):
        return value * float(encoding.get("scale_factor", 1.0)) + float(encoding.get("add_offset", 0.0))
    return value
