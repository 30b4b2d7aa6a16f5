"""Fixtures that several folders share: a home of one's own, and a finished run in it."""

import atexit
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pyproj  # noqa: F401 -- before any test imports eccodes: whichever of their two libproj comes last corrupts the heap
import pytest

KEY = "fake0123456789ab"


def synthetic(name: str = "fake_verification"):
    """A module beside this file; by path, since some installed packages bring a package `tests` of their own."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@cache
def _results(key: str) -> dict[str, Path]:
    """The synthetic run's files, written once a session and linked into each test's home."""
    place = Path(tempfile.mkdtemp(prefix="nuscope-tests-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name, dataset in zip(("verification.nc", "fields.nc"), synthetic().make(0), strict=True):
        dataset.assign_attrs(key=key).to_netcdf(place / name, engine="h5netcdf")
    return {path.name: path for path in place.iterdir()}


def write_run(
    key: str = KEY, *, status: str = "done", title: str = "Synthetic ensemble with known truth", error: dict | None = None, **row: object
) -> str:
    """A run's folder and row as a worker would have left them; call it under a home of one's own."""
    from engine.runs import store
    from engine.runs.spec import RunSpec

    folder = store.folder(key)
    folder.mkdir(parents=True, exist_ok=True)
    spec = RunSpec(checkpoint=Path("demo.ckpt"), data=(Path("demo.nc"),), nu=(1, 2, 4, 8, 16, 32, 64, 128), title=title)
    (folder / "spec.json").write_text(spec.model_dump_json())
    if status == "done":
        for name, whole in _results(key).items():
            try:
                os.link(whole, folder / name)
            except OSError:  # another file system
                shutil.copy(whole, folder / name)
    values = {"created": time.time(), "finished": time.time(), "done": 5, "total": 10} | row
    with store.table() as connection:
        connection.execute("DELETE FROM runs WHERE key = ?", (key,))
        fixed = {
            "key": key,
            "title": title,
            "status": status,
            "spec": spec.model_dump_json(),
            "error": json.dumps(error) if error else None,
        }
        whole = fixed | values
        connection.execute(f"INSERT INTO runs ({', '.join(whole)}) VALUES ({', '.join('?' * len(whole))})", tuple(whole.values()))
    return key


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty NUSCOPE_HOME of this test's own, and no cache of another's."""
    from engine.settings import settings

    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "runs").mkdir(parents=True)
    settings.cache_clear()
    yield tmp_path / "home"
    settings.cache_clear()


@pytest.fixture
def finished_run(home: Path) -> str:
    """The key of a finished run made of synthetic data."""
    return write_run()


@pytest.fixture
def new_run(home: Path):
    """`new_run(key, status=…)`: another run in this test's home."""
    return write_run


@pytest.fixture
def new_calibration(home: Path, tmp_path: Path):
    """`new_calibration(key, status=…, row={…}, **changes)`: a calibration's row and folder, as a worker would have left them."""
    from engine.runs import store
    from engine.runs.spec import RunSpec

    for name in ("demo.ckpt", "demo.nc", "calibrate.nc"):
        (tmp_path / name).write_bytes(name.encode())
    files = {"checkpoint": tmp_path / "demo.ckpt", "data": (tmp_path / "demo.nc",), "calibrate": (tmp_path / "calibrate.nc",)}
    spec = RunSpec(**files, tune={}, title="Calibration · Mine")

    def write(
        key: str = "cafe0123456789ab", *, status: str = "done", error: dict | None = None, row: dict | None = None, **changes: object
    ) -> str:
        folder = store.make_folder(key)
        if status == "done":
            made = synthetic("fake_calibration").make(**{"key": key, "spec": spec.model_dump_json()} | changes)
            made.to_netcdf(folder / "calibration.nc", engine="h5netcdf")
        values = {"key": key, "title": spec.title, "status": status, "spec": spec.model_dump_json(), "created": time.time(), "done": 5}
        values |= {"finished": time.time(), "total": 10, "error": json.dumps(error) if error else None} | (row or {})
        with store.table() as connection:
            connection.execute(f"INSERT INTO runs ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values()))
        return key

    write.spec = spec
    return write


@pytest.fixture
def new_classification(home: Path):
    """`new_classification(key, status=…, spec={…}, row={…}, result=…, **changes)`: a classification's row and folder, as a worker
    would have left them."""
    from engine.runs import store

    named = {"task": "classification", "checkpoint": "vit.safetensors", "data": ["verify.npz"], "fit": ["train.npz"], "members": 8}
    named |= {"entries": ["deterministic", "temperature_scaling", "stochastic_attention:16", "director"], "title": "Synthetic clothing"}

    def write(
        key: str = "c1a550123456789a", *, status: str = "done", spec: dict | None = None, row: dict | None = None, result=None, **changes
    ) -> str:
        folder = store.make_folder(key)
        if status == "done":
            made = synthetic("fake_classification").make(key=key, **changes) if result is None else result
            made.to_netcdf(folder / "classification.nc", engine="h5netcdf")
        values = {"key": key, "title": "Synthetic clothing", "status": status, "spec": json.dumps(named | (spec or {}))}
        values |= {"created": time.time(), "finished": time.time(), "done": 5, "total": 10} | (row or {})
        with store.table() as connection:
            connection.execute(f"INSERT INTO runs ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values()))
        return key

    return write
