"""NetCDF 3 and 4, chosen by the first bytes, always with an explicit engine on a resolved local path."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from engine.data._decode import NETCDF_FILL, decode
from engine.errors import DatasetError
from engine.safety import check_hdf5, kind_of, readable_file

if TYPE_CHECKING:
    import xarray as xr


class NetCDF:
    """NetCDF 3 (classic, 64-bit) and NetCDF 4 files with CF times in any calendar; packed integers are unpacked."""

    key = "netcdf"
    title = "NetCDF 3 and 4"
    endings = (".nc", ".nc4", ".cdf", ".h5", ".hdf5")
    requires = ("h5netcdf", "netCDF4")

    def sniff(self, path: Path) -> bool:
        """The file begins as NetCDF or HDF5, whatever it is called."""
        return path.is_file() and kind_of(path) in ("hdf5", "netcdf3")

    def open(self, path: Path, **_: object) -> "xr.Dataset":
        """Open lazily, times decoded (cftime where the calendar or the range needs it), scale and offset applied."""
        import xarray as xr

        file = readable_file(path, "dataset")
        kind = kind_of(file)
        if kind == "hdf5":
            check_hdf5(file)
        # SciPy maps classic files and notices truncation, but does not know the 64-bit data variant (CDF-5)
        engine = "h5netcdf" if kind == "hdf5" else "netcdf4" if _version(file) == 5 else "scipy"
        try:
            with warnings.catch_warnings():  # "days since 1-1-1" is read as it is meant
                warnings.filterwarnings("ignore", "Ambiguous reference date string", xr.SerializationWarning)
                data = decode(xr.open_dataset(file, engine=engine, decode_cf=False), NETCDF_FILL)
        except (OSError, ValueError, TypeError, KeyError, IndexError, RuntimeError, AttributeError) as error:
            raise DatasetError(
                f"dataset {file.name}",
                found=f"content that cannot be read as NetCDF ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__})",
                expected="a complete NetCDF file with CF times",
                remedy="Copy or download it again; check it with ncdump -h.",
            ) from error
        if not data.data_vars and kind == "hdf5":
            data = self._group(file, data)
        return data

    def _group(self, file: Path, data: "xr.Dataset") -> "xr.Dataset":
        import h5py
        import xarray as xr

        with h5py.File(file, "r") as content:
            groups = [str(name) for name in content if isinstance(content[name], h5py.Group)]
        if len(groups) != 1:
            raise DatasetError(
                f"dataset {file.name}",
                found=f"no variables at the top and groups {', '.join(groups[:8]) or 'none'}",
                expected="variables at the top level, or in one group",
                remedy="Extract one group into a file of its own.",
            )
        data.close()
        inner = decode(xr.open_dataset(file, engine="h5netcdf", group=groups[0], decode_cf=False), NETCDF_FILL)
        inner.attrs["reader_notes"] = (f"variables read from the group {groups[0]!r}",)
        return inner


def _version(file: Path) -> int:
    with file.open("rb") as stream:
        return stream.read(4)[3]


ENTRIES = (NetCDF(),)
