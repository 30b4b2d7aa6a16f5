"""Small global fields as a user's tools would write them."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from engine.settings import settings


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
    settings.cache_clear()
    yield
    settings.cache_clear()


def make(start="2001-01-01", periods=12, calendar="standard", rows=8, columns=16, seed=0, step="6h", use_cftime=None) -> xr.Dataset:
    """Z500 (height) and T850 on a regular grid, north to south, 0 ... 360."""
    rng = np.random.default_rng(seed)
    time = xr.date_range(start, periods=periods, freq=step, calendar=calendar, use_cftime=use_cftime)
    latitude, longitude = 90 - (np.arange(rows) + 0.5) * 180 / rows, np.arange(columns) * 360 / columns
    shape = (periods, rows, columns)
    dims = ("time", "latitude", "longitude")
    # the value tells where it is: row and column can be read off it
    place = latitude[:, None] * 0.5 + longitude[None] / 10
    z = (5500 + place + rng.normal(0, 1, shape)).astype(np.float32)
    t = (275 + place / 10 + rng.normal(0, 1, shape)).astype(np.float32)
    fields = {"z500": (dims, z, {"units": "m"}), "t850": (dims, t, {"units": "K"})}
    return xr.Dataset(fields, coords={"time": time, "latitude": latitude, "longitude": longitude})


@pytest.fixture
def fields():
    """The maker of small fields."""
    return make


@pytest.fixture
def written(tmp_path):
    """Write a dataset as NetCDF4 and give its path."""

    def write(data: xr.Dataset, name: str = "data.nc", **options) -> Path:
        path = tmp_path / name
        data.to_netcdf(path, engine=options.pop("engine", "h5netcdf"), **options)
        return path

    return write
