"""Files of times, leads and members that people reported in public, each small and with the number that is right."""

import importlib.util
import json
import sys

import numpy as np
import pytest
import xarray as xr

import engine.__main__ as cli

LATITUDE, LONGITUDE = np.arange(60, -61, -15.0), np.arange(0, 360, 30.0)
PLACES = {"latitude": LATITUDE, "longitude": LONGITUDE}
SPACE = ("latitude", "longitude")


@pytest.fixture
def score(home, capsys, monkeypatch, tmp_path):
    """`score(forecast files, observed file, …)` by the command line: (exit code, document)."""

    def run(forecast: str, observed: str, *more: str):
        words = [w for name in forecast.split() for w in ("--forecast", str(tmp_path / name))]
        words = ["score", *words, "--observed", str(tmp_path / observed), "--scores", "crps_fair,rmse", *more, "--json"]
        monkeypatch.setattr(sys, "argv", ["engine", *words])
        code = cli.main()
        return code, json.loads(capsys.readouterr().out)

    return run


def numbers(found) -> tuple[float, float]:
    code, document = found
    assert code == 0, document
    return document["crps_fair"]["value"], document["rmse"]["value"]


def refusal(found) -> str:
    code, document = found
    assert code == 2, document
    return " ".join(document["error"].values())


def days(first: str, last: str, unit: str = "D") -> np.ndarray:
    return np.arange(first, last, dtype=f"datetime64[{unit}]").astype("datetime64[ns]")


def field(values, dims, coords, name="t2m", units="K") -> xr.DataArray:
    return xr.DataArray(values, dims=(*dims, *SPACE), coords=coords | PLACES, name=name, attrs={"units": units})


def test_wb2_235_scalar_lead(score, tmp_path) -> None:
    rng, t = np.random.default_rng(1), days("2020-01-01", "2020-03-01")
    wave = np.sin(np.arange(t.size) / 3)[:, None, None] * np.cos(np.deg2rad(LONGITUDE))[None, None, :]
    truth = (280 + 10 * wave + np.zeros((1, 9, 1)) + rng.normal(0, 0.5, (t.size, 9, 12))).astype("f4")
    field(truth, ("time",), {"time": t}, "2m_temperature").to_netcdf(tmp_path / "obs.nc")
    members = np.stack([truth[3:] + rng.normal(0, 1, truth[3:].shape) for _ in range(10)]).astype("f4")
    lead = {"prediction_timedelta": np.array([72], "timedelta64[h]").astype("timedelta64[ns]")}
    whole = field(members[:, :, None], ("number", "time", "prediction_timedelta"), {"time": t[:-3]} | lead, "2m_temperature")
    whole.to_netcdf(tmp_path / "fc_dim.nc")
    whole.isel(prediction_timedelta=0).to_netcdf(tmp_path / "fc_scalar.nc")
    found = score("fc_scalar.nc", "obs.nc")
    assert numbers(found) == pytest.approx((0.231964, 0.313769), abs=1e-6)
    assert found[1]["times"]["matched"] == t.size - 3 and found[1]["times"]["lead_hours"] == [72]
    assert numbers(found) == numbers(score("fc_dim.nc", "obs.nc"))


def test_lead_units(score, tmp_path) -> None:
    rng, t, init = np.random.default_rng(10), days("2020-01-01", "2020-03-15", "h"), days("2020-01-01", "2020-01-21")
    y = (285 + np.cumsum(rng.normal(0, 0.3, (t.size, 9, 12)), 0)).astype("f4")
    field(y, ("time",), {"time": t}).to_netcdf(tmp_path / "obs.nc")
    kinds = (("hour", 24, 24), ("h", 24, 24), ("hours", 24, 24), ("days", 1, 24), ("day", 1, 24), ("weeks", 1, 168), ("months", 1, 744))
    for units, number, hours in (*kinds, ("minutes", 1440, 24), (None, 24, 24)):
        at = y[np.searchsorted(t, init + np.timedelta64(hours, "h"))]
        members = (at + rng.normal(0, 1, (8, init.size, 9, 12)))[:, :, None].astype("f4")
        lead = ("lead_time", [number], {"units": units} if units else {})
        field(members, ("member", "time", "lead_time"), {"time": init, "lead_time": lead}).to_netcdf(tmp_path / f"fc_{units}.nc")
    assert numbers(score("fc_weeks.nc", "obs.nc"))[0] == pytest.approx(0.236233, abs=1e-6)
    assert "no fixed length" in refusal(score("fc_months.nc", "obs.nc"))
    for units, hours in (("hour", 24), ("h", 24), ("days", 24), ("minutes", 24), ("weeks", 168)):
        assert score(f"fc_{units}.nc", "obs.nc")[1]["times"]["lead_hours"] == [hours]
    bare = score("fc_None.nc", "obs.nc")[1]
    assert bare["times"]["lead_hours"] == [24] and any("hours" in line for line in bare["changes"])


