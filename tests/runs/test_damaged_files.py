"""Damaged files of every kind end in a result or in a refusal, whatever a library raises on the way."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from engine.backbones import inspect_checkpoint, open_checkpoint
from engine.backbones._climatology import read_climatology
from engine.backbones._normalisation import read_normalisation
from engine.data import open_fields, open_labelled
from engine.errors import EngineError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "mutated"
INDEX = (SHARED / "INDEX.tsv").read_text().splitlines() if (SHARED / "INDEX.tsv").exists() else []
FILES = [line.split("\t")[0] for line in INDEX] or ["none"]


def fields(path: Path) -> None:
    open_fields(path)[0].load(scheduler="synchronous")


def checkpoint(path: Path) -> None:
    inspect_checkpoint(path)
    model = open_checkpoint(path)
    if hasattr(model, "kind"):
        from engine.runs.inspect import inspect_files

        inspect_files(path, ())


def climatology(path: Path) -> None:
    read_climatology(path, ["geopotential_500"], {"geopotential_500": "m2 s-2"}, (8, 16))


def labelled(path: Path) -> None:
    found = open_labelled(path)
    np.asarray(found.inputs[:4])


def road(name: str):
    """How a file is brought, by the name of its folder."""
    for start, call in (
        ("ckpt", checkpoint), ("hf_", checkpoint), ("safetensors", checkpoint), ("clim", climatology), ("norm", read_normalisation),
        ("images", labelled), ("npy", labelled), ("npz_0", labelled), ("text", labelled),
    ):  # fmt: skip
        if name.startswith(start):
            return call
    return fields


def ends(call, path: Path) -> None:
    try:
        call(path)
    except EngineError as refusal:
        assert refusal.what and refusal.found and refusal.expected and refusal.remedy


@pytest.mark.parametrize("name", FILES)
def test_mutated(name, home):
    if name == "none":
        pytest.skip("the mutated files are not here")
    if name.startswith("grib"):
        pytest.importorskip("eccodes", reason="GRIB needs the optional package eccodes")
    ends(road(name), SHARED / name)


def written(kind: str, folder: Path) -> tuple[Path, list[Path]]:
    """A sound source of a kind, and its files."""
    rng = np.random.default_rng(0)
    dims = ("time", "latitude", "longitude")
    coords = {"time": np.datetime64("2018-01-01", "ns") + np.arange(3) * np.timedelta64(6, "h")}
    coords |= {"latitude": np.linspace(78.75, -78.75, 8), "longitude": np.arange(16) * 22.5}
    z = (54000 + rng.normal(0, 50, (3, 8, 16))).astype(np.float32)
    data = xr.Dataset({"z500": (dims, z, {"units": "m2 s-2"})}, coords)
    path = folder / kind
    if kind == "netcdf4":
        data.to_netcdf(path, engine="h5netcdf", encoding={"z500": {"zlib": True}})
    elif kind == "netcdf3":
        data.assign_coords(time=np.arange(3.0)).to_netcdf(path, engine="scipy")
    elif kind.startswith("zarr"):
        data.to_zarr(path, zarr_format=int(kind[-1]), consolidated=False)
    elif kind == "npz":
        path.mkdir()
        np.save(path / "lat.npy", coords["latitude"])
        np.save(path / "lon.npy", coords["longitude"])
        np.savez_compressed(path / "2018_0.npz", geopotential_500=np.resize(z, (365, 1, 8, 16)))  # a year in steps of a day
    elif kind == "texts":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in (("bad/1.txt", "a film " * 40), ("good/2.txt", "good " * 40)):
                archive.writestr(name, text)
    elif kind == "arrays":
        np.savez_compressed(path, images=rng.integers(0, 255, (3, 8, 8, 3), dtype=np.uint8), labels=np.arange(3))
        path = path.with_name("arrays.npz")
    return path, [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("kind", ["netcdf4", "netcdf3", "zarr2", "zarr3", "npz", "texts", "arrays"])
@pytest.mark.filterwarnings("ignore")  # what libraries warn of in a damaged file is not looked at
def test_any_bytes_may_be_damaged(kind, tmp_path, home):
    rng = np.random.default_rng(3)
    path, files = written(kind, tmp_path)
    call = labelled if kind in ("texts", "arrays") else fields
    call(path)  # sound, it is read
    for _ in range(40):
        file = files[int(rng.integers(len(files)))]
        whole = file.read_bytes()
        changed = bytearray(whole)
        for at in rng.integers(0, len(changed), int(rng.integers(1, 6))):
            changed[at] = rng.integers(256)
        if rng.random() < 0.2:
            changed = changed[: int(rng.integers(1, len(changed)))]
        file.write_bytes(bytes(changed))
        ends(call, path)
        file.write_bytes(whole)
