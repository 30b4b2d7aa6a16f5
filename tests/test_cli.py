"""The command line: one JSON document on stdout and nothing else, exit codes, and errors that say what to do."""

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import engine.__main__ as cli
from engine.runs import jobs, store

_place = importlib.util.spec_from_file_location("runs_conftest", Path(__file__).parent / "runs" / "conftest.py")
_runs = importlib.util.module_from_spec(_place)
_place.loader.exec_module(_runs)
world, make, _one_thread = _runs.world, _runs.make, _runs._one_thread  # fixtures of tests/runs
_place = importlib.util.spec_from_file_location("tiny_classifier", Path(__file__).with_name("tiny_classifier.py"))
tiny = importlib.util.module_from_spec(_place)
_place.loader.exec_module(tiny)


@pytest.fixture
def call(home, capsys, monkeypatch):
    """`call(words…)`: (exit code, stdout, stderr)."""

    def run(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["engine", *map(str, words)])
        code = cli.main()
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def answer(call):
    """`answer(words…)`: the document of a verb with --json; fails where stdout holds anything else, or the code is not `code`."""

    def run(*words, code: int = 0):
        found, out, err = call(*words, "--json")
        assert found == code, f"exit {found}\n{out}\n{err}"
        return json.loads(out)

    return run


FEW = ("--nu", "2,16", "--members", "4", "--max-cases", "5", "--calibrate-cases", "4", "--calibrate-members", "2", "--bootstrap", "100")
FEW += ("--variables", "geopotential_height_500", "--scores", "crps_fair,w1_pit,coverage_95,width_95,rmse,acc,spread_skill_ratio")


def sweep(world, *more) -> tuple:
    return ("sweep", "--checkpoint", world.checkpoint, "--data", world.verify, "--calibrate", world.calibrate, *FEW, *more)


def check_rows(document: dict, nus: list[int]) -> None:
    """The contract's shape."""
    assert [r["nu"] for r in document["rows"]] == nus
    for r in document["rows"]:
        assert {"nu", "members", "seconds"} < r.keys()
        for name in ("w1_pit", "coverage_95", "width_95", "crps_fair", "rmse", "acc", "spread_skill_ratio"):
            assert r[name].keys() == {"value", "low", "high"}
    assert document["operating_points"].keys() == {"calibration_first", "score_oriented"}


def test_sweep_writes_its_results_and_is_found_again(answer, call, world, tmp_path) -> None:
    document = answer(*sweep(world, "--out", tmp_path / "out"))
    check_rows(document, [2, 16])
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"verification.nc", "fields.nc", "spec.json", "report.html"}
    # the written spec gives the same run, and so does the command line that the document names
    assert answer("sweep", "--spec", tmp_path / "out" / "spec.json")["key"] == document["key"]
    listed = answer("runs")["runs"]
    assert [(r["key"], r["status"], r["share"]) for r in listed] == [(document["key"], "done", 1.0)]
    assert answer("runs", "show", document["key"])["key"] == document["key"]
    written = answer("report", document["key"], "--out", tmp_path / "again.html")
    assert written["bytes"] == (tmp_path / "again.html").stat().st_size > 10_000
    code, out, _ = call(*sweep(world))
    assert code == 0 and "score-oriented: ν = " in out
    assert answer("runs", "remove", document["key"]) == {"runs": []}
    assert not store.folder(document["key"]).exists()


def test_progress_goes_to_stderr(call, world) -> None:
    code, out, err = call(*sweep(world, "--json"))
    assert code == 0 and json.loads(out)
    assert "opening the model and the data" in err and "verifying" in err


def test_demo_reads_its_files_like_any_other(answer, world, tmp_path, monkeypatch) -> None:
    shutil.copytree(world.folder, tmp_path / "demo")
    (tmp_path / "demo" / "model.safetensors").rename(tmp_path / "demo" / "climax.safetensors")
    monkeypatch.setattr("engine.runs.spec.DEMO", tmp_path / "demo")
    document = answer("demo", "--nu", "2,16", "--members", "3", "--cases", "4")
    check_rows(document, [2, 16])
    assert document["cases"] == 4 and document["variable"] == "geopotential_height_500"


