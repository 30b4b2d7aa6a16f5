"""Scoring files: streamed, aligned by value, with intervals; forecasts of lead times; refusals."""

import numpy as np
import pytest
import xarray as xr

from engine.errors import EngineError
from engine.runs import score_files as module
from engine.runs.score import score, score_files
from engine.runs.score_answer import scores_in

RNG = np.random.default_rng(0)
LAT, LON = np.linspace(67.5, -67.5, 4), np.arange(0.0, 360.0, 45.0)
TIME = np.arange("2020-01-01", "2020-02-10", dtype="datetime64[D]").astype("datetime64[ns]")
CENTRE = 5500 + 100 * RNG.standard_normal((40, 4, 8))
X = (CENTRE + 30 * RNG.standard_normal((10, 40, 4, 8))).astype(np.float32)
Y = (CENTRE + 30 * RNG.standard_normal((40, 4, 8))).astype(np.float32)
HEIGHT = {"units": "m", "long_name": "geopotential height at 500 hPa"}
NAMES = ("crps_fair", "w1_pit", "coverage_95", "width_95", "rmse", "spread_skill_ratio")


def forecast():
    return xr.DataArray(
        X, dims=("member", "time", "latitude", "longitude"), coords={"time": TIME, "latitude": LAT, "longitude": LON}, attrs=HEIGHT
    )


def observed():
    return xr.DataArray(Y, dims=("time", "latitude", "longitude"), coords={"time": TIME, "latitude": LAT, "longitude": LON}, attrs=HEIGHT)


def dataset(field, name="geopotential_height_500"):
    return field.to_dataset(name=name)


def run(f=None, o=None, scores=NAMES, **options):
    """Through memory: the reader is an argument."""
    held = {
        "f": dataset(forecast()) if f is None else f,
        "o": dataset(observed()) if o is None else o,
        "c": dataset(observed().mean("time").assign_attrs(HEIGHT)),
    }
    return score_files("f", "o", scores, opener=lambda p: (held[str(p)], ()), replicates=100, **options)


def test_values_intervals_and_counts(monkeypatch):
    found = run()
    assert list(scores_in(found)) == list(NAMES)
    for name, entry in scores_in(found).items():
        assert entry["value"] == pytest.approx(score(name, forecast(), observed()), rel=1e-12)
        assert entry["low"] < entry["value"] < entry["high"] or name == "w1_pit"
        assert entry["cases"] == 40
        assert entry["valid_fraction"] == 1
    monkeypatch.setattr(module, "BLOCK", 10 * 32 * 3)
    assert run() == found  # streamed three times at once: the same bits


def test_what_is_missing_is_counted_not_hidden():
    field = observed()
    field[:20, 0] = np.nan
    entry = run(o=dataset(field))["crps_fair"]
    polar, total = np.cos(np.deg2rad(67.5)), 2 * (np.cos(np.deg2rad(67.5)) + np.cos(np.deg2rad(22.5)))
    assert entry["valid_fraction"] == pytest.approx(1 - 0.5 * polar / total, rel=1e-9)
    with pytest.raises(EngineError, match="no valid point"):
        run(o=dataset(xr.full_like(observed(), np.nan)))


def test_decompositions_histograms_and_climatology():
    found = run(scores=("brier_decomposition", "rank_histogram", "acc", "pit"), thresholds=(0.0,), climatology="c")
    parts = {k: found[f"brier_decomposition_{k}"]["value"] for k in ("brier", "mcb", "dsc", "unc")}
    assert parts["mcb"] - parts["dsc"] + parts["unc"] == pytest.approx(parts["brier"], rel=1e-9)
    assert sum(found["rank_histogram"]["value"]) == pytest.approx(1)
    assert len(found["rank_histogram"]["low"]) == 11
    assert found["acc"]["value"] == pytest.approx(score("acc", forecast(), observed(), climatology=observed().mean("time")), rel=1e-6)
    assert found["pit_mean"]["value"] == pytest.approx(0.5, abs=0.05)


