"""ClimaX shards: a folder of `{year}_{n}.npz` with variables `(T, 1, H, W)`, and `lat.npy`, `lon.npy` in it or above it.

Shards record no times. A year's shards are cut from its first 8,760 hours (upstream drops 31 December of leap years), so
the step follows from how many fields a year holds; where that does not divide, it has to be named.
"""

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon
from engine.data._stored_arrays import from_npy, header
from engine.errors import DatasetError
from engine.safety import check_zip, kind_of, readable_file, reading
from engine.settings import settings

if TYPE_CHECKING:
    import xarray as xr

_NAME = re.compile(r"(\d{4})_(\d+)\.npz")
_HOURS = 8760


class ClimaXShards:
    """A split's folder of shards, or one shard."""

    key = "npz"
    title = "ClimaX shards (.npz)"
    endings = (".npz", ".npy")
    companions = ("lat.npy", "lon.npy")
    requires = ()

    def sniff(self, path: Path) -> bool:
        """The folder holds shards by name, or the file is a zip of .npy members with a shard's name."""
        if path.is_dir():
            return any(_NAME.fullmatch(p.name) for p in path.iterdir())
        if not path.is_file() or not _NAME.fullmatch(path.name) or kind_of(path) != "zip":
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except zipfile.BadZipFile:
            return True  # a damaged shard is this reader's to refuse
        return bool(names) and all(n.endswith(".npy") for n in names)

    def open(self, path: Path, *, step_hours: float | None = None, **_: object) -> "xr.Dataset":
        """Open lazily: a shard's variable is read when it is needed."""
        import dask.array as da
        import xarray as xr

        folder = path if path.is_dir() else path.parent
        files = sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=_order) if path.is_dir() else [path]
        latitude, longitude = (_axis(folder, axis) for axis in ("lat", "lon"))
        heads = [_heads(file) for file in files]
        common = sorted(set.intersection(*(set(h) for h in heads)))
        partial = sorted(set().union(*heads) - set(common))
        if not common:
            raise DatasetError(
                f"dataset {path.name}",
                found="shards without a variable in common",
                expected="the same variables in each",
                remedy="Bring one set of shards.",
            )
        lengths = []
        for file, head in zip(files, heads, strict=True):
            shapes = {head[name][0] for name in common}
            if len(shapes) != 1 or (shape := next(iter(shapes)))[1:] != (1, len(latitude), len(longitude)):
                raise DatasetError(
                    f"dataset {file.name}",
                    found=f"shapes {', '.join(map(str, sorted(shapes)[:4]))}",
                    expected=f"(T, 1, {len(latitude)}, {len(longitude)}) for each variable, as lat.npy and lon.npy say",
                    remedy="Check that the shards and the coordinates belong together.",
                )
            lengths.append(shape[0])
        times, said = _times(files, lengths, step_hours, path.name)
        fields = {}
        for name in common:
            blocks = [
                da.from_delayed(_delayed(file, name), (n, len(latitude), len(longitude)), np.float32)
                for file, n in zip(files, lengths, strict=True)
            ]
            fields[name] = (("time", "latitude", "longitude"), da.concatenate(blocks), {"units": lexicon.units_of(name) or "1"})
        notes = (
            said,
            "units as ClimaX shards have them (the files record none)",
            *([f"left out, not in every shard: {', '.join(partial)}"] if partial else []),
        )
        return xr.Dataset(fields, coords={"time": times, "latitude": latitude, "longitude": longitude}, attrs={"reader_notes": notes})


def _order(path: Path) -> tuple[int, int]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1]), int(match[2])


def _axis(folder: Path, name: str) -> np.ndarray:
    file = next((p for p in (folder / f"{name}.npy", folder.parent / f"{name}.npy") if p.exists()), None)
    if file is None:
        raise DatasetError(
            f"dataset {folder.name}",
            found=f"no {name}.npy in the folder or above it",
            expected="lat.npy and lon.npy in degrees",
            remedy="Put them beside the shards; positions are not taken for degrees.",
        )
    return np.asarray(from_npy(readable_file(file, "dataset"), f"dataset {file.name}"), np.float64).ravel()


def _heads(file: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and type of each array, from the headers alone."""
    check_zip(file, settings().upload_limit, "dataset")
    found = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                try:
                    shape, dtype = header(stream, member.filename, f"dataset {file.name}")
                except ValueError as error:
                    raise DatasetError(
                        f"dataset {file.name}",
                        found=f"{member.filename}: {error}",
                        expected="NumPy arrays",
                        remedy="Save it again with numpy.savez.",
                    ) from error
            if len(shape) == 4 and np.issubdtype(dtype, np.number):
                found[member.filename.removesuffix(".npy")] = (tuple(shape), dtype)
    return found


def _times(files: list[Path], lengths: list[int], step_hours: float | None, name: str) -> tuple[np.ndarray, str]:
    per_year: dict[int, int] = {}
    for file, n in zip(files, lengths, strict=True):
        per_year[_order(file)[0]] = per_year.get(_order(file)[0], 0) + n
    for year in per_year:
        numbers = [_order(f)[1] for f in files if _order(f)[0] == year]
        if len(files) > 1 and numbers != list(range(len(numbers))):
            raise DatasetError(
                f"dataset {name}",
                found=f"shards {', '.join(map(str, numbers[:10]))} of {year}",
                expected="0, 1, 2, … without gaps, because times follow from them",
                remedy="Complete the year, or leave it out.",
            )
    if step_hours is None:
        steps = {_HOURS / n for n in per_year.values()}
        if len(steps) != 1 or (step := steps.pop()) not in (1, 2, 3, 4, 6, 12, 24):
            raise DatasetError(
                f"dataset {name}",
                found=f"{', '.join(f'{n} fields in {y}' for y, n in list(per_year.items())[:4])}",
                expected="8760 hours a year in steps of 1, 2, 3, 4, 6, 12 or 24 h",
                remedy="Name the hours of a step with --step-hours (step_hours= in Python). Shards record no times.",
            )
        step_hours = step
    times: list[np.ndarray] = []
    for year, n in per_year.items():
        times.append(np.datetime64(f"{year:04d}-01-01T00", "s") + (np.arange(n) * round(step_hours * 3600)).astype("timedelta64[s]"))
    return np.concatenate(times), f"times derived from the shards' names: from 1 January in steps of {step_hours:g} h"


def _delayed(file: Path, name: str) -> Any:
    from dask.delayed import delayed

    return delayed(_field, pure=True)(str(file), name)


def _field(file: str, name: str) -> np.ndarray:
    """One variable of one shard, `(T, H, W)` float32."""
    with reading(f"dataset {Path(file).name}: {name}"), np.load(file, allow_pickle=False) as archive:
        return np.asarray(archive[name][:, 0], np.float32)


ENTRIES = (ClimaXShards(),)
