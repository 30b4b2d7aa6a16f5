"""Calibrations as people meet them: the same answer however they came about, honest about what they saw, refused where they must be."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from engine.errors import CalibrationError, EngineError, SpecError
from engine.judging import SHIFTED
from engine.kernels.quantiles import perfect_coverage
from engine.runs import calibrate, jobs, landscape, store
from engine.runs.calibration import calibration_spec, open_calibration, verification_spec
from engine.runs.calibration_rows import document, layers_gain, table, verified
from engine.runs.plan import make_plan
from engine.runs.scales import Scales, norm, score
from engine.runs.tune import Tune
from engine.settings import settings

TUNE = {"nu_max": 64, "rounds": 4, "score_calls": 2}


@pytest.fixture
def asked(spec):
    """`asked(tune fields…)`: a calibration of a second or two."""
    return lambda _cases=8, **tune: calibration_spec(spec(calibrate_cases=_cases, scores=()), **(TUNE | tune))


def numbers(key: str) -> dict[str, np.ndarray]:
    """Every number of the result but the time that it took."""
    return {str(n): v.values for n, v in open_calibration(store.folder(key)).variables.items() if n != "seconds"}


def evaluations(found: xr.Dataset) -> dict[str, bytes]:
    """Stored evaluations by file, without their timing."""
    place = settings().home / "evaluations" / (store.folder(found.attrs["key"]) / "landscape").read_text()
    kept = {}
    for path in sorted(place.glob("*.npz")):
        with np.load(path) as file:
            kept[path.name] = b"".join(file[n].tobytes() for n in sorted(file.files) if n != "seconds")
    return kept


def same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_a_calibration_finds_the_scale(home, asked) -> None:
    found = jobs.run(asked(rounds=10))
    points = json.loads(found.attrs["operating_points"])
    first = points["calibration_first"]
    assert 1 <= first["low"] <= first["nu"] <= first["high"] <= 64
    if not first["edge"]:  # the scale at the answer is the target's, within what the posterior leaves
        at = found.sel(nu=first["nu"])
        assert abs(float(at["scale"]) / float(found["target_scale"]) - 1) < 0.1
    assert found.attrs["slope"] < 0
    assert (np.diff(found["spread"].values[:: max(1, found.sizes["nu"] // 4)]) < 0).all()
    answer = document(found)
    assert [r["nu"] for r in answer["rows"]] == found.nu.values.tolist()
    assert set(answer["operating_points"]) == {"calibration_first", "score_oriented"}
    assert answer["nominal_95"] == perfect_coverage(2, 95)
    text = table(answer)
    assert f"calibration-first: ν = {first['nu']} [" in text and "the frozen model errs by" in text


def test_the_numbers_are_those_of_the_definition(home, asked) -> None:
    """R, Z and the loss of one evaluation, from the members themselves."""
    plan = make_plan(asked().resolved())
    kept = landscape.Landscape(plan)
    scales = Scales(kept, Tune(), 100)
    evaluation = scales.at(4)
    from engine.kernels.noise import key64
    from engine.runs.forecast import deterministic, ensemble

    area, sd = plan.weights[0], plan.backbone.output_sd[plan.outputs]
    for i, case in enumerate(plan.calibrate):
        batch = plan.backbone.prepare(plan.dataset, [case])
        single = deterministic(plan, batch)[0, plan.outputs]
        members = ensemble(plan, batch, 4, 2, {}, seed=key64(0, member=0, case=4) >> 1)[:, 0, plan.outputs]
        r = [np.sqrt((((m - single) / sd[:, None, None]) ** 2 * area).sum() / len(plan.outputs)) for m in members]
        z = np.sqrt((((batch.observed[0, plan.outputs] - single) / sd[:, None, None]) ** 2 * area).sum() / len(plan.outputs))
        np.testing.assert_allclose(scales.passes(4)[i], r, rtol=1e-5)
        np.testing.assert_allclose(scales.target[i], z, rtol=1e-5)
        np.testing.assert_allclose(scales.loss(4)[i], np.mean((np.array(r) - z) ** 2), rtol=1e-4)
    whole = norm(evaluation.square, sd, Tune(norm="physical", area_weighted=False))
    assert whole.shape == (8, 2) and not np.allclose(whole, scales.passes(4))


def test_passes_at_different_nu_are_independent(home, asked) -> None:
    """The regression over ν takes it for granted: with shared noise the departures would rise and fall together."""
    kept = landscape.Landscape(make_plan(asked(16).resolved()))
    near = [kept.evaluate(nu).square for nu in (500_000, 500_001)]  # with shared noise these would be all but equal
    assert np.median(np.abs(near[0] / near[1] - 1)) > 1e-3


def test_the_departure_is_shift_and_spread(home, asked) -> None:
    """E R² = shift² + spread², exactly so for the estimates, and the shift is that of many members' mean."""
    plan = make_plan(asked(4).resolved())
    scales = Scales(landscape.Landscape(plan), Tune(), 100)
    for number in range(20):
        scales.at(2, number)
    shift, spread = scales.parts(2)
    np.testing.assert_allclose(shift + spread, (scales.passes(2) ** 2).mean(axis=1), rtol=1e-10)
    from engine.runs.forecast import deterministic, ensemble

    sd = plan.backbone.output_sd[plan.outputs][0]
    for i, case in enumerate(plan.calibrate):
        batch = plan.backbone.prepare(plan.dataset, [case])
        mean = ensemble(plan, batch, 2, 400, {}, seed=99)[:, 0, plan.outputs[0]].mean(axis=0)
        expected = (((mean - deterministic(plan, batch)[0, plan.outputs[0]]) / sd) ** 2 * plan.weights[0]).sum()
        assert shift[i] == pytest.approx(expected, abs=0.15 * spread[i] + 0.1 * expected)


