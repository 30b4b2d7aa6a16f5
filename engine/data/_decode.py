"""From what a file stores to numbers and times, by the conventions and no further.

What xarray would do too much: fields in "days" or "seconds" stay numbers (only lead times become time spans). What it does
too little: values that were never written, which netCDF fills with a default of the type, are missing where the file names
no other value.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data._coordinates import axis_of

if TYPE_CHECKING:
    import xarray as xr

NETCDF_FILL: Mapping[str, float | int] = {
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
}
"""What netCDF writes where nothing was written (NetCDF User's Guide); bytes have no default that is held to be missing."""


def decode(raw: "xr.Dataset", fill: Mapping[str, float | int] | None = None) -> "xr.Dataset":
    """A dataset that was opened as stored, with scales, missing values and times decoded, lazily.

    `fill` are defaults by kind of number, for variables on two dimensions or more that declare none of their own.
    """
    import xarray as xr

    for name in raw.variables:
        variable = raw[name].variable
        if fill and variable.ndim > 1 and not {"_FillValue", "missing_value"} & set(variable.attrs):
            default = fill.get(f"{variable.dtype.kind}{variable.dtype.itemsize}")
            if default is not None:
                raw[name].attrs["_FillValue"] = np.asarray(default, variable.dtype.newbyteorder("="))[()]
    data = xr.decode_cf(raw, decode_times=xr.coders.CFDatetimeCoder(), decode_timedelta=False)
    leads = [c for c in data.coords if axis_of(str(c), data[c].attrs) == "lead_time" and _stored_as_span(data[c])]
    spans: Any = {}
    for name in leads:
        attrs = {k: v for k, v in data[name].attrs.items() if k != "dtype"}
        spans[name] = xr.decode_cf(data[[name]].assign_coords({name: data[name].assign_attrs(attrs)}), decode_timedelta=True)[name]
    return data.assign_coords(spans) if spans else data


def _stored_as_span(coordinate: "xr.DataArray") -> bool:
    """Units that xarray knows as those of time spans; others (weeks, h) stay numbers with their label."""
    known = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
    return str(coordinate.attrs.get("units", "")) in known and np.issubdtype(coordinate.dtype, np.number)
