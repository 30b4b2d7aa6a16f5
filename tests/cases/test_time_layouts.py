"""One ensemble in many layouts: initial, lead and valid times however they are written give the same numbers."""

import numpy as np
import pytest
import xarray as xr

from engine.errors import EngineError
from tests.cases.series import days, expected, members, observed, save, scored

LEAD = np.timedelta64(72, "h").astype("timedelta64[ns]")
VALID = days()
INIT = VALID - LEAD
TRUTH = observed(VALID)
ENSEMBLE = members(TRUTH)
NAMES = {"time": "valid"}


def started(init="time", lead="lead_time", hours=72.0, attrs=None, where="dim"):
    """The ensemble on its initial times with one lead time: a dimension of one, a scalar, or along the starts."""
    data = ENSEMBLE.rename(time=init).assign_coords({init: INIT})
    value = hours if attrs is not None else LEAD
    if where == "scalar":
        return data.assign_coords({lead: ((), value, attrs or {})})
    if where == "along":
        return data.assign_coords({lead: (init, np.full(len(INIT), value), attrs or {})})
    return data.expand_dims({lead: [value]}).assign_coords({lead: (lead, [value], attrs or {})})


def two_leads(init="init_time", lead="lead_time", valid=None):
    """Starts × two lead times; the other lead is worthless."""
    leads = np.array([24, 72], "timedelta64[h]").astype("timedelta64[ns]")
    right = ENSEMBLE.rename(time=init).assign_coords({init: INIT})
    data = xr.concat([right + 50, right], xr.DataArray(leads, dims=lead, name=lead)).assign_attrs(units="K").rename("t2m")
    if valid:
        data = data.assign_coords({valid: ((init, lead), INIT[:, None] + leads[None])})
    return data


def cds(scalar=False):
    """Today's layout of the Climate Data Store and of ECMWF: all three times, valid_time of two dimensions."""
    data = started("forecast_reference_time", "forecast_period", 72.0, {"units": "hours", "standard_name": "forecast_period"})
    data["forecast_reference_time"].attrs["standard_name"] = "forecast_reference_time"
    return data.rename(member="number").assign_coords(valid_time=(("forecast_reference_time", "forecast_period"), VALID[:, None]))


LAYOUTS = {
    "valid times": lambda: ENSEMBLE,
    "valid_time": lambda: ENSEMBLE.rename(time="valid_time"),
    "capital letters": lambda: ENSEMBLE.rename(time="Time", member="Number"),
    "time × lead of one": lambda: started(),
    "time and a scalar lead": lambda: started(where="scalar"),
    "time with leads along it": lambda: started("init_time", where="along"),
    "prediction_timedelta": lambda: started("time", "prediction_timedelta", where="scalar"),
    "init_time × step": lambda: started("init_time", "step"),
    "initialization × lead in days": lambda: started("initialization", "lead", 3.0, {"units": "days"}),
    "initial_time × forecast_hour without units": lambda: started("initial_time", "forecast_hour", 72.0, {}),
    "reference_time × leadtime in minutes": lambda: started("reference_time", "LeadTime", 4320.0, {"units": "minutes"}, "scalar"),
    "start × seconds": lambda: started("start_time", "lead_time", 259200.0, {"units": "s"}),
    "forecast_reference_time × forecast_period": cds,
    "cfgrib": lambda: started("time", "step", where="scalar").assign_coords(valid_time=("time", VALID)),
    "valid along time, start scalar of each": lambda: ENSEMBLE.assign_coords(forecast_reference_time=("time", INIT)),
    "valid and initial times, and the lead": lambda: ENSEMBLE.assign_coords(
        forecast_reference_time=("time", INIT), forecast_period=((), 72, {"units": "h"})
    ),
    "valid times with the standard names of CF": lambda: ENSEMBLE.assign_coords(
        time=("time", VALID, {"standard_name": "time"}), lead=((), 72, {"units": "h", "standard_name": "forecast_period"})
    ),
    "another name, by its standard name": lambda: started(
        "bt", "fp", 72.0, {"units": "h", "standard_name": "forecast_period"}
    ).assign_coords(bt=("bt", INIT, {"standard_name": "forecast_reference_time"})),
    "index with a time along it": lambda: ENSEMBLE.assign_coords(record=("time", np.arange(20))).swap_dims(time="record"),
    "unsorted": lambda: ENSEMBLE.isel(time=np.random.default_rng(0).permutation(20)),
    "dates as text": lambda: started("init_time", "lead_time").assign_coords(init_time=INIT.astype("datetime64[s]").astype(str)),
}
LED = {
    "init_time × lead_time": lambda: two_leads(),
    "time × prediction_timedelta": lambda: two_leads("time", "prediction_timedelta"),
    "climetlab": lambda: two_leads("forecast_time", "lead_time", "valid_time"),
    "cds": lambda: two_leads("forecast_reference_time", "forecast_period", "valid_time"),
}


