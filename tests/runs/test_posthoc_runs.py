"""Post-hoc methods in a run: learned on the calibration split alone, laid over what is verified, the same after a kill."""

import json

import numpy as np
import pytest
import xarray as xr

from engine.errors import CalibrationError, SpecError
from engine.runs import execute, jobs, posthoc, store
from engine.runs.landscape import Landscape
from engine.runs.plan import make_plan
from engine.runs.rows import document, table
from engine.runs.verification import open_fields
from engine.settings import settings

SCORES = ("crps_fair", "w1_pit", "coverage_95", "coverage_80", "width_95", "rmse", "spread_skill_ratio")


def numbers(key: str) -> dict[str, np.ndarray]:
    with xr.open_dataset(store.folder(key) / "verification.nc", engine="h5netcdf") as file:
        return {str(n): v.values for n, v in file.variables.items() if n != "seconds"}


def test_temperature_is_learned_on_the_calibration_split_and_applied(home, spec) -> None:
    """T by the public kernel on the calibration ensembles; the verified spread is T times the native one, the mean the same."""
    native = jobs.run(spec(scores=SCORES, calibrate_cases=12))
    after = jobs.run(spec(scores=SCORES, calibrate_cases=12, posthoc="temperature_variance", posthoc_params={"rule": "nll"}))
    plan = make_plan(spec(scores=SCORES, calibrate_cases=12, posthoc="temperature_variance", posthoc_params={"rule": "nll"}).resolved())
    entry, params = plan.posthoc
    members, observed = Landscape(plan).members(16)
    state = posthoc.fit_state(entry, members[:, :, 0], observed[:, 0], plan.weights, params)
    ratio = after["spread_skill_ratio"].sel(nu=16) / native["spread_skill_ratio"].sel(nu=16)
    np.testing.assert_allclose(ratio, float(state["temperature_variance"]), rtol=1e-5)
    np.testing.assert_allclose(after["rmse"], native["rmse"], rtol=1e-6)
    said = document(after)["posthoc"]
    assert said["method"] == "temperature_variance" and set(said["learned"]) == {"2", "16"}
    assert said["title"] in table(document(after)) and not said["intervals"]
    with open_fields(store.folder(after.attrs["key"])) as fields:
        low, high = (fields["quantiles"].sel(quantile=q, nu=16).values for q in (0.025, 0.975))
    with open_fields(store.folder(native.attrs["key"])) as fields:
        before = fields["quantiles"].sel(quantile=0.975, nu=16).values - fields["quantiles"].sel(quantile=0.025, nu=16).values
    np.testing.assert_allclose((high - low) / before, float(state["temperature_variance"]), rtol=5e-3)


@pytest.mark.parametrize("posthoc", ["temperature_variance", "conformal", "isotonic"])
def test_what_is_verified_teaches_nothing(home, spec, make, tmp_path, posthoc) -> None:
    """Other weather of the same days to verify on: the same state, to the last bit."""
    other = tmp_path / "other.nc"
    make.fields("0004-01-01", 40, 99).to_netcdf(other, engine="h5netcdf")
    found, learned = [], []
    for data in ({}, {"data": (other,)}):
        found.append(jobs.run(spec(scores=SCORES, max_cases=2, calibrate_cases=12, nu=(16,), posthoc=posthoc, **data)))
        place = store.folder(found[-1].attrs["key"]) / "posthoc"
        arrays = {}
        for path in sorted(place.glob("*.npz")):
            with np.load(path) as file:
                arrays |= {f"{path.name}: {name}": file[name] for name in file.files}
        learned.append(arrays)
    assert learned[0] and learned[0].keys() == learned[1].keys()
    for name, values in learned[0].items():
        np.testing.assert_array_equal(values, learned[1][name], err_msg=name)
    assert not np.allclose(found[0]["crps_fair"], found[1]["crps_fair"]), "what is verified is another"


def test_conformal_levels_that_need_more_cases_are_left_out_and_said(home, spec) -> None:
    found = jobs.run(spec(scores=SCORES, calibrate_cases=12, posthoc="conformal"))
    first = found.isel(region=0, lead_time=0, variable=0)
    assert np.isnan(first["coverage_95"]).all(), "12 cases cannot promise 95 %"
    assert (first["coverage_80"] > 0.5).all()
    said = document(found)["posthoc"]
    assert "expected at least 19 for 95 %" in said["learned"]["2"] and "exchangeable" in said["guarantee"]
    assert found.attrs["nominal_95"] == 0.95 and said["intervals"] and "promised" in table(document(found))
    maps = found["coverage_map"].isel(lead_time=0, variable=0)
    assert np.isnan(maps.sel(level=95)).all() and np.isfinite(maps.sel(level=80)).all()
    np.testing.assert_allclose(maps.sel(level=80).weighted(np.cos(np.deg2rad(found.latitude))).mean(("latitude", "longitude")),
                               first["coverage_80"], atol=0.02)  # fmt: skip


def test_too_few_cases_for_any_level_is_a_refusal(home, spec, monkeypatch) -> None:
    monkeypatch.setattr("engine.methods.conformal.needed", lambda level: 5)
    with pytest.raises(CalibrationError, match="found 4 calibration cases"):
        jobs.run(spec(calibrate_cases=4, posthoc="conformal"))


def test_a_killed_run_goes_on_to_the_same(home, spec, tmp_path, monkeypatch) -> None:
    asked = spec(scores=SCORES, calibrate_cases=8, posthoc="isotonic")
    expected = numbers(jobs.run(asked).attrs["key"])
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "other"))
    settings.cache_clear()
    true, count = execute.fit_state, []

    def once(*args):
        if count:
            raise SystemError("as if killed")
        count.append(1)
        return true(*args)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(execute, "fit_state", once)
        jobs.run(asked)
    found = numbers(jobs.run(asked).attrs["key"])
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"posthoc": "isotonic", "calibrate": ()}, "calibration files"),
        ({"posthoc": "beauty"}, "conformal"),
        ({"posthoc": "stochastic_attention"}, "makes forecasts"),
        ({"method": "isotonic"}, "--posthoc"),
        ({"posthoc": "conformal", "posthoc_params": {"kind": "x"}}, "kind"),
    ],
)
def test_what_does_not_fit_is_refused(home, spec, fields, says) -> None:
    with pytest.raises(SpecError) as refusal:
        jobs.run(spec(**fields))
    assert says in str(refusal.value)


def test_the_command_says_the_same_run(home, spec) -> None:
    import shlex

    asked = spec(posthoc="conformal", posthoc_params={"kind": "split", "per": "region"}).resolved()
    words = shlex.split(asked.command())
    assert words[words.index("--posthoc") + 1] == "conformal"
    assert json.loads(words[words.index("--posthoc-params") + 1]) == {"kind": "split", "per": "region"}
