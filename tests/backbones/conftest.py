"""A small ClimaX with known weights, its normalisation, and data for it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from engine.backbones import write_checkpoint
from engine.backbones._climax_net import ClimaXNet
from engine.settings import settings
from engine.types import Dataset

VARIABLES = ("geopotential_500", "temperature_850", "2m_temperature")
GRID = (8, 16)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
    settings.cache_clear()
    yield
    settings.cache_clear()


def build(variables=VARIABLES, grid=GRID, heads=4, parallel=False, **options) -> ClimaXNet:
    generator = torch.Generator().manual_seed(0)
    net = ClimaXNet(variables, grid, patch=2, width=16, depth=2, num_heads=heads, parallel_patch_embedding=parallel, **options)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.2)
    return net.eval()


@pytest.fixture
def net():
    return build()


@pytest.fixture
def make():
    return build


def normalisation(folder: Path) -> Path:
    """Scalars for inputs; a climatology of four nodes for outputs."""
    rng = np.random.default_rng(1)
    base, sd = {"geopotential_500": 54000.0, "temperature_850": 275.0, "2m_temperature": 285.0}, 3.0
    parts = {}
    for name in VARIABLES:
        parts[f"{name}_input_mean"] = ((), base[name])
        parts[f"{name}_input_sd"] = ((), sd)
        parts[f"{name}_output_mean"] = (("node", "latitude", "longitude"), base[name] + rng.normal(0, 1, (4, *GRID)))
        parts[f"{name}_output_sd"] = ((), 2.0)
    coords = {"latitude": 90 - (np.arange(8) + 0.5) * 22.5, "longitude": np.arange(16) * 22.5}
    xr.Dataset(parts, coords=coords).to_netcdf(folder / "normalisation.nc", engine="h5netcdf")
    return folder / "normalisation.nc"


@pytest.fixture
def checkpoint(tmp_path, net):
    """A written checkpoint with its normalisation beside it."""
    normalisation(tmp_path)
    return write_checkpoint(net, tmp_path / "small.safetensors", out_variables=["geopotential_500", "2m_temperature"], lead_hours=[72.0])


def fields(calendar="standard", start="2001-01-01", periods=20, step="12h") -> Dataset:
    rng = np.random.default_rng(2)
    time = xr.date_range(start, periods=periods, freq=step, calendar=calendar)
    dims, shape = ("time", "latitude", "longitude"), (periods, *GRID)
    base = {"geopotential_500": (54000.0, "m2 s-2"), "temperature_850": (275.0, "K"), "2m_temperature": (285.0, "K")}
    arrays = {n: (dims, (b + rng.normal(0, 3, shape)).astype(np.float32), {"units": u}) for n, (b, u) in base.items()}
    coords = {"time": time, "latitude": 90 - (np.arange(8) + 0.5) * 22.5, "longitude": np.arange(16) * 22.5}
    return Dataset(xr.Dataset(arrays, coords=coords), {"verify": np.arange(periods)})


@pytest.fixture
def dataset():
    return fields()


@pytest.fixture
def make_dataset():
    return fields
