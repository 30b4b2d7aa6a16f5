"""A tiny ClimaX with random weights, its normalisation, small data, and runs of them in a home of the test's own."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from engine.runs import jobs, store
from engine.runs.spec import RunSpec, parse_spec

VARIABLES = ("geopotential_height_500", "temperature_850", "u_component_of_wind_500")
UNITS = {"geopotential_height_500": "m", "temperature_850": "K", "u_component_of_wind_500": "m s-1"}
MIDDLE = {"geopotential_height_500": 5600.0, "temperature_850": 280.0, "u_component_of_wind_500": 5.0}
SPREAD = {"geopotential_height_500": 60.0, "temperature_850": 3.0, "u_component_of_wind_500": 6.0}
GRID = (8, 16)
LATITUDE = 90 - (np.arange(GRID[0]) + 0.5) * 180 / GRID[0]
LONGITUDE = np.arange(GRID[1]) * 360 / GRID[1]


def fields(start: str, days: int, seed: int, latitude=LATITUDE, longitude=LONGITUDE) -> xr.Dataset:
    """Daily AR(1) noise around each variable's middle, on a 360-day calendar."""
    rng = np.random.default_rng(seed)
    time_axis = xr.date_range(start, periods=days, freq="24h", calendar="360_day", use_cftime=True)
    noise = rng.normal(size=(days, len(VARIABLES), len(latitude), len(longitude)))
    for day in range(1, days):
        noise[day] = 0.8 * noise[day - 1] + 0.6 * noise[day]
    arrays = {
        name: (("time", "latitude", "longitude"), (MIDDLE[name] + SPREAD[name] * noise[:, i]).astype(np.float32), {"units": UNITS[name]})
        for i, name in enumerate(VARIABLES)
    }
    return xr.Dataset(arrays, coords={"time": time_axis, "latitude": latitude, "longitude": longitude})


def normalisation(latitude=LATITUDE, longitude=LONGITUDE, seed: int = 7) -> xr.Dataset:
    """Scalars for inputs, a climatology of four nodes for outputs."""
    rng = np.random.default_rng(seed)
    parts = {}
    for name in VARIABLES:
        climate = MIDDLE[name] + 0.1 * SPREAD[name] * rng.normal(size=(4, len(latitude), len(longitude)))
        parts[f"{name}_input_mean"], parts[f"{name}_input_sd"] = ((), MIDDLE[name]), ((), SPREAD[name])
        parts[f"{name}_output_mean"], parts[f"{name}_output_sd"] = (("node", "latitude", "longitude"), climate), ((), SPREAD[name])
    return xr.Dataset(parts, coords={"latitude": latitude, "longitude": longitude})


def build_net(grid=GRID):
    """Random weights of a fixed seed, large enough that attention differs from place to place."""
    import torch

    from engine.backbones._climax_net import ClimaXNet

    net = ClimaXNet(VARIABLES, grid, patch=2, width=32, depth=2, num_heads=4)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.2)
    return net.eval()


def write_world(folder: Path, days: int = 40, latitude=LATITUDE, longitude=LONGITUDE) -> SimpleNamespace:
    """Checkpoint, normalisation, verify.nc and calibrate.nc in a folder."""
    from engine.backbones import write_checkpoint

    folder.mkdir(parents=True, exist_ok=True)
    net = build_net((len(latitude), len(longitude)))
    write_checkpoint(net, folder / "model.safetensors", out_variables=list(VARIABLES), lead_hours=[72.0])
    normalisation(latitude, longitude).to_netcdf(folder / "normalisation.nc", engine="h5netcdf")
    fields("0004-01-01", days, 1, latitude, longitude).to_netcdf(folder / "verify.nc", engine="h5netcdf")
    fields("0003-01-01", 20, 2, latitude, longitude).to_netcdf(folder / "calibrate.nc", engine="h5netcdf")
    return SimpleNamespace(
        folder=folder, checkpoint=folder / "model.safetensors", verify=folder / "verify.nc", calibrate=folder / "calibrate.nc"
    )


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> SimpleNamespace:
    """Files that no test changes."""
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def long_world(tmp_path_factory) -> SimpleNamespace:
    """Ten months: a run of it works for several seconds."""
    return write_world(tmp_path_factory.mktemp("long"), days=300)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch) -> None:
    monkeypatch.setenv("NUSCOPE_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def tiny(world: SimpleNamespace, **changes) -> RunSpec:
    """A run of a second."""
    few = {
        "checkpoint": world.checkpoint,
        "data": (world.verify,),
        "calibrate": (world.calibrate,),
        "variables": VARIABLES[:1],
        "nu": (2, 16),
        "members": 4,
        "max_cases": 5,
        "calibrate_cases": 4,
        "calibrate_members": 2,
        "scores": ("crps_fair", "w1_pit", "width_95", "rmse"),
        "bootstrap": 100,
        "shard_cases": 2,
    }
    return parse_spec(few | changes)


@pytest.fixture
def spec(world) -> Callable[..., RunSpec]:
    """`spec(**changes)`: the tiny run, changed."""
    return lambda **changes: tiny(world, **changes)


@pytest.fixture
def working(home, long_world) -> Callable[..., RunSpec]:
    """`working(**changes)`: a run whose worker works for several seconds in many small shards. Workers are ended afterwards."""
    yield lambda **changes: tiny(long_world, **({"max_cases": 100, "nu": (2, 4, 8, 16), "maps": True} | changes))
    end_workers()


@pytest.fixture
def workers(home):
    """For tests that start workers: whatever they leave is ended."""
    yield
    end_workers()


def end_workers() -> None:
    """Kill the workers that this process started, each with its own group, and wait for them."""
    for child in list(jobs._children):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=10)
    jobs._children.clear()


def wait(key: str, until: Callable[[object], bool], seconds: float = 120.0):
    """Poll the run's progress until something holds; fails with the log where it does not come to hold."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        state = jobs.progress(key)
        if until(state):
            return state
        time.sleep(0.05)
    log = store.folder(key) / "log.txt"
    raise AssertionError(f"{jobs.progress(key)}\n{log.read_text() if log.exists() else 'no log'}")


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The makers of this file, for tests that need other files than `world`'s."""
    return SimpleNamespace(fields=fields, normalisation=normalisation, net=build_net, world=write_world, spec=tiny, variables=VARIABLES)


@pytest.fixture(name="wait")
def _wait():
    """`wait(key, until)`."""
    return wait


@pytest.fixture
def shards_of():
    """`shards_of(key)`: each shard's arrays by its file's name."""

    def read(key: str) -> dict[str, dict[str, np.ndarray]]:
        found = {}
        for path in sorted((store.folder(key) / "shards").glob("*.npz")):
            with np.load(path) as file:
                found[path.name] = {name: file[name] for name in file.files}
        return found

    return read