def test_xr_8468_float_times(score, tmp_path) -> None:
    rng, t = np.random.default_rng(9), days("2023-11-16T06", "2023-11-18T06", "h")
    y = rng.normal(285, 5, (t.size, 9, 12)).astype("f4")
    x = (y + rng.normal(0, 1, (6, *y.shape)) * (1 + np.arange(t.size) % 6)[None, :, None, None]).astype("f4")
    field(x, ("ens", "time"), {"time": t}).to_netcdf(tmp_path / "fc.nc")
    exact = (t - np.datetime64(0, "ns")).astype("timedelta64[s]").astype(float) / 86400
    six = np.round(exact + 719162 + 2, 6)  # days of the mixed calendar, with six decimals
    times = ("time", six, {"units": "days since 1-1-1 00:00:0.0"})
    field(y, ("time",), {"time": times}).to_netcdf(tmp_path / "obs_grads.nc")
    field(y, ("time",), {"time": t}).to_netcdf(tmp_path / "obs_exact.nc")
    found = score("fc.nc", "obs_grads.nc")
    assert numbers(found)[0] == pytest.approx(0.820466, abs=1e-6)
    assert (
        found[1]["times"]["matched"] == 48 and 0 < found[1]["times"]["largest_difference_seconds"] < found[1]["times"]["tolerance_seconds"]
    )
    assert numbers(found) == numbers(score("fc.nc", "obs_exact.nc"))


def test_members_in_files(score, tmp_path) -> None:
    rng, t = np.random.default_rng(12), days("2020-01-01", "2020-01-21")
    y = rng.normal(285, 8, (20, 9, 12)).astype("f4")
    field(y, ("time",), {"time": t}).to_netcdf(tmp_path / "obs.nc")
    for k in range(4):
        m = (y + rng.normal(0, 1, y.shape)).astype("f4")
        field(m, ("time",), {"time": t}).to_netcdf(tmp_path / f"m{k}.nc")
        field(m[None], ("number", "time"), {"time": t, "number": [k]}).to_netcdf(tmp_path / f"n{k}.nc")
    by_number, by_file = score("n0.nc n1.nc n2.nc n3.nc", "obs.nc"), score("m0.nc m1.nc m2.nc m3.nc", "obs.nc")
    assert numbers(by_number) == numbers(by_file) == pytest.approx((0.231034, 0.499191), abs=1e-6)
    assert any("4 files is a member" in line for line in by_file[1]["changes"] + by_file[1]["notes"])


def test_era5_new_cds(score, tmp_path) -> None:
    rng, t = np.random.default_rng(13), days("2024-01-01", "2024-01-21")
    z = rng.normal(54000, 1500, (20, 2, 9, 12)).astype("f4")
    z[:, 1] += 90000
    members = (z + rng.normal(0, 300, (8, *z.shape))).astype("f4")
    units, old = "m**2 s**-2", {"level": ("level", [500, 250], {"units": "millibars"})}
    new = {"pressure_level": ("pressure_level", [500.0, 250.0], {"units": "hPa", "standard_name": "air_pressure"}), "number": 0}
    new |= {"valid_time": t, "expver": ("valid_time", np.array(["0001"] * 15 + ["0005"] * 5))}
    field(z, ("valid_time", "pressure_level"), new, "z", units).to_netcdf(tmp_path / "obs_new.nc")
    field(members, ("number", "time", "level"), {"number": np.arange(8), "time": t} | old, "z", units).to_netcdf(tmp_path / "fc.nc")
    split = np.full((20, 2, 2, 9, 12), np.nan, "f4")
    split[:15, 0], split[15:, 1] = z[:15], z[15:]
    coords = {"time": t, "expver": [1, 5]} | old
    field(split, ("time", "expver", "level"), coords, "z", units).to_netcdf(tmp_path / "obs_expver.nc")
    merged = score("fc.nc", "obs_expver.nc", "--variable", "geopotential_500")
    assert numbers(merged) == numbers(score("fc.nc", "obs_new.nc", "--variable", "geopotential_500"))
    assert merged[1]["times"]["matched"] == 20 and any("expver 1, 5 merged" in line for line in merged[1]["changes"])
    split[3, 1] = z[3]  # both versions at one time: which is right cannot be told
    field(split, ("time", "expver", "level"), coords, "z", units).to_netcdf(tmp_path / "obs_both.nc")
    assert "expver" in refusal(score("fc.nc", "obs_both.nc", "--variable", "geopotential_500"))