def test_a_repetition_and_an_extension_use_what_is_stored(home, asked, monkeypatch) -> None:
    first = jobs.run(asked())
    made = []
    true = landscape.Landscape._compute
    monkeypatch.setattr(landscape.Landscape, "_compute", lambda self, *a: made.append(a[:2]) or true(self, *a))
    jobs.run(asked(norm="physical", objective="scale", area_weighted=False, initial=10, rounds=1))
    again = {n for n, _ in made}
    assert not again & set(np.unique(np.rint(np.geomspace(1, 64, 10))).astype(int)), "the first design was evaluated before"
    made.clear()
    key = first.attrs["key"]
    before = numbers(key)
    (store.folder(key) / "calibration.nc").unlink()
    jobs.run(asked())
    assert made == []
    same(numbers(key), before)


def test_a_sweep_and_a_calibration_share_their_evaluations(home, spec, asked) -> None:
    swept = jobs.run(spec(calibrate_cases=8, nu=(1, 64)))
    found = jobs.run(asked())
    assert (store.folder(swept.attrs["key"]) / "landscape").read_text() == (store.folder(found.attrs["key"]) / "landscape").read_text()


def test_removing_the_last_run_removes_its_evaluations(home, spec, asked) -> None:
    swept, found = jobs.run(spec(calibrate_cases=8, nu=(1, 64))), jobs.run(asked())
    place = settings().home / "evaluations"
    jobs.remove(found.attrs["key"])
    assert list(place.iterdir()), "the sweep still uses them"
    jobs.remove(swept.attrs["key"])
    assert list(place.iterdir()) == []


def test_what_is_verified_is_never_looked_at(home, spec, make, tmp_path, monkeypatch) -> None:
    """Other weather of the same days to verify on: the same scales and the same operating points, to the last bit."""
    other = tmp_path / "other.nc"
    make.fields("0004-01-01", 40, 99).to_netcdf(other, engine="h5netcdf")
    found, points = [], []
    for place, data in (("one", {}), ("two", {"data": (other,)})):
        monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / place))  # nothing kept of the other
        settings.cache_clear()
        swept = jobs.run(spec(max_cases=2, nu=(2, 16), **data))
        points.append(swept.attrs["operating_points"])
        kept = landscape.Landscape(make_plan(spec(max_cases=2, nu=(2, 16), **data).resolved()))
        found.append((kept.residual, kept.evaluate(16).square, float(swept["crps_fair"].mean())))
    assert points[0] == points[1]
    for one, two in zip(found[0][:2], found[1][:2], strict=True):
        np.testing.assert_array_equal(one, two)
    assert found[0][2] != found[1][2], "what is verified is another"


