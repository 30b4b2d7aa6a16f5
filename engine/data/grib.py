"""GRIB 1 and 2 by cfgrib, without index files on disk (they are pickles); what is skipped is listed, never dropped quietly."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DatasetError
from engine.safety import kind_of, readable_file

if TYPE_CHECKING:
    import xarray as xr


class _Heard(logging.Handler):
    """Collects what cfgrib only logs: the variables that it leaves out."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line."""
        self.lines.append(record.getMessage().splitlines()[0][:200])


class Grib:
    """A GRIB file on a regular grid; its several datasets (by type of level) are put side by side."""

    key = "grib"
    title = "GRIB 1 and 2"
    endings = (".grib", ".grib1", ".grib2", ".grb", ".grb1", ".grb2", ".gb", ".gb2")
    requires = ("cfgrib", "eccodes")

    def sniff(self, path: Path) -> bool:
        """The file begins with GRIB."""
        return path.is_file() and kind_of(path) == "grib"

    def open(self, path: Path, **_: object) -> "xr.Dataset":
        """Open lazily; variables of other types of level get that type into their name where names clash."""
        # before cfgrib: its eckit library carries a second libproj, and whichever of the two comes last corrupts the heap
        import pyproj  # noqa: F401 -- for that order only
        import cfgrib  # isort: skip
        import xarray as xr

        file = readable_file(path, "dataset")
        _complete(file)
        heard, log = _Heard(), logging.getLogger("cfgrib")
        log.addHandler(heard)
        try:
            parts = cfgrib.open_datasets(str(file), backend_kwargs={"indexpath": "", "errors": "ignore"}, decode_timedelta=True)
        except (EOFError, OSError, ValueError, KeyError, RuntimeError, cfgrib.DatasetBuildError) as error:
            raise DatasetError(
                f"dataset {file.name}",
                found=f"GRIB messages that cannot be read ({str(error)[:200]})",
                expected="complete messages on a regular grid",
                remedy="Check it with grib_ls; regrid reduced grids.",
            ) from error
        finally:
            log.removeHandler(heard)
        notes = [f"skipped by the GRIB reader: {line}" for line in dict.fromkeys(heard.lines)]
        merged = xr.Dataset()
        for part in parts:
            merged = self._beside(merged, part, notes)
        if not merged.data_vars:
            raise DatasetError(
                f"dataset {file.name}",
                found="no variable that can be read" + (f" ({notes[0]})" if notes else ""),
                expected="fields on a regular grid",
                remedy="Check it with grib_ls.",
            )
        merged.attrs = {"reader_notes": tuple(notes)}
        return merged

    def _beside(self, merged: "xr.Dataset", part: "xr.Dataset", notes: list[str]) -> "xr.Dataset":
        kind = str(next(iter(part.data_vars.values())).attrs.get("GRIB_typeOfLevel", "")) if part.data_vars else ""
        for axis in ("isobaricInhPa", "isobaricInPa"):
            if axis in part.coords and part[axis].ndim == 0:
                for name in part.data_vars:
                    part[name].attrs["level"] = float(part[axis]) / (100 if axis == "isobaricInPa" else 1)
        clash = {name: f"{name}_{kind}" for name in part.data_vars if name in merged.data_vars}
        part = part.rename(clash)
        # scalars such as `surface` or `heightAboveGround` differ between parts and say nothing more than the names
        part = part.drop_vars([c for c in part.coords if part[c].ndim == 0 and c not in ("time", "step")])
        part = part.drop_vars([c for c in ("time", "step") if c in part.coords and part[c].ndim == 0 and c in merged.coords])
        for dim in part.dims:
            if dim in merged.dims and dim in part.coords and not np.array_equal(part[dim].values, merged[dim].values):
                if dim in ("isobaricInhPa", "isobaricInPa", "level"):
                    part = part.rename({dim: f"{dim}_{kind}"})
                    continue
                notes.append(f"skipped: {', '.join(map(str, part.data_vars))} ({kind}), on another {dim} than the rest")
                return merged
        return merged.merge(part, compat="override", join="exact")


def _complete(file: Path) -> None:
    """A GRIB file ends with 7777; a truncated one is read without complaint and is short of fields."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 4096))
        tail = stream.read().rstrip(b"\0")
    if not tail.endswith(b"7777"):
        raise DatasetError(
            f"dataset {file.name}",
            found="a GRIB file whose last message is cut off",
            expected="a complete file",
            remedy="Copy or download it again and compare the sizes.",
        )


ENTRIES = (Grib(),)