def test_member_dim_strict(score, tmp_path) -> None:
    rng = np.random.default_rng(11)
    y = rng.normal(0, 40, (20, 9, 12)).astype("f4")
    x = (y + rng.normal(0, 20, (8, *y.shape))).astype("f4")
    for times, tag in ((days("2020-01-01", "2020-01-21"), "dated"), (np.arange(20), "numbered")):
        field(y, ("time",), {"time": times}, "z500", "m").to_netcdf(tmp_path / f"obs_{tag}.nc")
        for dim in ("member", "M"):
            field(x, (dim, "time"), {"time": times}, "z500", "m").to_netcdf(tmp_path / f"fc_{dim}_{tag}.nc")
        named, plain = score(f"fc_M_{tag}.nc", f"obs_{tag}.nc", "--member-dim", "M"), score(f"fc_member_{tag}.nc", f"obs_{tag}.nc")
        assert numbers(named)[0] == pytest.approx(4.66649, abs=1e-5) and numbers(named) == numbers(plain)
        assert named[1]["times"]["matched"] == 20


@pytest.mark.skipif(importlib.util.find_spec("eccodes") is None, reason="needs eccodes, of the optional group grib")
def test_climetlab_33_control_and_perturbed(score, tmp_path) -> None:
    import eccodes as ec

    rng = np.random.default_rng(18)
    truth = 54000 + 1500 * rng.normal(size=684)
    grid = {"Ni": 36, "Nj": 19, "iDirectionIncrementInDegrees": 10, "jDirectionIncrementInDegrees": 10}
    grid |= {"latitudeOfFirstGridPointInDegrees": 90, "latitudeOfLastGridPointInDegrees": -90}
    grid |= {"longitudeOfFirstGridPointInDegrees": 0, "longitudeOfLastGridPointInDegrees": 350}
    with (tmp_path / "fc.grib").open("wb") as file:
        for n in range(6):
            handle = ec.codes_grib_new_from_samples("regular_ll_pl_grib2")
            keys = {"productDefinitionTemplateNumber": 1, "dataDate": 20200501, "dataTime": 0} | grid
            keys |= {"paramId": 129, "level": 500, "typeOfProcessedData": 4 if n else 3, "typeOfEnsembleForecast": 3 if n else 1}
            for key, value in (keys | {"perturbationNumber": n, "numberOfForecastsInEnsemble": 6, "step": 72}).items():
                ec.codes_set(handle, key, value)
            ec.codes_set_values(handle, truth + 200 * rng.normal(size=684))
            ec.codes_write(handle, file)
            ec.codes_release(handle)
    places = {"latitude": np.arange(90, -91, -10.0), "longitude": np.arange(0, 360, 10.0)}
    times = {"time": np.array(["2020-05-04"], "datetime64[ns]")}
    observed = xr.DataArray(truth.reshape(1, 19, 36).astype("f4"), dims=("time", *SPACE), coords=times | places, name="z500")
    observed.assign_attrs(units="m**2 s**-2").to_netcdf(tmp_path / "obs.nc")
    found = score("fc.grib", "obs.nc")
    assert numbers(found) == pytest.approx((48.7291, 86.2106), abs=1e-3)
    assert found[1]["times"]["matched"] == 1 and len(found[1]["valid"]["by_member"]) == 6