@pytest.fixture(scope="module")
def right():
    return expected(ENSEMBLE, TRUTH)


@pytest.fixture
def truth(tmp_path):
    return save(TRUTH, tmp_path / "obs.nc")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_numbers(layout, tmp_path, truth, right):
    found = scored(save(LAYOUTS[layout](), tmp_path / "fc.nc"), truth)
    assert (found["crps_fair"]["value"], found["rmse"]["value"]) == pytest.approx(right, rel=1e-6)
    assert found["times"]["matched"] == found["times"]["forecast"] == 20


@pytest.mark.parametrize("layout", LED)
def test_one_of_several_lead_times_is_chosen(layout, tmp_path, truth, right):
    path = save(LED[layout](), tmp_path / "fc.nc")
    found = scored(path, truth, lead_time=72)
    assert (found["crps_fair"]["value"], found["rmse"]["value"]) == pytest.approx(right, rel=1e-6)
    assert found["times"]["lead_hours"] == [72]
    with pytest.raises(EngineError, match=r"2 lead times \(24, 72 h\).*--lead-time"):
        scored(path, truth)
    with pytest.raises(EngineError, match="48 h"):
        scored(path, truth, lead_time=48)


@pytest.mark.parametrize(
    "steps",
    [
        lambda: ENSEMBLE.rename(time="step").assign_coords(step=VALID - INIT[0], time=INIT[0]),
        lambda: ENSEMBLE.rename(time="step").assign_coords(step=VALID - INIT[0], time=INIT[0], valid_time=("step", VALID)),
        lambda: (
            ENSEMBLE.rename(time="lead_time")
            .assign_coords(lead_time=("lead_time", np.arange(3, 23), {"units": "days"}))
            .expand_dims(init_time=INIT[:1])
        ),
        lambda: ENSEMBLE.assign_coords(lead_time=("time", VALID - INIT[0])),
    ],
    ids=["step and a scalar time", "and valid times", "init_time of one", "leads along valid times"],
)
def test_the_steps_of_one_start_are_cases_of_their_own(steps, tmp_path, truth, right):
    path = save(steps(), tmp_path / "fc.nc")
    found = scored(path, truth)
    assert (found["crps_fair"]["value"], found["rmse"]["value"]) == pytest.approx(right, rel=1e-6)
    assert len(found["times"]["lead_hours"]) == 20
    one = scored(path, truth, lead_time=96)
    assert one["times"]["matched"] == 1 and one["times"]["first"] == "2020-01-02T00:00"


