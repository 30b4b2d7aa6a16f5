"""The public function: arrays and labelled fields, alignment by value, weights, refusals, bounded memory."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

from engine.errors import EngineError, ScoreError
from engine.kernels.area import cell_area
from engine.registry import entries
from engine.runs import score as module
from engine.runs.score import score
from engine.types import Score

RNG = np.random.default_rng(0)
LAT, LON = np.array([67.5, 22.5, -22.5, -67.5]), np.arange(0.0, 360.0, 60.0)
TIME = np.arange("2020-01-01", "2020-01-06", dtype="datetime64[D]").astype("datetime64[ns]")
X, Y = RNG.normal(size=(6, 5, 4, 6)), RNG.normal(size=(5, 4, 6))
FORECAST = xr.DataArray(
    X, dims=("member", "time", "latitude", "longitude"), coords={"time": TIME, "latitude": LAT, "longitude": LON}, attrs={"units": "K"}
)
OBSERVED = xr.DataArray(
    Y, dims=("time", "latitude", "longitude"), coords={"time": TIME, "latitude": LAT, "longitude": LON}, attrs={"units": "K"}
)
AREA = np.broadcast_to(cell_area(LAT)[:, None], (4, 6))
EXPECTED = score("crps_fair", X, Y, weights=AREA)


@pytest.mark.parametrize("name", ["member", "number", "ensemble", "realization", "realisation", "ens", "Number"])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_member_dimension_is_found_by_name_anywhere(name, place):
    order = ["time", "latitude", "longitude"]
    order.insert(place, name)
    field = FORECAST.rename(member=name).transpose(*order)
    assert score("crps_fair", field, OBSERVED) == pytest.approx(EXPECTED, rel=1e-13)


def test_labelled_fields_weigh_by_area():
    assert pytest.approx(score("crps_fair", X, Y), rel=1e-3) != EXPECTED
    assert score("crps_fair", FORECAST, OBSERVED) == pytest.approx(EXPECTED, rel=1e-13)


@pytest.mark.parametrize(
    "observed",
    [
        OBSERVED.isel(latitude=slice(None, None, -1)),
        OBSERVED.assign_coords(longitude=np.where(LON >= 180, LON - 360, LON)).sortby("longitude"),
        OBSERVED.transpose("longitude", "time", "latitude"),
        OBSERVED.rename(latitude="lat", longitude="lon"),
        OBSERVED.rename(time="valid_time").isel(valid_time=[4, 2, 0, 1, 3]),
        OBSERVED.assign_coords(latitude=LAT.astype(np.float32), longitude=LON.astype(np.float32) + np.float32(1e-4)),
        OBSERVED.assign_coords(time=TIME.astype("datetime64[s]")),
        OBSERVED.pad(time=(0, 2), mode="edge").assign_coords(
            time=np.concatenate([TIME, TIME[-1:] + np.timedelta64(1, "D"), TIME[-1:] + np.timedelta64(2, "D")])
        ),
    ],
    ids=[
        "latitude turned",
        "longitude from -180",
        "transposed",
        "short names",
        "times shuffled",
        "float32 coordinates",
        "other resolution",
        "more times",
    ],
)
def test_meets_by_coordinate_value(observed):
    assert score("crps_fair", FORECAST, observed) == pytest.approx(EXPECTED, rel=1e-13)


def test_climatology_and_reference_meet_too():
    climatology = OBSERVED.mean("time")
    expected = score("acc", X, Y, weights=AREA, climatology=climatology.values)
    turned = climatology.isel(latitude=slice(None, None, -1)).rename(longitude="lon")
    assert score("acc", FORECAST, OBSERVED, climatology=turned) == pytest.approx(expected, rel=1e-12)
    shift = score("mean_shift_rmse", FORECAST, OBSERVED, reference=FORECAST.mean("member") + 2)
    assert shift == pytest.approx(2, rel=1e-12)


def test_unlabelled_case_dimension():
    dims = ("case", "latitude", "longitude")
    a = xr.DataArray(X, dims=("member", *dims), coords={"latitude": LAT, "longitude": LON})
    b = xr.DataArray(Y, dims=dims, coords={"latitude": LAT, "longitude": LON})
    assert score("crps_fair", a, b) == pytest.approx(EXPECTED, rel=1e-13)
    assert score("crps_fair", a.isel(case=0), b.isel(case=0)) == pytest.approx(score("crps_fair", X[:, :1], Y[:1], weights=AREA), rel=1e-13)


@pytest.mark.parametrize(
    ("forecast", "observed", "says"),
    [
        (FORECAST.rename(member="pony"), OBSERVED, "member_dim="),
        (FORECAST, OBSERVED.assign_attrs(units="m s-1"), "'K'.*'m s-1'"),
        (FORECAST, OBSERVED.assign_coords(latitude=LAT + 3), "latitude grids"),
        (FORECAST, OBSERVED.assign_coords(longitude=LON + 30), "longitude grids"),
        (FORECAST, OBSERVED.assign_coords(time=TIME + np.timedelta64(99, "D")), "no common time"),
        (FORECAST, OBSERVED.drop_vars("time"), "no coordinate values in observed"),
        (FORECAST, OBSERVED.isel(time=0, drop=True), "forecast only"),
        (FORECAST.isel(time=[0, 0, 1]), OBSERVED, "twice in forecast"),
        (FORECAST, OBSERVED.expand_dims(level=[1, 2]), "level"),
        (FORECAST, Y, "one labelled"),
        (FORECAST.convert_calendar("noleap", use_cftime=True), OBSERVED, "calendars noleap and standard"),
    ],
)
def test_labelled_refusals(forecast, observed, says):
    with pytest.raises(ScoreError, match=says):
        score("crps_fair", forecast, observed)


def test_array_refusals():
    with pytest.raises(ScoreError, match="Move axis 1 to the front"):
        score("crps_fair", np.moveaxis(X, 0, 1), Y)
    with pytest.raises(ScoreError, match="shapes"):
        score("crps_fair", X, Y[:3])
    with pytest.raises(ScoreError, match="at least 2"):
        score("crps_fair", X[:1], Y)
    with pytest.raises(ScoreError, match="no thresholds"):
        score("brier", X, Y)
    with pytest.raises(ScoreError, match="weights"):
        score("crps_fair", X, Y, weights=np.ones(5))
    with pytest.raises(ScoreError, match="weights"):
        score("crps_fair", X, Y, weights=-np.ones((4, 6)))
    with pytest.raises(ScoreError, match="no valid point"):
        score("crps_fair", X, np.full(Y.shape, np.nan))
    with pytest.raises(ScoreError, match=r"infinite value at \(0, 1, 2\)"):
        score("crps_fair", X, np.where(np.arange(120).reshape(5, 4, 6) == 8, np.inf, Y))
    with pytest.raises(EngineError, match="crps_fair"):
        score("crps", X, Y)  # the estimator is part of the name


def test_missing_values_and_case_weights():
    y, x = Y.copy(), X.copy()
    y[0] = np.nan
    assert score("rmse", x, y) == pytest.approx(score("rmse", X[:, 1:], Y[1:]), rel=1e-13)
    weights = np.ones(Y.shape)
    weights[0] = 0
    assert score("rmse", X, Y, weights=weights) == pytest.approx(score("rmse", X[:, 1:], Y[1:]), rel=1e-13)
    by_case = np.array([1.0, 0, 0, 0, 3])
    expected = (score("crps_fair", X[:, :1, 0, 0], Y[:1, 0, 0]) + 3 * score("crps_fair", X[:, 4:, 0, 0], Y[4:, 0, 0])) / 4
    assert score("crps_fair", X[:, :, 0, 0], Y[:, 0, 0], weights=by_case) == pytest.approx(expected, rel=1e-13)


def test_plain_numbers_and_lists():
    assert score("crps_fair", [0.0, 2.0, 4.0], 2.0) == pytest.approx(0.0, abs=1e-15)
    assert score("crps_ecdf", [[0, 1], [2, 3]], [1, 1]) == pytest.approx((0.5 + 0.5) / 2)


@pytest.mark.parametrize("name", [k for k, s in entries("scoring").items() if isinstance(s, Score) and k != "variogram_score"])
def test_streaming_gives_the_same_value(name, monkeypatch):
    x, y = np.round(RNG.normal(size=(7, 40)), 1), np.round(RNG.normal(size=40), 1)
    options = {"climatology": np.zeros(40), "reference": x[0], "thresholds": (0.0, 0.5), "spread_edges": (1.0,)}
    whole = score(name, x, y, **options)
    monkeypatch.setattr(module, "BLOCK", 7 * 9)
    parts = score(name, x, y, **options)
    for key in whole if isinstance(whole, dict) else [None]:
        a, b = (whole, parts) if key is None else (whole[key], parts[key])
        np.testing.assert_allclose(a, b, rtol=1e-12)  # sums of 40 terms in another grouping


def test_memory_does_not_grow_with_cases():
    def peak(n):
        x, y = np.zeros((10, n), dtype=np.float32), np.ones(n, dtype=np.float32)
        tracemalloc.start()
        score("crps_fair", x, y)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    small, large = peak(500_000), peak(2_000_000)
    assert large < 1.2 * small + 4 * 2_000_000  # what may grow: one boolean pass over the observations
