"""Means and standard deviations that belong to a checkpoint. They are read, never computed: other numbers give another model.

Two forms:

    normalize_mean.npz + normalize_std.npz   upstream ClimaX: `(1,)` per variable, for inputs and outputs alike
    a NetCDF file                            <variable>_input_mean   scalar or (latitude, longitude)
                                             <variable>_input_sd     scalar
                                             <variable>_output_mean  scalar, (latitude, longitude) or (node, latitude, longitude)
                                             <variable>_output_sd    scalar

A `node` axis is the year: nodes equally spaced from its first day, periodic, linear between.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import CheckpointError
from engine.safety import check_bytes, check_hdf5, check_zip, kind_of, readable_file, reading, resolved

Floats = NDArray[np.float32]
DEFAULT_NAMES = ("normalisation.nc", "normalize_mean.npz")
_LIMIT = 2**30
_PARTS = ("input_mean", "input_sd", "output_mean", "output_sd")


def along_year(values: Floats, share: NDArray[np.floating]) -> Floats:
    """`(node, H, W)` at shares of the year `(case,)`, 0 … 1: periodic and linear between nodes, `(case, H, W)`."""
    position = np.asarray(share, np.float64) * len(values)
    low = np.floor(position).astype(int)
    part = (position - low).astype(np.float32)[:, None, None]
    between = values[low % len(values)] * (1 - part) + values[(low + 1) % len(values)] * part
    return between.astype(np.float32)


@dataclass(frozen=True)
class Normalisation:
    """`input` and `output` hold, by variable, the mean (scalar, `(H, W)` or `(node, H, W)`) and the sd (scalar), float32.

    `units` are those recorded beside the numbers; `latitude` and `longitude` those of the means by grid point.
    """

    input: Mapping[str, tuple[Floats, float]]
    output: Mapping[str, tuple[Floats, float]]
    source: str
    units: Mapping[str, str] = field(default_factory=dict)
    latitude: Floats | None = None
    longitude: Floats | None = None

    def missing(self, in_variables: tuple[str, ...], out_variables: tuple[str, ...]) -> list[str]:
        """Which numbers are not there, in words."""
        return [f"{n} (input)" for n in in_variables if n not in self.input] + [
            f"{n} (output)" for n in out_variables if n not in self.output
        ]

    def output_mean(self, name: str, share: NDArray[np.floating]) -> Floats:
        """Mean of an output at shares of the year `(case,)`, broadcastable to `(case, H, W)`."""
        mean = self.output[name][0]
        return along_year(mean, share) if mean.ndim == 3 else np.broadcast_to(mean, (len(share), *(mean.shape or (1, 1))))

    def is_climatology(self, name: str) -> bool:
        """The output mean differs by place, so it is a climatology and not a mere scale."""
        return name in self.output and self.output[name][0].ndim >= 2


def beside(checkpoint: Path) -> Path | None:
    """The normalisation that lies next to a checkpoint, if any."""
    return next((p for name in DEFAULT_NAMES if (p := checkpoint.parent / name).exists()), None)


def read_normalisation(path: str | Path) -> Normalisation:
    """A NetCDF file, a folder with the upstream pair, or one file of that pair."""
    place = resolved(path, "normalisation")
    with reading(f"normalisation {place.name}", CheckpointError):
        return _read(place)


def _read(place: Path) -> Normalisation:
    if place.is_dir():
        found = next((place / name for name in reversed(DEFAULT_NAMES) if (place / name).exists()), None)
        if found is None:
            raise _bad(place, f"a folder without {' or '.join(DEFAULT_NAMES)}")
        place = found
    file = readable_file(place, "normalisation")
    kind = kind_of(file)
    if kind in ("hdf5", "netcdf3"):
        return _netcdf(file, kind)
    if kind == "zip":
        return _pair(file)
    raise _bad(file, f"a file of kind {kind}")


def _bad(place: Path, found: str) -> CheckpointError:
    return CheckpointError(
        f"normalisation {place.name}",
        found=found,
        expected="normalize_mean.npz with normalize_std.npz, or NetCDF with <variable>_input_mean, _input_sd, _output_mean, _output_sd",
        remedy="Bring the numbers that the checkpoint was trained with; they are not computed anew, because others make another model.",
    )


def read_arrays(file: Path, what: str) -> dict[str, NDArray]:
    """All arrays of an .npz file, without pickles and within 1 GiB."""
    check_zip(file, _LIMIT, what)
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except (ValueError, OSError, EOFError) as error:
        raise CheckpointError(
            f"{what} {file.name}",
            found=f"content that cannot be read ({error})",
            expected="plain arrays",
            remedy="Save it again with numpy.savez.",
        ) from error


def _pair(file: Path) -> Normalisation:
    names = {"mean": file.with_name("normalize_mean.npz"), "std": file.with_name("normalize_std.npz")}
    absent = [p.name for p in names.values() if not p.exists()]
    if absent:
        raise _bad(file, f"no {' and no '.join(absent)} in {file.parent.name}")
    mean, sd = (read_arrays(p, "normalisation") for p in names.values())
    both: dict[str, tuple[Floats, float]] = {}
    for name in sorted(set(mean) & set(sd)):
        if mean[name].size != 1 or sd[name].size != 1:
            raise _bad(file, f"{name} with {mean[name].size} means and {sd[name].size} standard deviations instead of one")
        both[name] = (np.asarray(mean[name], np.float32).reshape(()), _positive(file, name, sd[name]))
    return Normalisation(both, both, str(file.parent))


def _positive(file: Path, name: str, value: NDArray) -> float:
    number = float(np.asarray(value).reshape(-1)[0]) if np.size(value) == 1 else float("nan")
    if not (np.isfinite(number) and number > 0):
        raise _bad(file, f"{name}: standard deviation {np.asarray(value).reshape(-1)[:3]}")
    return number


def _netcdf(file: Path, kind: str) -> Normalisation:
    import xarray as xr

    if kind == "hdf5":
        check_hdf5(file, "normalisation")
    with xr.open_dataset(file, engine="h5netcdf" if kind == "hdf5" else "scipy", decode_times=False) as data:
        check_bytes(data.nbytes, _LIMIT, f"normalisation {file.name}", "in memory")
        data = data.load()
    for axis in ("latitude", "longitude"):
        if axis in data.coords and not bool((np.diff(data[axis]) * (-1 if axis == "latitude" else 1) > 0).all()):
            data = data.sortby(axis, ascending=axis == "longitude")
    parts: dict[str, dict[str, tuple[Floats, float]]] = {"input": {}, "output": {}}
    units: dict[str, str] = {}
    for side in parts:
        for key in data.data_vars:
            name = str(key).removesuffix(f"_{side}_mean")
            if name == key:
                continue
            if f"{name}_{side}_sd" not in data:
                raise _bad(file, f"{key} without {name}_{side}_sd")
            values, dims = np.asarray(data[key].values, np.float32), data[key].dims
            if dims not in ((), ("latitude", "longitude"), ("node", "latitude", "longitude")) or (side == "input" and len(dims) == 3):
                raise _bad(file, f"{key} with dimensions {dims}")
            if not np.isfinite(values).all():
                raise _bad(file, f"{key} with missing values")
            parts[side][name] = (values, _positive(file, f"{name}_{side}_sd", data[f"{name}_{side}_sd"].values))
            if "units" in data[key].attrs:
                units[name] = str(data[key].attrs["units"])
    if not parts["input"] and not parts["output"]:
        raise _bad(file, f"variables {', '.join(map(str, list(data.data_vars)[:8])) or 'none'}")
    grid = [np.asarray(data[a].values, np.float32) if a in data.coords else None for a in ("latitude", "longitude")]
    return Normalisation(parts["input"], parts["output"], str(file), units, grid[0], grid[1])
