"""Labelled arrays meet by valid time, however initial, lead and valid times are written."""

import numpy as np
import pytest
import xarray as xr

import engine
from engine.errors import DatasetError, ScoreError

DAY = np.timedelta64(24, "h")
STARTS = np.datetime64("2020-01-01", "ns") + np.arange(30) * np.timedelta64(6, "h")


def observed() -> xr.DataArray:
    times = STARTS[0] + np.arange(34) * np.timedelta64(6, "h")
    return xr.DataArray(np.cumsum(np.random.default_rng(0).normal(size=34)), dims="time", coords={"time": times})


def forecast() -> xr.DataArray:
    """Members about what is observed a day after each start, on its starts."""
    members = observed().values[4:] + 0.3 * np.random.default_rng(1).normal(size=(8, 30))
    return xr.DataArray(members, dims=("member", "init_time"), coords={"init_time": STARTS})


def right() -> float:
    return float(engine.score("crps_fair", forecast().values, observed().values[4:]))


@pytest.mark.parametrize(
    "written",
    [
        lambda f: f.rename(init_time="time").assign_coords(time=STARTS + DAY),
        lambda f: f.assign_coords(lead_time=DAY),
        lambda f: f.assign_coords(prediction_timedelta=DAY),
        lambda f: f.assign_coords(step=((), 24, {"units": "hours"})),
        lambda f: f.assign_coords(valid_time=("init_time", STARTS + DAY)),
        lambda f: f.expand_dims(lead_time=[DAY]),
        lambda f: f.rename(init_time="forecast_reference_time").expand_dims(forecast_period=[DAY]),
        lambda f: f.rename(member="ens").assign_coords(lead_time=DAY),
    ],
    ids=["valid", "scalar lead", "timedelta", "step", "valid beside", "lead of one", "data store", "other member name"],
)
def test_every_layout_gives_the_same_number(written) -> None:
    assert engine.score("crps_fair", written(forecast()), observed()) == pytest.approx(right(), rel=1e-12)


def test_time_beside_a_lead_is_the_initial_time_and_that_is_said() -> None:
    told = forecast().rename(init_time="time").assign_coords(lead_time=DAY)
    with pytest.warns(UserWarning, match="taken for the initial time"):
        found = engine.score("crps_fair", told, observed())
    assert found == pytest.approx(right(), rel=1e-12)


def test_a_lead_time_that_is_not_there_is_asked_for() -> None:
    with pytest.raises(ScoreError, match=r"no lead time.*lead_time= in Python"):
        engine.score("crps_fair", forecast(), observed())
    with pytest.warns(UserWarning, match="24 h is the valid time, as asked"):
        found = engine.score("crps_fair", forecast(), observed(), lead_time=24)
    assert found == pytest.approx(right(), rel=1e-12)


def test_a_month_is_no_lead_time() -> None:
    with pytest.raises(DatasetError, match="no fixed length"):
        engine.score("crps_fair", forecast().assign_coords(lead_time=((), 1, {"units": "months"})), observed())


def test_two_scalar_times_that_differ_are_refused() -> None:
    members = xr.DataArray(np.zeros((4, 3)), dims=("member", "x"), coords={"time": np.datetime64("2020-01-01", "ns")})
    truth = xr.DataArray(np.zeros(3), dims="x", coords={"time": np.datetime64("2020-06-01", "ns")})
    with pytest.raises(ScoreError, match="no common time"):
        engine.score("crps_fair", members, truth)


def test_cases_without_dates_keep_their_order_or_number() -> None:
    plain = xr.DataArray(forecast().values, dims=("member", "time"))
    truth = xr.DataArray(observed().values[4:], dims="time")
    assert engine.score("crps_fair", plain, truth) == pytest.approx(right(), rel=1e-12)
    numbers = {"time": np.arange(30)}
    assert engine.score("crps_fair", plain.assign_coords(numbers), truth.assign_coords(numbers)) == pytest.approx(right(), rel=1e-12)