def test_another_batch_size_gives_the_same(home, asked, tmp_path, monkeypatch) -> None:
    """Members in smaller batches and cases in other shards: the same ν* and the same evaluations to the last bits of a float32."""
    one = jobs.run(asked())
    first = numbers(one.attrs["key"])
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "other"))
    settings.cache_clear()
    monkeypatch.setattr("engine.methods.stochastic_attention.TOKENS_A_CALL", 1)
    other = jobs.run(asked().model_copy(update={"shard_cases": 1}))
    second = numbers(other.attrs["key"])
    assert (
        one.attrs["operating_points"] == other.attrs["operating_points"]
        or json.loads(one.attrs["operating_points"])["calibration_first"]["nu"]
        == json.loads(other.attrs["operating_points"])["calibration_first"]["nu"]
    )
    np.testing.assert_array_equal(first["evaluation_nu"], second["evaluation_nu"])
    for name in ("evaluation_scale", "scale", "loss", "crps_fair"):
        np.testing.assert_allclose(first[name], second[name], rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("after", [1, 4])
def test_one_that_was_stopped_goes_on_to_the_same(home, asked, tmp_path, monkeypatch, after) -> None:
    whole = jobs.run(asked())
    expected, kept = numbers(whole.attrs["key"]), evaluations(whole)
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "other"))
    settings.cache_clear()
    true, count = landscape.Landscape._compute, []

    def some(self, *args):
        if len(count) == after:
            raise SystemError("as if killed")
        count.append(1)
        return true(self, *args)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(landscape.Landscape, "_compute", some)
        jobs.run(asked())
    key = asked().resolved().key()
    jobs.run(asked())
    same(numbers(key), expected)
    again = evaluations(open_calibration(store.folder(key)))
    assert again == kept


def test_a_killed_worker_is_followed_by_another_to_the_same(workers, home, asked, wait, tmp_path, monkeypatch) -> None:
    """A real kill −9 in the middle of the evaluations."""
    key = jobs.submit(asked(16, rounds=12))
    state = wait(key, lambda p: p.done > 40 or p.status == "done")
    if state.status == "running":
        with store.table() as connection:
            os.killpg(store.row(connection, key)["pid"], signal.SIGKILL)
    wait(key, lambda p: p.status == "done")
    killed = numbers(key)
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "other"))
    settings.cache_clear()
    undisturbed = jobs.run(asked(16, rounds=12)).attrs["key"]
    assert undisturbed == key
    same(killed, numbers(key))


def test_a_damaged_evaluation_is_computed_again(home, asked, caplog) -> None:
    found = jobs.run(asked())
    key = found.attrs["key"]
    before = numbers(key)
    place = settings().home / "evaluations" / (store.folder(key) / "landscape").read_text()
    victim = sorted(place.glob("nu-*.npz"))[0]
    victim.write_bytes(victim.read_bytes()[:100])
    (store.folder(key) / "calibration.nc").unlink()
    jobs.run(asked())
    assert any("again" in r.getMessage() and victim.name in r.getMessage() for r in caplog.records)
    same(numbers(key), before)


@pytest.mark.parametrize("objective", ["per_example", "grid", "w1_pit", "coverage_95", "nll_gaussian", "crps_fair"])
def test_every_objective_gives_a_point(home, asked, objective) -> None:
    found = jobs.run(asked(objective=objective))
    first = json.loads(found.attrs["operating_points"])["calibration_first"]
    assert first["nu"] in found.nu.values and first["low"] <= first["nu"] <= first["high"]
    if objective in ("w1_pit", "nll_gaussian", "crps_fair"):
        assert first["nu"] == int(found[objective].idxmin())
    if objective == "coverage_95":
        assert first["nu"] == int(np.abs(found["coverage_95"] - found.attrs["nominal_95"]).idxmin())
    if objective == "grid":
        assert float(found["loss"].sel(nu=first["nu"])) == float(found["loss"].min())


def test_verification_stands_at_what_was_found(home, asked) -> None:
    found = jobs.run(asked())
    answer = verified(found)
    points = json.loads(found.attrs["operating_points"])
    assert {r["nu"] for r in answer["rows"]} >= {p["nu"] for p in points.values()}
    assert {n: p["nu"] for n, p in answer["operating_points"].items()} == {n: p["nu"] for n, p in points.items()}
    periods = json.loads(found.attrs["periods"])
    assert periods["calibrate"]["last"] < periods["verify"]["first"]


def test_a_nu_for_each_layer_beside_the_shared_one(home, asked) -> None:
    found = jobs.run(asked(per_layer=True))
    layers = json.loads(found.attrs["per_layer"])
    assert layers["groups"].keys() == {"var_agg", "blocks.0.*", "blocks.1.*"}
    assert layers["value"] <= layers["value_shared"]
    assert layers["shared"] == json.loads(found.attrs["operating_points"])["score_oriented"]["nu"]
    answer = verified(found)
    gain = answer["per_layer"]["scores"]["crps_fair"]
    assert gain["difference"]["low"] <= gain["difference"]["value"] <= gain["difference"]["high"]
    assert gain["difference"]["value"] == pytest.approx(gain["other"] - gain["one"])
    assert layers_gain(found) == answer["per_layer"]
    if layers["value"] == layers["value_shared"]:
        assert gain["difference"]["value"] == 0, "the same ν everywhere is the same ensemble"
    own = verification_spec(found, per_layer=True)
    assert own.nu == (layers["shared"],)


