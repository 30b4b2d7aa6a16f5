"""The page of a calibration, driven without a browser: none, running, finished, failed, at an edge, verified, a hostile address."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from streamlit.testing.v1 import AppTest

from engine.runs import store
from engine.runs.spec import RunSpec
from tests.pages import driven
from tests.pages.driven import FRAME, ROOT, charts, fake, keys, text_of

PAGE = "35_calibrate.py"
KEY = "cafe0123456789ab"


def make(**changes):
    return fake("fake_calibration", **changes)


@pytest.fixture
def spec(new_calibration) -> RunSpec:
    """A calibration's spec over files that are there."""
    return new_calibration.spec


@pytest.fixture
def sweep(new_run, spec: RunSpec) -> str:
    """A finished sweep of the same model that brought calibration data."""
    key = new_run("sweep0123456789a", title="My sweep")
    store.update(key, spec=spec.model_copy(update={"tune": None}).model_dump_json())
    return key


def visit(page: str = PAGE, **query: str) -> AppTest:
    return driven.visit(page, **query)


def test_the_demo_is_calibrated_at_a_click_with_the_settings_asked_for(home: Path, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, submitted = [], []
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: "demo0123456789ab")
    monkeypatch.setattr("engine.runs.calibration.calibration_spec", lambda of, **tune: asked.append((of, tune)) or spec)
    monkeypatch.setattr("engine.runs.jobs.submit", lambda s: submitted.append(s) or "demo0123456789ab")
    at = visit()
    assert "18 cases that the verification never sees" in text_of(at) and not charts(at)
    assert "calibrate_run" not in keys(at)
    at.selectbox(key="tune_objective").select("grid")
    at.selectbox(key="tune_norm").select("physical")
    at.toggle(key="tune_per_layer").set_value(True)
    at.number_input(key="tune_nu_max").set_value(64)
    at.button(key="calibrate_demo").click().run()
    assert asked[0][0].title.startswith("Demo") and submitted == [spec]
    assert asked[0][1] == {"objective": "grid", "nu_max": 64, "norm": "physical", "area_weighted": True, "per_layer": True}


def test_where_there_is_no_demo_the_page_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: None)
    at = visit()
    assert "not part of this copy" in text_of(at) and not keys(at)


def test_the_run_of_the_address_is_calibrated(sweep: str, spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: "demo0123456789ab")
    monkeypatch.setattr("engine.runs.jobs.submit", lambda s: submitted.append(s) or "new0123456789abc")
    at = visit(run=sweep)
    assert "My sweep" in text_of(at) and {"calibrate_run", "calibrate_demo"} <= keys(at)
    assert at.query_params["run"] == sweep, "looking does not change the address"
    at.button(key="calibrate_run").click().run()
    assert submitted[0].tune is not None and submitted[0].calibrate == spec.calibrate and submitted[0].checkpoint == spec.checkpoint
    assert submitted[0].tune.objective == "scale"
    assert at.query_params["run"] == "new0123456789abc"


def test_a_run_without_calibration_data_is_not_offered(finished_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: finished_run)
    at = visit(run=finished_run)
    assert "brought no data to choose ν on" in text_of(at)
    assert not {"calibrate_run", "calibrate_demo"} & keys(at)


def test_a_finished_calibration_says_its_answer(new_calibration) -> None:
    at = visit(run=new_calibration())
    said = text_of(at)
    assert "ν* = 15" in said and "leave room for any ν from 12 to 19 (95% interval)" in said
    assert "the members stray by 0.480, and the frozen forecast errs by 0.480 standard deviations" in said
    assert "Calibration first: ν = 15 (12 … 19)" in said and "Score oriented: ν = 31 (22 … 44)" in said
    made = make()
    at15, at31 = (made.sel(nu=nu) for nu in (15, 31))
    dearer, flatter = float(at15.crps_fair / at31.crps_fair) - 1, 1 - float(at15.w1_pit / at31.w1_pit)
    assert f"Against ν = 31: CRPS {100 * dearer:.0f}% higher, W₁(PIT) {100 * flatter:.0f}% lower." in said
    assert f"{100 * float(at15.coverage_95):.0f}% (" in said and "a perfect (Gaussian) ensemble of 20 holds 87." in said
    assert len(charts(at)) == 4 and "class='nu-callout'" not in said
    assert f"export/{KEY}/scale_fit.png" in said and "python -m engine calibrate" in said
    assert "A ν for each block" not in "".join(e.label for e in at.expander)


def test_a_result_that_was_written_anew_is_read_anew(new_calibration) -> None:
    key = new_calibration()
    assert "ν* = 15" in text_of(visit(run=key))
    path = store.folder(key) / "calibration.nc"
    make(key=key, edge=True).to_netcdf(path.with_suffix(".part"), engine="h5netcdf")
    path.with_suffix(".part").replace(path)
    assert "ν* = 1<" in text_of(visit(run=key))