def test_demo_without_its_files_is_refused(answer, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("engine.runs.spec.DEMO", tmp_path)
    assert "climax.safetensors" in answer("demo", code=2)["error"]["what"]


def test_doctor(answer, home, monkeypatch) -> None:
    monkeypatch.setattr("engine.runs.doctor._demo", lambda: "ready")
    found = answer("doctor")
    assert found["ok"] and found["device"] and found["versions"]["torch"]
    shutil.rmtree(home)
    home.write_text("no folder")
    assert answer("doctor", code=2)["ok"] is False


def test_inspect(answer, world) -> None:
    found = answer("inspect", world.checkpoint, world.verify)
    assert {"format", "backbone", "parameters", "keys", "sites", "replay_error", "refusal", "data"} <= found.keys()
    assert found["refusal"] is None and len(found["sites"]) == 3
    assert "num_heads" in answer("inspect", world.checkpoint, "--num-heads", "8", code=2)["refusal"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sweep",), "--checkpoint"),
        (("sweep", "--checkpoint", "c", "--data", "d", "--nu", "1,x"), "whole numbers"),
        (("sweep", "--members", "many"), "members"),
        (("sweep", "--colour", "red"), "--colour"),
        (("fly",), "fly"),
        (("runs", "fly"), "cancel"),
        (("runs", "show"), "key"),
        (("runs", "show", "none0123456789ab"), "no such run"),
        (("runs", "cancel", "../../x"), "no such run"),
        (("report", "none0123456789ab"), "no such run"),
        (("inspect", "nowhere.ckpt"), "nowhere.ckpt"),
        (("score", "--forecast", "nowhere.nc", "--observed", "nowhere.nc"), "nowhere.nc"),
        (("score", "--forecast", "f.nc"), "observed"),
        (("score", "--forecast", "f.nc", "--observed", "o.nc", "--region", "[1, 2]"), "south"),
        (("score", "--forecast", "f.nc", "--observed", "o.nc", "--thresholds", "warm"), "numbers"),
        (("sweep", "--checkpoint", "c", "--data", "d", "--architecture", "[1]"), "JSON object"),
        (("sweep", "--checkpoint", "c", "--data", "d", "--regions", "{"), "JSON object"),
        (("sweep", "--spec", "nowhere.yaml"), "nowhere.yaml"),
        (("sweep", "--spec", "s.yaml", "--members", "5"), "--members"),
        (("benchmark", "fly"), "attention"),
        (("benchmark", "director", "--colour", "red"), "--colour"),
        (("benchmark", "director", "--seeds", "many"), "--seeds"),
        (("benchmark", "director", "--sets", "cola"), "--data"),
        (("run", "--data", "d.npz"), "--checkpoint"),
        (("run", "--checkpoint", "c"), "--data"),
        (("run", "--checkpoint", "nowhere.safetensors", "--data", "d.npz", "--method", "deterministic"), "nowhere.safetensors"),
        (("run", "--method", "director:shaky"), "no_noise"),
        (("run", "--nu", "1,x"), "whole numbers"),
        (("run", "--outside", "letters.npz"), "name=path"),
        (("run", "--params", "[1]"), "JSON object"),
        (("run", "--spec", "s.yaml", "--members", "5"), "--members"),
    ],
)
def test_misuse_is_answered_in_the_form_that_was_asked_for(answer, call, words, says) -> None:
    error = answer(*words, code=2)["error"]
    assert error.keys() == {"what", "found", "expected", "remedy"} and all(error.values())
    assert says in json.dumps(error)
    code, out, err = call(*words)
    assert code == 2 and out == "" and err.strip()


def test_a_fault_of_ours_exits_with_1(answer, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "runs", lambda: 1 / 0)
    error = answer("runs", code=1)["error"]
    assert "ZeroDivisionError" in error["found"]


