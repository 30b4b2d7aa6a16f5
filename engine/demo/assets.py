"""From trajectories and trained weights to the demo's files: `python -m engine.demo.assets DATA TRAINING OUT`.

What it writes are files that an ordinary user could have brought: CF-conforming NetCDF, a ClimaX state dict as
safetensors with the facts recorded that shapes do not tell, and the checkpoint's own normalisation. `SHA256SUMS` holds
their hashes.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from engine.backbones._climax_net import ClimaXNet
from engine.demo import plasim, train
from engine.lexicon import identify

NAMES = {
    "z500": "geopotential_height_500",
    "t850": "temperature_850",
    "u500": "u_component_of_wind_500",
    "v500": "v_component_of_wind_500",
    "u850": "u_component_of_wind_850",
    "v850": "v_component_of_wind_850",
    "t2m": "2m_temperature",
}
"""Names in the trajectories to the names in the checkpoint."""
FILE_NAMES = {"z500": "zg500", "t850": "ta850", "u500": "ua500", "v500": "va500", "u850": "ua850", "v850": "va850", "t2m": "tas"}
STEPS = {"z500": 1.0, "t850": 0.05, "u500": 0.1, "v500": 0.1, "u850": 0.1, "v850": 0.1, "t2m": 0.05}
"""Packing steps of the NetCDF files, far below what a 72 h forecast is wrong by."""
TRAIN_EXCERPT = slice(0, 4 * 540)
"""Of trajectory 1: eighteen months, daily, for methods that train."""


def dataset(part: plasim.Trajectory, title: str) -> xr.Dataset:
    """Daily fields at 00 UTC as a CF dataset on the model's 360-day calendar."""
    at = np.flatnonzero(part.step_of_day == 0)
    days = (part.year[at] - 1) * 360 + (part.month[at] - 1) * 30 + part.day[at] - 1
    ds = xr.Dataset(
        coords={
            "time": (
                "time",
                days.astype(np.int32),
                {"units": "days since 0001-01-01 00:00:00", "calendar": "360_day", "standard_name": "time", "axis": "T"},
            ),
            "lat": ("lat", part.latitude, {"units": "degrees_north", "standard_name": "latitude", "axis": "Y"}),
            "lon": ("lon", part.longitude, {"units": "degrees_east", "standard_name": "longitude", "axis": "X"}),
        },
        attrs={
            "Conventions": "CF-1.11",
            "title": title,
            "source": "PlaSim T21L10, built from the source in exoplasim 3.4.2",
            "comment": "PlaSim T21 climate-model data: a simulated atmosphere, not an analysis of the real one; "
            "at 850 hPa clipped to 210 … 330 K and ±50 m/s, which happens below the ground of high mountains",
        },
    )
    for short, name in FILE_NAMES.items():
        quantity, level = identify(NAMES[short]) or (None, None)
        assert quantity is not None
        attrs = {
            "units": quantity.units,
            "standard_name": quantity.standard_name,
            "long_name": f"{quantity.title}{f' at {level} hPa' if level else ''}",
        }
        ds[name] = (("time", "lat", "lon"), part.fields[short][at], attrs)
        middle = float(np.round(part.fields[short].mean()))
        ds[name].encoding = {
            "dtype": "int16",
            "scale_factor": STEPS[short],
            "add_offset": middle,
            "zlib": True,
            "complevel": 9,
            "shuffle": True,
        }
        ds[name].encoding |= {"chunksizes": (min(30, len(at)), 32, 64), "_FillValue": np.int16(-32768)}
    return ds


def normalisation(data: train.Data) -> xr.Dataset:
    """Means and standard deviations as the training used them; the outputs' mean is the seasonal climatology."""
    ds = xr.Dataset(
        coords={
            "node": (
                "node",
                np.arange(plasim.NODES) * 360 // plasim.NODES,
                {"long_name": "days since the start of the 360-day year", "units": "days"},
            ),
            "latitude": ("latitude", data.latitude, {"units": "degrees_north"}),
            "longitude": ("longitude", data.longitude, {"units": "degrees_east"}),
        },
        attrs={
            "title": "Normalisation of the demo's ClimaX",
            "year_length": 360,
            "comment": "output_mean: seasonal climatology, periodic and linear between nodes",
        },
    )
    for short, name in NAMES.items():
        ds[f"{name}_input_mean"] = (("latitude", "longitude"), data.input_mean[short])
        ds[f"{name}_input_sd"] = ((), np.float32(data.input_sd[short]))
        ds[f"{name}_output_mean"] = (("node", "latitude", "longitude"), data.climatology[short])
        ds[f"{name}_output_sd"] = ((), np.float32(data.output_sd[short]))
    for name in ds.data_vars:
        if ds[name].ndim:
            ds[name].encoding = {"zlib": True, "complevel": 9, "shuffle": True}
    return ds


def main() -> None:
    """Command line."""
    from engine.backbones import write_checkpoint

    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("training", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    one, two = plasim.read(options.data / "trajectory_1.npz.xz"), plasim.read(options.data / "trajectory_2.npz.xz")
    pieces = {
        "verify.nc": (two.part(plasim.VERIFY), "the held-out year"),
        "calibrate.nc": (two.part(plasim.CALIBRATE), "180 days for calibration"),
        "train.nc": (one.part(TRAIN_EXCERPT), "eighteen months of the training data"),
    }
    for file, (part, what) in pieces.items():
        dataset(part, f"PlaSim T21 climate-model data: {what}").to_netcdf(options.out / file, engine="h5netcdf")
    data = train.Data(options.data)
    normalisation(data).to_netcdf(options.out / "normalisation.nc", engine="h5netcdf")

    net = ClimaXNet(tuple(NAMES.values()), (32, 64), **train.ARCHITECTURE)
    ema = torch.optim.swa_utils.AveragedModel(net)
    ema.load_state_dict(torch.load(options.training / "state.pt", weights_only=True)["ema"])
    net.load_state_dict(ema.module.state_dict())
    write_checkpoint(
        net,
        options.out / "climax.safetensors",
        variables=list(NAMES.values()),
        num_heads=train.ARCHITECTURE["num_heads"],
        grid=[32, 64],
        in_variables=list(NAMES.values()),
        out_variables=list(NAMES.values()),
        lead_hours=[72.0],
        training="PlaSim T21 climate-model data, see engine/demo",
    )
    files = sorted(p for p in options.out.iterdir() if p.suffix in (".nc", ".safetensors"))
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    (options.out / "SHA256SUMS").write_text(sums)


if __name__ == "__main__":
    main()
