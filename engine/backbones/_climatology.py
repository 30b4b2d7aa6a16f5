"""A climatology from a file: upstream's `climatology.npz` (`(1, H, W)` per variable), or NetCDF with an optional year axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from engine import lexicon
from engine.backbones._normalisation import read_arrays
from engine.errors import DatasetError
from engine.safety import check_bytes, check_hdf5, kind_of, readable_file, reading


def read_climatology(path: str | Path, names: Sequence[str], units: Mapping[str, str], grid: tuple[int, int]) -> dict[str, np.ndarray]:
    """Fields by variable, `(node, H, W)` float32 in the model's units; node: equally spaced from the year's first day.

    Raises DatasetError where a variable is missing, or its shape is not the model's grid.
    """
    file = readable_file(path, "climatology")
    with reading(f"climatology {file.name}"):
        arrays = _arrays(file)
    result = {}
    for name in names:
        found = lexicon.obtain(name, units[name], {key: u for key, (_, u) in arrays.items()})
        if found is None:
            raise DatasetError(
                f"climatology {file.name}",
                found=", ".join(sorted(arrays)[:12]) or "no variables",
                expected=f"{name} in {units[name]}",
                remedy="Bring a climatology of the forecast variables, or leave it out.",
            )
        values = np.asarray(found[2](arrays[found[0]][0].astype(np.float32)))
        values = values[None] if values.ndim == 2 else values
        if values.ndim != 3 or values.shape[1:] != grid:
            raise DatasetError(
                f"climatology {file.name}",
                found=f"{name} with shape {values.shape}",
                expected=f"(1, {grid[0]}, {grid[1]}), the model's grid",
                remedy="Bring it on the model's grid.",
            )
        result[name] = values
    return result


def _arrays(file: Path) -> dict[str, tuple[np.ndarray, str]]:
    """Values and units by variable."""
    kind = kind_of(file)
    if kind == "zip":
        # upstream writes the arrays as they come from its shards: in canonical units
        arrays = {name: (values, lexicon.units_of(name) or "1") for name, values in read_arrays(file, "climatology").items()}
    elif kind in ("hdf5", "netcdf3"):
        arrays = _netcdf(file, kind)
    else:
        raise DatasetError(
            f"climatology {file.name}",
            found=f"a file of kind {kind}",
            expected="climatology.npz or a NetCDF file",
            remedy="Choose the climatology's file.",
        )
    return arrays


def _netcdf(file: Path, kind: str) -> dict[str, tuple[np.ndarray, str]]:
    import xarray as xr

    if kind == "hdf5":
        check_hdf5(file, "climatology")
    with xr.open_dataset(file, engine="h5netcdf" if kind == "hdf5" else "scipy", decode_times=False) as data:
        check_bytes(data.nbytes, 2**31, f"climatology {file.name}", "in memory")
        data = data.load()
    data = data.rename({short: full for short, full in (("lat", "latitude"), ("lon", "longitude")) if short in data.dims})
    if "latitude" in data.coords and "longitude" in data.coords:
        data = data.assign_coords(longitude=data["longitude"] % 360).sortby("longitude").sortby("latitude", ascending=False)
    return {
        str(n): (v.values, str(v.attrs.get("units", lexicon.units_of(str(n)) or "1")))
        for n, v in data.data_vars.items()
        if {"latitude", "longitude"} <= set(v.dims)
    }