def test_an_interrupt_says_how_to_go_on(answer, monkeypatch) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "runs", stop)
    assert "goes on" in answer("runs", code=2)["error"]["remedy"]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(answer, world, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(jobs, "run", lambda *_: pytest.fail("the work began"))
    assert "--out" in answer(*sweep(world, "--out", tmp_path / "file" / "out"), code=2)["error"]["remedy"]


def test_as_a_program(home, world) -> None:
    """Once as users call it: a process, its exit code, its two streams."""
    command = [sys.executable, "-m", "engine", "runs", "list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(cli.__file__).parent.parent)
    assert done.returncode == 0 and json.loads(done.stdout) == {"runs": []} and done.stderr == ""


# ---- run ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clothes(tmp_path_factory):
    """A tiny classifier and its data."""
    return tiny.write(tmp_path_factory.mktemp("classifier"))


def classify(clothes, *more, methods: str = "deterministic,temperature_scaling,stochastic_attention:4") -> tuple:
    files = ("--checkpoint", clothes.checkpoint, "--data", clothes.verify, "--calibrate", clothes.calibrate, "--fit", clothes.fit)
    return ("run", "--method", methods, *files, "--members", "3", "--bootstrap", "100", "--max-cases", "40", *more)


def test_run_of_a_classifier(answer, call, clothes, tmp_path) -> None:
    words = classify(clothes, "--outside", f"noise={clothes.outside}", "--corruptions", "blur", "--severities", "3")
    document = answer(*words, "--out", tmp_path / "out")
    assert document["task"] == "classification" and {"rows", "differences", "notes", "key", "sentences"} <= document.keys()
    assert [r["entry"] for r in document["rows"]] == ["deterministic", "temperature_scaling", "stochastic_attention:4"]
    for row in document["rows"]:
        for name in ("accuracy", "ece", "nll", "brier_multiclass", "mcc", "auroc_failure", "auroc_ood_max_softmax"):
            assert row[name].keys() == {"value", "low", "high"}
        assert {"title", "parameters", "milliseconds", "members", "fit_seconds"} <= row.keys()
    assert document["differences"]["deterministic"]["temperature_scaling"]["nll"].keys() == {"value", "low", "high"}
    kept = {p.name for p in (tmp_path / "out").iterdir()}
    assert kept == {"classification.nc", "spec.json", "states"}
    assert [p.name for p in (tmp_path / "out" / "states").iterdir()] == ["temperature_scaling.safetensors"]
    assert answer("run", "--spec", tmp_path / "out" / "spec.json")["key"] == document["key"]
    code, out, _ = call(*words)
    assert code == 0 and "Frozen model" in out and "Temperature scaling against Frozen model: " in out
    assert answer("runs", "show", document["key"])["spec"]["task"] == "classification"
    # the command line that the document names computes the same run
    assert answer(*shlex.split(document["command"])[3:])["key"] == document["key"]


def test_run_with_a_learned_state_and_parameters(answer, clothes, tmp_path) -> None:
    learned = answer(*classify(clothes, "--params", '{"epochs": 1}', "--out", tmp_path, methods="director"))
    state = tmp_path / "states" / "director.safetensors"
    again = answer(*classify(clothes, "--state", f"director={state}", methods="director"))
    assert again["rows"][0]["nll"] == learned["rows"][0]["nll"] and again["rows"][0]["fit_seconds"] is None
    assert "epochs" in json.dumps(
        answer(*classify(clothes, "--params", '{"epochs": 9}', "--state", f"director={state}", methods="director"), code=2)
    )


def test_each_model_is_pointed_to_its_verb(answer, clothes, world) -> None:
    error = answer("sweep", "--checkpoint", clothes.checkpoint, "--data", clothes.verify, code=2)["error"]
    assert "classifier" in error["found"] and "engine run" in error["remedy"]
    error = answer("calibrate", "--checkpoint", clothes.checkpoint, "--data", clothes.verify, "--calibrate", clothes.calibrate, code=2)[
        "error"
    ]
    assert "engine run" in error["remedy"]
    assert "classifier" in answer(*classify(clothes, "--variables", "t850"), code=2)["error"]["found"]
    fields = ("run", "--checkpoint", world.checkpoint, "--data", world.verify)
    assert "fields" in answer(*fields, "--method", "stochastic_attention", "--outside", "a=b", code=2)["error"]["found"]
    assert "one method" in answer(*fields, "--method", "stochastic_attention,deterministic", code=2)["error"]["expected"]


def test_run_on_fields_is_a_sweep_of_one_method(answer, world) -> None:
    words = ("run", "--method", "stochastic_attention", "--checkpoint", world.checkpoint, "--data", world.verify, "--nu", "4")
    document = answer(*words, "--members", "3", "--max-cases", "3", "--bootstrap", "100", "--variables", "geopotential_height_500")
    assert [r["nu"] for r in document["rows"]] == [4] and document["rows"][0]["members"] == 3


def test_inspect_a_classifier(answer, call, clothes) -> None:
    found = answer("inspect", clothes.checkpoint, clothes.verify, "--calibrate", clothes.calibrate)
    assert found["task"] == "classification" and found["refusal"] is None and found["classes"] == list(tiny.CLASSES)
    assert found["sites"] == ["blocks.0.attn", "blocks.1.attn"] and found["replay_error"] < 1e-4
    assert found["data"]["sets"] == {"verify": 90, "calibrate": 60} and sum(found["data"]["labels"].values()) == 90
    code, out, _ = call("inspect", clothes.checkpoint)
    assert code == 0 and "classifier of 3 classes" in out and "ready to run" in out


# ---- score -------------------------------------------------------------------------------------------------------------------

LATITUDE, LONGITUDE = np.linspace(80, -80, 9), np.arange(0, 360, 30.0)


def ensemble(members: int = 6, days: int = 8, dim: str = "member") -> tuple[xr.Dataset, xr.Dataset]:
    """A calibrated ensemble of T850 and its observations."""
    rng = np.random.default_rng(3)
    centre = 280 + 5 * rng.normal(size=(days, 9, 12))
    coords = {
        "time": np.datetime64("2001-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D"),
        "latitude": LATITUDE,
        "longitude": LONGITUDE,
    }
    dims = ("time", "latitude", "longitude")
    x = (centre + rng.normal(size=(members, *centre.shape))).astype(np.float32)
    y = (centre + rng.normal(size=centre.shape)).astype(np.float32)
    attrs = {"units": "K"}
    return xr.Dataset({"t850": ((dim, *dims), x, attrs)}, coords), xr.Dataset({"t850": (dims, y, attrs)}, coords)


def written(folder: Path, forecast: xr.Dataset, observed: xr.Dataset, kind: str = "nc") -> tuple:
    """The two as files, and the words of the command line for them."""
    for name, data in (("forecast", forecast), ("observed", observed)):
        path = folder / f"{name}.{kind}"
        data.to_netcdf(path, engine="h5netcdf") if kind == "nc" else data.to_zarr(path, consolidated=False)
    return ("score", "--forecast", folder / f"forecast.{kind}", "--observed", folder / f"observed.{kind}")


@pytest.mark.parametrize("kind", ["nc", "zarr"])
def test_score_of_files(answer, call, tmp_path, kind) -> None:
    forecast, observed = ensemble()
    words = written(tmp_path, forecast, observed, kind)
    found = answer(*words)
    kept = {name: found.pop(name) for name in ("changes", "notes", "times", "valid", "variable", "units")}
    assert kept["times"]["matched"] == kept["times"]["forecast"] == kept["times"]["observed"] == 8
    assert list(found) == ["crps_fair", "w1_pit", "coverage_95", "width_95", "rmse", "spread_skill_ratio"]
    for one in found.values():
        assert one.keys() == {"value", "low", "high", "cases", "valid_fraction", "independent_cases"}
        assert one["low"] <= one["value"] <= one["high"] and one["cases"] == 8 and one["valid_fraction"] == 1.0
    # the mean of six members is off by √(1 + 1/6) of the unit noise
    assert found["rmse"]["value"] == pytest.approx(np.sqrt(7 / 6), rel=0.1)
    code, out, _ = call(*words, "--scores", "rmse")
    assert code == 0 and "\nrmse: " in out and "8 cases, 100.0% valid" in out and "times: 8 matched" in out


def test_score_names_the_member_dimension(answer, tmp_path) -> None:
    forecast, observed = ensemble(dim="draw")
    words = written(tmp_path, forecast, observed)
    assert "draw" in json.dumps(answer(*words, code=2)["error"])
    assert answer(*words, "--member-dim", "draw")["rmse"]["cases"] == 8


def test_score_turns_grids_the_right_way_and_says_so(answer, call, tmp_path) -> None:
    forecast, observed = ensemble()
    straight, turned = tmp_path / "straight", tmp_path / "turned"
    straight.mkdir()
    turned.mkdir()
    expected = answer(*written(straight, forecast, observed))
    flipped = observed.isel(latitude=slice(None, None, -1))
    flipped = flipped.assign_coords(longitude=(flipped.longitude + 180) % 360 - 180).sortby("longitude")
    words = written(turned, forecast, flipped)
    code, out, err = call(*words, "--json")
    assert code == 0
    found = json.loads(out)
    said = found.pop("changes")
    assert expected.pop("changes") == [] and found == expected
    assert all(line in err for line in said) and len(said) == 2
    assert "observed.nc" in err and "north" in err and "longitude" in err


def test_score_of_profiles_is_readable(answer, call, tmp_path) -> None:
    words = written(tmp_path, *ensemble())
    scores = ("--scores", "rank_histogram,exceedance,crps_fair", "--thresholds", "278,280")
    found = answer(*words, *scores)
    assert len(found["rank_histogram"]["value"]) == 7 and sum(found["rank_histogram"]["value"]) == pytest.approx(1)
    assert isinstance(found["exceedance"]["value"], dict)
    code, out, _ = call(*words, *scores)
    assert code == 0 and "rank_histogram: [0." in out and "crps_fair: " in out and "8 cases" in out


def test_score_with_climatology_lead_time_and_region(answer, tmp_path) -> None:
    forecast, observed = ensemble()
    climate = observed.mean("time", keep_attrs=True)
    climate.to_netcdf(tmp_path / "climate.nc", engine="h5netcdf")
    words = written(tmp_path, forecast, observed)
    assert "climatology" in json.dumps(answer(*words, "--scores", "acc", code=2)["error"])
    found = answer(*words, "--scores", "acc", "--climatology", tmp_path / "climate.nc")
    assert 0.9 < found["acc"]["value"] < 1.0  # anomalies of 5 K against errors of 1 K
    named = answer(*words, "--scores", "rmse", "--region", "tropics")
    boxed = answer(*words, "--scores", "rmse", "--region", "[-20, 20, -180, 180]")
    assert named == boxed != answer(*words, "--scores", "rmse")
    leads = xr.concat(
        [forecast, forecast + 1], dim=xr.DataArray([24.0, 48.0], dims="lead_time", attrs={"units": "hours"}, name="lead_time")
    )
    leads["t850"].attrs["units"] = "K"
    valid = observed.assign_coords(time=observed.time + np.timedelta64(1, "D"))
    other = tmp_path / "leads"
    other.mkdir()
    words = written(other, leads, valid)
    assert "2 lead times" in json.dumps(answer(*words, "--scores", "rmse", code=2)["error"])
    assert answer(*words, "--scores", "rmse", "--lead-time", "24")["rmse"]["cases"] == 8


def test_facts_of_the_wrong_kind_are_the_users_to_mend(answer, world) -> None:
    found = answer("inspect", str(world.checkpoint), "--architecture", '{"grid": "x"}', code=2)
    assert "grid" in json.dumps(found) and "fault inside" not in json.dumps(found)


def test_a_lead_time_that_the_checkpoint_does_not_name_is_noted_and_regions_are_answered(answer, world) -> None:
    found = answer(*sweep(world, "--lead-hours", "48", "--regions", '{"pacific": [-60, 60, 170, -170]}'))
    assert "48 h" in found["notes"][0]
    assert [r["nu"] for r in found["regions"]["pacific"]] == [r["nu"] for r in found["rows"]]


def test_every_score_that_was_asked_for_is_answered(answer, world) -> None:
    words = sweep(world)
    words = words[: words.index("--scores")] if "--scores" in words else words
    found = answer(*words, "--scores", "crps_fair,bias", "--seed", "5")
    assert {"value", "low", "high"} <= set(found["rows"][0]["bias"])


def test_preflight_refuses_data_for_a_model_without_its_normalisation(answer, world, tmp_path) -> None:
    """What a run would refuse, the preflight refuses; the checkpoint alone is only told."""
    alone = tmp_path / "alone" / "model.safetensors"
    alone.parent.mkdir()
    shutil.copy(world.checkpoint, alone)
    assert answer("inspect", alone)["normalisation"].startswith("missing")
    assert "normalisation" in answer("inspect", alone, world.verify, code=2)["refusal"]
    assert answer("inspect", world.checkpoint, world.verify)["refusal"] is None