def test_without_layers_there_is_nothing_to_verify_of_them(home, asked) -> None:
    with pytest.raises(EngineError, match="per-layer"):
        verification_spec(jobs.run(asked()), per_layer=True)


def test_warnings_say_what_is_wrong(home, asked) -> None:
    found = jobs.run(asked(nu_max=2, _cases=4))
    said = {w["code"]: w["text"] for w in json.loads(found.attrs["warnings"])}
    assert "few_cases" in said and "calibrate_cases" in said["few_cases"]
    assert json.loads(found.attrs["operating_points"])["calibration_first"]["edge"] and "edge" in said


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"calibrate": ()}, "calibration files"),
        ({"tune": {"nu_max": 1}}, "2"),
        ({"tune": {"objective": "beauty"}}, "scale"),
        ({"tune": {"norm_variables": ("soil",)}}, "verified variables"),
        ({"variables": (), "tune": {"norm": "physical"}}, "one unit"),
        ({"tune": None, "chosen": {"best": 3}}, "calibration_first"),
    ],
)
def test_what_cannot_be_is_refused(home, spec, fields, says) -> None:
    with pytest.raises(SpecError) as refusal:
        jobs.run(spec(**({"tune": TUNE, "calibrate_cases": 4} | fields)))
    assert says in str(refusal.value)


def test_observations_that_are_all_missing_are_refused(make, world, home, tmp_path) -> None:
    """A land mask over everything: no case has a residual."""
    import shutil

    place = shutil.copytree(world.folder, tmp_path / "masked")
    plan = make_plan(make.spec(world, calibrate_cases=4, tune=TUNE).resolved())
    kept = landscape.Landscape(plan)
    kept.__dict__["residual"] = np.full((4, 1, 2), np.nan)
    with pytest.raises(CalibrationError, match="0 case"):
        calibrate._refuse_no_target(Scales(kept, Tune(), 100))
    assert place.exists()


def test_the_commands_of_a_calibration_and_of_its_verification_say_the_same(home, asked) -> None:
    import shlex

    from typer.testing import CliRunner

    import engine.__main__ as cli

    found = jobs.run(asked(objective="grid", area_weighted=False))
    for one in (found.attrs["command"], verification_spec(found).resolved().command()):
        words = shlex.split(one)[3:]
        answer = CliRunner().invoke(cli.app, [*words, "--json"])
        assert answer.exit_code == 0, answer.output
        key = json.loads(answer.stdout)["key"]
        assert key in {found.attrs["key"], verification_spec(found).resolved().key()}


def test_scores_are_those_of_the_ensembles(home, asked) -> None:
    """The rows' fair CRPS by the package's public function, on the members themselves."""
    import engine
    from engine.kernels.noise import key64
    from engine.runs.forecast import ensemble

    plan = make_plan(asked(4).resolved())
    kept = landscape.Landscape(plan)
    value = float(score(kept.evaluate(8).statistics[plan.variables[0]], "crps_fair"))
    drawn, observed = [], []
    for case in plan.calibrate:
        batch = plan.backbone.prepare(plan.dataset, [case])
        drawn.append(ensemble(plan, batch, 8, 2, {}, seed=key64(0, member=0, case=8) >> 1)[:, 0, plan.outputs[0]])
        observed.append(batch.observed[0, plan.outputs[0]])
    expected = engine.score("crps_fair", np.stack(drawn, axis=1), np.stack(observed), weights=plan.weights[0])
    assert value == pytest.approx(expected, rel=1e-5)