def test_the_newest_calibration_is_shown_where_the_address_names_none(new_calibration) -> None:
    new_calibration("old0123456789abc", row={"created": 1.0}, edge=True)
    new_calibration()
    assert "ν* = 15" in text_of(visit())


def test_an_edge_is_said_and_nothing_is_made_up(new_calibration) -> None:
    at = visit(run=new_calibration(edge=True, intervals=False, score_point=False, verify=False, acc=False))
    said = text_of(at)
    assert "ν* = 1<" in said and "At the edge of the search." in said
    assert "no interval is known" in said and "No ensemble was scored at this ν." in said
    assert "Not scored at both ν: no comparison with ν = 31." in said
    assert "The members stray as far as the frozen model errs." not in said
    assert "names no data to verify on" in said and "verify" not in keys(at)
    assert "nan" not in said.lower()


@pytest.mark.parametrize("code", ["rising", "few_cases", "disagree", "missing", "scalar_target", "a code of later"])
def test_every_warning_is_shown_as_text(new_calibration, code: str) -> None:
    key = new_calibration()
    path = store.folder(key) / "calibration.nc"
    made = make(key=key)
    made.attrs["warnings"] = json.dumps([{"code": code, "text": "Words <b>of</b> a file."}])
    path.unlink()
    made.to_netcdf(path, engine="h5netcdf")
    said = text_of(visit(run=key))
    assert said.count("class='nu-callout'") == 1 and "Words &lt;b&gt;of&lt;/b&gt; a file." in said


def test_layers_are_shown_where_they_were_asked_for(new_calibration) -> None:
    at = visit(run=new_calibration(per_layer=True))
    assert "A ν for each block of layers" in [e.label for e in at.expander]
    said = text_of(at)
    assert "decoder" in said and "21.4 with a ν for each block, 21.9 with ν = 31 for all" in said