def test_scalar_times_count(tmp_path):
    valid = [save(TRUTH.isel(time=t), tmp_path / f"o{t}.nc") for t in (0, 1)]
    forecast = save(ENSEMBLE.isel(time=0), tmp_path / "f0.nc")
    alone = expected(ENSEMBLE.isel(time=[0]), TRUTH.isel(time=[0]))
    assert scored(forecast, valid[0])["rmse"]["value"] == pytest.approx(alone[1], rel=1e-6)
    with pytest.raises(EngineError, match=r"no common time: forecast 2020-01-01.*observed 2020-01-02"):
        scored(forecast, valid[1])
    from_start = ENSEMBLE.isel(time=0).drop_vars("time").assign_coords(forecast_reference_time=INIT[0], forecast_period=72.0)
    assert scored(save(from_start, tmp_path / "s.nc"), valid[0])["rmse"]["value"] == pytest.approx(alone[1], rel=1e-6)
    with pytest.raises(EngineError, match="no common time"):
        scored(tmp_path / "s.nc", valid[1])


def test_a_time_on_one_side_only(tmp_path):
    timeless = save(TRUTH.isel(time=0, drop=True), tmp_path / "o.nc")
    found = scored(save(ENSEMBLE.isel(time=[0]), tmp_path / "one.nc"), timeless)
    assert found["rmse"]["cases"] == 1 and "no time" in " ".join(found["notes"])
    with pytest.raises(EngineError, match="20 times in forecast only"):
        scored(save(ENSEMBLE, tmp_path / "all.nc"), timeless)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda: started().assign_coords(valid_time=("time", VALID + LEAD)), "not time.*plus lead_time"),
        (lambda: ENSEMBLE.rename(time="init_time").assign_coords(init_time=INIT), "no lead time.*--lead-time"),
        (lambda: ENSEMBLE.rename(time="lead_time").assign_coords(lead_time=np.arange(20.0)), "without an initial or valid time"),
        (lambda: started("init_time", "lead_time", 3.0, {"units": "months"}), "no fixed length"),
        (lambda: started("init_time", "lead_time", 3.0, {"units": "years"}, "scalar"), "no fixed length"),
        (lambda: started("init_time", "lead_time", 3.0, {"units": "furlongs"}), "furlongs"),
        (lambda: started("init_time", "lead_time", 2.592e14, {}), "without units"),
        (lambda: started().assign_coords(time=("time", INIT, {"standard_name": "time"})), "initial or the valid time.*--rename"),
        (lambda: started("init_time").assign_coords(init_time=np.arange(20)), "plain numbers"),
        (lambda: started("init_time").drop_vars("lead_time"), "lead_time without values|dimension"),
    ],
)
def test_what_contradicts_or_could_mean_two_things_is_refused(spoil, says, tmp_path, truth):
    with pytest.raises(EngineError, match=says):
        scored(save(spoil(), tmp_path / "fc.nc"), truth)


def test_a_rename_says_which_time_it_is(tmp_path, truth, right):
    path = save(started().assign_coords(time=("time", INIT, {"standard_name": "time"})), tmp_path / "fc.nc")
    found = scored(path, truth, rename={"time": "init_time"})
    assert found["rmse"]["value"] == pytest.approx(right[1], rel=1e-6)


def test_initial_times_alone_need_the_lead_time(tmp_path, truth, right):
    path = save(ENSEMBLE.rename(time="init_time").assign_coords(init_time=INIT), tmp_path / "fc.nc")
    assert scored(path, truth, lead_time=72)["rmse"]["value"] == pytest.approx(right[1], rel=1e-6)


def test_observations_from_short_forecasts(tmp_path, right):
    """As ERA5 keeps what it accumulates: starts × steps, whose valid times are a series."""
    steps = np.array([0, 24], "timedelta64[h]").astype("timedelta64[ns]")
    block = TRUTH.values.reshape(10, 2, *TRUTH.shape[1:])
    data = xr.DataArray(block, dims=("time", "step", "latitude", "longitude"), name="t2m", attrs={"units": "K"})
    data = data.assign_coords(time=VALID[::2], step=steps, latitude=TRUTH.latitude, longitude=TRUTH.longitude)
    found = scored(save(ENSEMBLE, tmp_path / "f.nc"), save(data, tmp_path / "o.nc"))
    assert found["rmse"]["value"] == pytest.approx(right[1], rel=1e-6) and found["times"]["matched"] == 20
