"""A small ensemble and what was observed, as series that tests write in many layouts; and how they are scored."""

import numpy as np
import xarray as xr

LATITUDE, LONGITUDE = np.arange(60.0, -61, -30), np.arange(0.0, 360, 45)
PLACE = {"latitude": LATITUDE, "longitude": LONGITUDE}


def days(start="2020-01-01", count=20, step="D"):
    first = np.datetime64(start, "ns")
    return first + np.arange(count) * np.timedelta64(1, step).astype("timedelta64[ns]")


def observed(times, seed=0, name="t2m", units="K") -> xr.DataArray:
    rng = np.random.default_rng(seed)
    values = (285 + rng.normal(0, 5, (len(times), len(LATITUDE), len(LONGITUDE)))).astype("f4")
    return xr.DataArray(values, dims=("time", "latitude", "longitude"), coords={"time": times} | PLACE, name=name, attrs={"units": units})


def members(truth: xr.DataArray, count=5, seed=1, noise=1.0) -> xr.DataArray:
    """Members around the truth: dimension `member` first, on the truth's valid times."""
    rng = np.random.default_rng(seed)
    values = (truth.values + rng.normal(0, noise, (count, *truth.shape))).astype("f4")
    return xr.DataArray(
        values, dims=("member", *truth.dims), coords={"member": np.arange(count)} | dict(truth.coords), name=truth.name, attrs=truth.attrs
    )


def save(data, path, **options):
    data.to_netcdf(path, engine="h5netcdf", **options)
    return path


def scored(forecast, observed, **options):
    from engine.runs.score import score_files

    return score_files(forecast, observed, ("crps_fair", "rmse"), replicates=10, **options)


def expected(ensemble: xr.DataArray, truth: xr.DataArray) -> tuple[float, float]:
    """The same two scores of arrays that are already aligned."""
    from engine.runs.score import score

    return tuple(score(n, ensemble, truth) for n in ("crps_fair", "rmse"))