def test_verify_submits_the_sweep_at_the_operating_points(new_calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    monkeypatch.setattr("engine.runs.jobs.submit", submitted.append)
    at = visit(run=new_calibration())
    assert "on 42 cases from 0014-01-01" in text_of(at)
    at.button(key="verify").click().run()
    assert len(submitted) == 1 and submitted[0].tune is None and {15, 31} <= set(submitted[0].nu)


def test_files_that_are_gone_are_said_instead_of_verified(new_calibration, spec: RunSpec) -> None:
    key = new_calibration()
    spec.data[0].unlink()
    at = visit(run=key)
    assert "nothing there" in text_of(at) and "verify" not in keys(at) and "ν* = 15" in text_of(at)


@pytest.fixture
def verifying(monkeypatch: pytest.MonkeyPatch):
    """`verifying(key)`: from now on a calibration's verification is this run."""

    def be(key: str) -> None:
        run = SimpleNamespace(key=lambda: key)
        run.resolved = lambda: run
        monkeypatch.setattr("engine.runs.calibration.verification_spec", lambda calibration: run)

    return be


def test_a_verified_calibration_says_whether_it_holds(new_calibration, finished_run: str, verifying) -> None:
    verifying(finished_run)
    points = {"calibration_first": {"nu": 16, "low": 12, "high": 20}, "score_oriented": {"nu": 8, "low": 6, "high": 9}}
    at = visit(run=new_calibration(operating_points=json.dumps(points)))
    said = text_of(at)
    import xarray as xr

    with xr.open_dataset(store.folder(finished_run) / "verification.nc", engine="h5netcdf") as file:
        known = file.sel(region="global", variable="geopotential_height_500", lead_time=72.0).load()
    held = known.sel(nu=16)
    assert f"at ν = 16, the 95% range held {100 * float(held.coverage_95):.0f}% (" in said
    assert "ensemble of 20 holds 87.1%: too seldom" in said
    assert "W₁(PIT), the distance from honest: 0.0953 (" in said
    best = int(known.nu[known.w1_pit.argmin("nu")])
    assert best == 4 and "ν = 4 has a lower W₁(PIT) here, told apart" in said
    assert "contains the bias of their mean" in said
    at.button(key="open_verified").click().run()
    assert at.query_params["run"] == finished_run and at.query_params["nu"] == "16"


def test_no_better_nu_is_claimed_within_the_noise(new_calibration, finished_run: str, verifying) -> None:
    verifying(finished_run)
    points = {"calibration_first": {"nu": 4, "low": 3, "high": 5}}
    said = text_of(visit(run=new_calibration(operating_points=json.dumps(points))))
    assert "at ν = 4, the 95% range held" in said and "a lower W₁(PIT) here" not in said
    assert "One reason: the departure of the members contains the bias" in said, "where the range still holds too little, it is said why"


def test_a_verification_under_way_is_followed(new_calibration, new_run, verifying) -> None:
    me = psutil.Process(os.getpid())
    row = {"pid": me.pid, "pid_started": store.born(me.pid), "started": time.time() - 60, "message": "shard 5 of 10"}
    verifying(new_run("live0123456789ab", status="running", title="Verifying", **row))
    at = visit(run=new_calibration())
    assert "shard 5 of 10" in text_of(at) and "verify" not in keys(at) and "ν* = 15" in text_of(at)


def test_a_running_calibration_shows_progress_and_cancels(new_calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = []
    monkeypatch.setattr("engine.runs.jobs.cancel", cancelled.append)
    me = psutil.Process(os.getpid())
    row = {"pid": me.pid, "pid_started": store.born(me.pid), "started": time.time() - 60, "message": "round 3: ν ≈ 15", "finished": None}
    key = new_calibration(status="running", row=row)
    at = visit(run=key)
    assert "50%" in text_of(at) and "round 3: ν ≈ 15" in text_of(at) and not charts(at)
    at.button(key=f"cancel_{key}").click().run()
    assert cancelled == [key]


def test_a_failed_calibration_shows_its_card_and_can_go_on(new_calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = []
    monkeypatch.setattr("engine.runs.jobs.resume", resumed.append)
    error = {"what": "split ![x](http://outside/x)", "found": "**1** case", "expected": "2 cases", "remedy": "Bring more."}
    key = new_calibration(status="failed", error=error)
    at = visit(run=key)
    assert set(error.values()) <= {e.value for e in at.text}, "an error's words are text, never Markdown"
    at.button(key=f"resume_{key}").click().run()
    assert resumed == [key]


@pytest.mark.parametrize("hostile", ["nosuchrun", "../../etc/passwd", "<script>alert(1)</script>", "![x](http://outside/x)", "a" * 5000])
def test_an_unknown_run_is_said_and_calibrations_are_offered(new_calibration, finished_run: str, hostile: str) -> None:
    key = new_calibration()
    at = visit(run=hostile)
    assert "no such run on this server" in text_of(at) and not charts(at)
    assert not any("<script>" in str(e.proto.body) for e in at.html)
    assert len(at.selectbox(key="other_run").options) == 1, "calibrations, no sweeps"
    at.selectbox(key="other_run").select(key).run()
    assert at.query_params["run"] == key and "ν* = 15" in text_of(at)


def test_pickers_keep_calibrations_and_sweeps_apart(new_calibration, finished_run: str) -> None:
    key = new_calibration()
    for page, run in (("30_sweep.py", finished_run), (PAGE, key)):
        at = visit(page, run=run)
        assert len(at.selectbox(key="pick_run").options) == 1
        assert at.selectbox(key="pick_run").value == run


@pytest.mark.parametrize("page", ["30_sweep.py", "40_diagnose.py", "50_maps.py"])
def test_a_sweep_page_never_reads_a_calibration(new_calibration, finished_run: str, page: str) -> None:
    at = visit(page, run=new_calibration())
    assert "nothing was verified with it yet" in text_of(at) and not charts(at)
    assert len(at.selectbox(key="other_run").options) == 1
    newest = visit(page)  # the calibration is the newest run of all
    assert newest.query_params["run"] == finished_run and charts(newest)


def test_a_sweep_page_shows_the_sweep_of_the_same_model(new_calibration, finished_run: str, sweep: str) -> None:
    at = visit("30_sweep.py", run=new_calibration())
    assert at.query_params["run"] == sweep and charts(at)
    back = visit(run=sweep)
    assert "ν* = 15" in text_of(back), "and the calibration of the same model is shown beside a sweep"


def test_lists_open_a_calibration_on_its_own_page(new_calibration, finished_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: finished_run)
    key = new_calibration()
    at = visit("80_runs.py")
    said = text_of(at)
    assert "calibration: chooses ν" in said and "calibration.nc" in said and "python -m engine calibrate" in said
    for page in ("80_runs.py", "10_start.py"):
        at = visit(page)
        at.button(key=f"open_{key}").click().run()
        assert "ν* = 15" in text_of(at) and at.query_params["run"] == key
    assert "the 95% range held" in text_of(visit("10_start.py")), "the start page's result is a sweep"


def test_a_calibration_costs_the_web_process_no_model_library(new_calibration) -> None:
    script = f"""
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file({FRAME!r}, default_timeout=60)
at.run()
at.query_params["run"] = {new_calibration()!r}
at.switch_page({PAGE!r}).run()
assert not at.exception and len(at.get("plotly_chart")) == 4
print([name for name in ("torch", "sklearn", "skopt") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip().splitlines()[-1] == "[]"