def test_the_command_line_process_computes_the_same_twice(world, tmp_path) -> None:
    """Two processes with homes of their own print the same document."""
    words = ["calibrate", "--checkpoint", world.checkpoint, "--data", world.verify, "--calibrate", world.calibrate, "--variables"]
    words += ["geopotential_height_500", "--calibrate-cases", "4", "--calibrate-members", "2", "--nu-max", "16", "--rounds", "2"]
    words += ["--score-calls", "1", "--bootstrap", "100", "--json"]
    told = []
    for place in ("one", "two"):
        done = subprocess.run(
            [sys.executable, "-m", "engine", *map(str, words)],
            env=os.environ | {"NUSCOPE_HOME": str(tmp_path / place), "NUSCOPE_THREADS": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    for answer in told:
        del answer["seconds"]
        for r in answer["rows"]:
            del r["seconds"]
    assert told[0] == told[1]


def test_a_picture_of_the_other_kind_is_refused(home, spec, asked) -> None:
    from engine.errors import ExportError
    from engine.runs.picture import export

    calibration, swept = jobs.run(asked()), jobs.run(spec())
    with pytest.raises(ExportError, match="calibration"):
        export("trade_off", calibration, "csv")
    with pytest.raises(ExportError, match="calibration"):
        export("scale_fit", swept, "csv")
    assert export("scale_fit", calibration, "csv")[0]


def test_pinned_layers_stay_pinned(home, asked) -> None:
    """A block that the run itself gives a ν is no group of the search, and keeps it in both verifications."""
    found = jobs.run(asked(per_layer=True).model_copy(update={"params": {"nu_of": {"blocks.1.attn": 7}}}))
    layers = json.loads(found.attrs["per_layer"])
    assert layers["groups"].keys() == {"var_agg", "blocks.0.*"}
    for own in (False, True):
        assert verification_spec(found, per_layer=own).params["nu_of"]["blocks.1.attn"] == 7


def test_nothing_left_to_calibrate_is_refused(home, asked) -> None:
    with pytest.raises(SpecError, match="nothing to calibrate"):
        jobs.run(asked().model_copy(update={"params": {"nu_of": {"*": 7}}}))


@pytest.mark.parametrize("damage", ["junk", "half"])
def test_a_damaged_result_is_refused_and_made_again(home, asked, damage) -> None:
    key = jobs.run(asked()).attrs["key"]
    before, path = numbers(key), store.folder(key) / "calibration.nc"
    path.write_bytes(b"junk" if damage == "junk" else path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(EngineError, match="cannot be read"):
        jobs.result(key)
    jobs.run(asked())
    same(numbers(key), before)


@pytest.mark.parametrize("damage", ["swapped", "one member", "entry gone"])
def test_an_evaluation_of_other_content_is_computed_again(home, asked, damage) -> None:
    key = jobs.run(asked()).attrs["key"]
    before = numbers(key)
    place = settings().home / "evaluations" / (store.folder(key) / "landscape").read_text()
    one, other = place / "nu-1-0.npz", place / "nu-64-0.npz"
    if damage == "swapped":
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        with np.load(one) as file:
            held = dict(file)
        held = held | {"square": held["square"][:, :1]} if damage == "one member" else {n: a for n, a in held.items() if n != "square"}
        np.savez(one, **held)
    (store.folder(key) / "calibration.nc").unlink()
    jobs.run(asked())
    same(numbers(key), before)


def test_a_running_calibration_outlives_the_sweeping_of_its_evaluations(home, asked, monkeypatch) -> None:
    """Somebody removes the folder under it: what is computed from then on is written all the same."""
    true, count = landscape.Landscape._compute, []

    def swept(self, *args):
        count.append(1)
        if len(count) == 3:
            (store.folder(asked().resolved().key()) / "landscape").unlink()
            jobs._forget_evaluations()
        return true(self, *args)

    monkeypatch.setattr(landscape.Landscape, "_compute", swept)
    assert jobs.run(asked()).attrs["key"]


def test_a_shift_is_said(home, asked) -> None:
    """The warning's share is that of the parts; where it is small nothing is said."""

    found = jobs.run(asked())
    first = json.loads(found.attrs["operating_points"])["calibration_first"]
    at = found.sel(nu=first["nu"])
    share = float(at["shift"]) ** 2 / (float(at["shift"]) ** 2 + float(at["spread"]) ** 2)
    said = [w["text"] for w in json.loads(found.attrs["warnings"]) if w["code"] == "shift"]
    assert bool(said) == (share >= SHIFTED)
    if said:
        assert f"{share:.0%}" in said[0]


def test_a_calibration_that_is_killed_again_and_again_is_given_up(home, asked, monkeypatch) -> None:
    """Evaluations that are only found again do not count as getting somewhere."""

    def dies(self, *args):
        raise SystemError("as if killed")

    jobs.run(asked(rounds=1))
    key = asked(rounds=2).resolved().key()
    jobs._record(asked(rounds=2).resolved())
    assert store.update(key, attempts=3)
    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(landscape.Landscape, "_compute", dies)
        jobs.run(asked(rounds=2))
    with store.table() as connection:
        assert store.row(connection, key)["attempts"] == 4