def test_orientation_is_settled_and_said():
    said = []
    turned = observed().isel(latitude=slice(None, None, -1), time=slice(5, None))
    turned = turned.assign_coords(longitude=np.where(LON >= 180, LON - 360, LON)).sortby("longitude")
    found = run(o=dataset(turned), say=said.append)
    assert found["rmse"]["cases"] == 35
    assert found["rmse"]["value"] == pytest.approx(score("rmse", forecast().isel(time=slice(5, None)), observed()), rel=1e-12)
    text = " ".join(said)
    assert "latitude" in text
    assert "longitude" in text
    assert "35 of 40" in text


def test_lead_times():
    leads = np.array([24, 48], dtype="timedelta64[h]").astype("timedelta64[ns]")
    both = xr.concat(
        [forecast().assign_coords(time=TIME - lead) for lead in leads],
        dim=xr.DataArray(leads, dims="lead_time", name="lead_time"),
        join="outer",
    )
    with pytest.raises(EngineError, match=r"2 lead times \(24, 48 h\)"):
        run(f=dataset(both))
    found = run(f=dataset(both), lead_time=48, scores=("rmse",))
    assert found["rmse"]["value"] == pytest.approx(score("rmse", forecast(), observed()), rel=1e-12)
    with pytest.raises(EngineError, match="72 h"):
        run(f=dataset(both), lead_time=72)


@pytest.mark.parametrize(
    ("f", "o", "options", "says"),
    [
        (dataset(forecast().mean("member").assign_attrs(HEIGHT)), None, {}, "member dimension"),
        (None, dataset(observed().assign_attrs(units="K")), {}, "'m'.*'K'"),
        (None, dataset(observed().assign_coords(time=TIME + np.timedelta64(400, "D"))), {}, "no common time"),
        (None, dataset(observed().assign_coords(latitude=LAT + 5)), {}, "latitude grids"),
        (None, dataset(observed(), "temperature_850"), {}, "geopotential_height_500.*temperature_850"),
        (None, None, {"variable": "temperature_850"}, "temperature_850 in both"),
        (None, None, {"region": (80, 90, 0, 10)}, "no grid point"),
        (None, None, {"scores": ("acc",)}, "climatology"),
        (None, None, {"scores": ("crps",)}, "crps_fair"),
    ],
)
def test_refusals(f, o, options, says):
    with pytest.raises(EngineError, match=says):
        run(f, o, **options)


def test_names_that_only_the_file_knows():
    said = []
    found = run(f=dataset(forecast(), "fc"), o=dataset(observed(), "ob"), scores=("rmse",), say=said.append)
    assert found["rmse"]["cases"] == 40
    assert any("fc" in s for s in said)


def test_files_on_disk(tmp_path):
    ours = forecast().rename(member="number", latitude="lat", longitude="lon").transpose("time", "number", "lat", "lon")
    dataset(ours, "zg500").to_netcdf(tmp_path / "f.nc", engine="h5netcdf")
    theirs = (observed() * 9.80665).assign_attrs(units="m2 s-2").isel(latitude=slice(None, None, -1))
    first, second = theirs.isel(time=slice(0, 20)), theirs.isel(time=slice(20, None))
    for name, part in (("a", first), ("b", second)):
        dataset(part, "z500").to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
    said = []
    found = score_files(tmp_path / "f.nc", [tmp_path / "a.nc", tmp_path / "b.nc"], ("crps_fair",), replicates=50, say=said.append)
    assert found["crps_fair"]["cases"] == 40
    # float32 heights times and over g₀: half a unit in the last place of 5500 is 2.4e-4 m, of a score of some 17 m
    assert found["crps_fair"]["value"] == pytest.approx(score("crps_fair", forecast(), observed()), abs=3e-4)
    text = " ".join(said)
    assert "number" in text
    assert "9.80665" in text


def test_member_dimension_of_another_name(tmp_path):
    dataset(forecast().rename(member="draw"), "zg500").to_netcdf(tmp_path / "f.nc", engine="h5netcdf")
    dataset(observed(), "zg500").to_netcdf(tmp_path / "o.nc", engine="h5netcdf")
    with pytest.raises(EngineError):
        score_files(tmp_path / "f.nc", tmp_path / "o.nc", ("rmse",))
    found = score_files(tmp_path / "f.nc", tmp_path / "o.nc", ("rmse",), member_dim="draw", replicates=50)
    assert found["rmse"]["value"] == pytest.approx(score("rmse", forecast(), observed()), rel=1e-6)
