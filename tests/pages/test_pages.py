"""Every page, driven without a browser: with a finished run, with none, with a wrong address, with a failed run."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from engine.runs import store
from tests.pages.driven import FRAME, ROOT, charts, visit
from tests.pages.driven import written as text_of

PAGES = sorted(p.name for p in (ROOT / "pages").glob("[0-9]*_*.py"))
RESULT_PAGES = ["30_sweep.py", "40_diagnose.py", "50_maps.py"]
DONE, FAILED = "fake0123456789ab", "failed0123456789"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_without_runs_says_what_to_do(home: Path, page: str) -> None:
    at = visit(page)
    assert not at.exception
    assert "A fault of this program" not in text_of(at)
    if page in RESULT_PAGES:
        assert "There is no result yet" in text_of(at)
        assert not charts(at)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_a_finished_run_works_by_deep_link(finished_run: str, page: str) -> None:
    at = visit(page, run=finished_run, nu="8")
    assert not at.exception
    said = text_of(at)
    assert "A fault of this program" not in said and "This did not work" not in said
    assert at.query_params["run"] == finished_run and at.query_params["nu"] == "8"
    if page in RESULT_PAGES:
        assert len(charts(at)) >= 5
        assert "ν = 8" in said


@pytest.mark.parametrize("page", RESULT_PAGES)
def test_an_unknown_run_is_said_and_others_are_offered(finished_run: str, page: str) -> None:
    at = visit(page, run="nosuchrun")
    assert "no such run on this server" in text_of(at)
    offered = at.selectbox(key="other_run")
    assert offered.options and not charts(at)
    offered.select(finished_run).run()
    assert charts(at) and at.query_params["run"] == finished_run


@pytest.mark.parametrize(
    ("asked", "shown", "said"),
    [
        ("5", "4", "The nearest, ν = 4"),
        ("100000", "128", "The nearest, ν = 128"),
        ("0", "4", "is not a value of ν"),
        ("<b>x</b>", "4", "is not a value of ν"),
    ],
)
def test_a_nu_that_was_not_computed_is_replaced_and_said(finished_run: str, asked: str, shown: str, said: str) -> None:
    at = visit("40_diagnose.py", run=finished_run, nu=asked)
    assert any(said in w.value for w in at.warning)
    assert at.query_params["nu"] == shown


def test_run_and_nu_are_handed_on_to_the_next_page(finished_run: str) -> None:
    at = visit("30_sweep.py", run=finished_run, nu="16")
    at.query_params.clear()  # what the browser does on a page change
    at.switch_page("40_diagnose.py").run()
    assert at.query_params["run"] == finished_run and at.query_params["nu"] == "16"
    assert "ν = 16" in text_of(at)


def test_another_run_does_not_inherit_a_nu(finished_run: str, new_run) -> None:
    other = new_run("other0123456789a", title="Another")
    at = visit("40_diagnose.py", run=finished_run, nu="16")
    at.query_params.clear()
    at.query_params["run"] = other
    at.run()
    assert at.query_params["nu"] == "4", "the other run starts at its own best point"


def test_choosing_a_nu_changes_address_and_figures(finished_run: str) -> None:
    at = visit("40_diagnose.py", run=finished_run, nu="4")
    before = charts(at)
    at.pills(key="pick_nu").set_value(64).run()
    assert at.query_params["nu"] == "64"
    assert charts(at) != before
    assert "too narrow" in text_of(at)


def test_a_region_is_remembered_on_the_next_page(finished_run: str) -> None:
    at = visit("30_sweep.py", run=finished_run, nu="4")
    at.selectbox(key="pick_region").select("tropics").run()
    at.switch_page("40_diagnose.py").run()
    assert at.selectbox(key="pick_region").value == "tropics"
    assert "tropics" in text_of(at)


def test_region_variable_lead_time_and_place_stand_in_the_address(finished_run: str) -> None:
    at = visit("50_maps.py", run=finished_run, nu="4")
    at.selectbox(key="pick_region").select("tropics").run()
    link = dict(at.query_params)
    named = {name: value[0] if isinstance(value, list) else value for name, value in link.items()}
    assert named["region"] == "tropics" and {"variable", "lead_time", "place"} <= set(named)
    again = visit("50_maps.py", **named)  # somebody else opens the link
    assert again.selectbox(key="pick_region").value == "tropics"
    assert again.selectbox(key="pick_lead_time").value == float(named["lead_time"])


def test_a_place_in_the_address_is_the_place_that_is_shown(finished_run: str) -> None:
    here, there = (charts(visit("50_maps.py", run=finished_run, nu="4", place=place)) for place in ("50,10", "-20,100"))
    assert here != there
    assert charts(visit("50_maps.py", run=finished_run, nu="4", place="north,pole")) == here, "no place: the first one"


def test_a_region_that_the_run_lacks_is_said_and_shown_as_text(finished_run: str) -> None:
    at = visit("40_diagnose.py", run=finished_run, nu="4", region="![x](http://example.com/x.png)")
    (said,) = [w.value for w in at.warning]
    assert "This run has no region" in said and "![x](http" not in said
    assert at.query_params["region"] != "![x](http://example.com/x.png)"


def test_two_nu_side_by_side(finished_run: str) -> None:
    at = visit("40_diagnose.py", run=finished_run, nu="4")
    at.selectbox(key="second_nu").select(64).run()
    assert "ν = 4 and ν = 64" in text_of(at)


def test_compared_maps_share_one_colour_range(finished_run: str) -> None:
    at = visit("50_maps.py", run=finished_run, nu="4")
    ranges = {}
    for spec in charts(at):
        figure = json.loads(spec)
        for trace in figure["data"]:
            if trace["type"] == "heatmap":
                ranges[figure["layout"]["meta"]["title"].split(":")[0]] = (trace["zmin"], trace["zmax"])
    assert ranges["Observed"] == ranges["Ensemble mean"]
    assert len(ranges) == 4


@pytest.mark.parametrize("page", RESULT_PAGES)
def test_a_failed_run_shows_its_card_and_can_go_on(home: Path, page: str, monkeypatch: pytest.MonkeyPatch, new_run) -> None:
    resumed = []
    monkeypatch.setattr("engine.runs.jobs.resume", resumed.append)
    error = {
        "what": "checkpoint ![x](http://outside/x)",
        "found": "**three** keys missing",
        "expected": "all keys",
        "remedy": "Name the architecture.",
    }
    new_run(FAILED, status="failed", title="Failed", error=error)
    at = visit(page, run=FAILED)
    shown = [e.value for e in at.text]
    for said in error.values():
        assert said in shown, "an error's words are text, never Markdown"
    at.button(key=f"resume_{FAILED}").click().run()
    assert resumed == [FAILED]


def test_the_list_of_runs_deletes_only_after_a_question(finished_run: str) -> None:
    at = visit("80_runs.py")
    at.button(key=f"delete_{finished_run}").click().run()
    assert (ROOT / "pages").exists() and at.button(key="really_delete")
    assert store.folder(finished_run).exists(), "nothing is deleted before the answer"
    at.button(key="really_delete").click().run()
    assert not store.folder(finished_run).exists()


def test_start_shows_a_demo_that_is_already_there(finished_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: finished_run)
    at = visit("10_start.py")
    assert "the 95% range held" in text_of(at) and "perfect (Gaussian) ensemble of 20" in text_of(at)
    assert len(charts(at)) == 1


def test_start_runs_the_demo_at_a_click(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = []
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: "demo0123456789ab")
    monkeypatch.setattr("engine.runs.jobs.submit", submitted.append)
    at = visit("10_start.py")
    at.button(key="run_demo").click().run()
    assert len(submitted) == 1 and submitted[0].title.startswith("Demo")


def test_start_is_honest_where_the_demo_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: None)
    at = visit("10_start.py")
    assert "not part of this copy" in text_of(at)
    assert not any(b.key == "run_demo" for b in at.button)


def test_a_running_run_shows_progress_and_cancels(home: Path, monkeypatch: pytest.MonkeyPatch, new_run) -> None:
    cancelled = []
    monkeypatch.setattr("engine.runs.jobs.cancel", cancelled.append)
    me = psutil.Process(os.getpid())
    key = new_run(
        "live0123456789ab",
        status="running",
        title="Live",
        pid=me.pid,
        pid_started=store.born(me.pid),
        started=time.time() - 60,
        message="shard 5 of 10",
    )
    at = visit("30_sweep.py", run=key)
    said = text_of(at)
    assert "50%" in said and "shard 5 of 10" in said and re.search(r"about \d+ (s|min) left", said)
    at.button(key=f"cancel_{key}").click().run()
    assert cancelled == [key]


def test_a_fault_of_ours_becomes_a_card(finished_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault for the test")

    monkeypatch.setattr("engine.runs.jobs.runs", broken)
    at = visit("80_runs.py")
    assert not at.exception
    assert "A fault of this program" in text_of(at) and any("ZeroDivisionError" in c.value for c in at.code)


def test_the_web_process_never_imports_torch(finished_run: str) -> None:
    script = f"""
import sys
import app
from streamlit.testing.v1 import AppTest
at = AppTest.from_file({FRAME!r}, default_timeout=60)
at.run()
for page in {PAGES!r}:
    at.query_params["run"] = {finished_run!r}
    at.switch_page(page).run()
    assert not at.exception, page
print([name for name in ("torch", "sklearn", "skopt") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip().splitlines()[-1] == "[]"


def test_a_run_that_was_asked_for_few_scores_still_has_its_pages(finished_run: str) -> None:
    """The scores that are there are shown; none is taken for granted."""
    import xarray as xr

    path = store.folder(finished_run) / "verification.nc"
    with xr.open_dataset(path, engine="h5netcdf") as file:
        fewer = file.load().drop_vars([n for n in file.data_vars if str(n).startswith(("width_95", "coverage_95"))])
    path.unlink()  # a hard link that the other tests share: it is replaced, never written into
    fewer.to_netcdf(path, engine="h5netcdf")
    for page in ("10_start.py", "30_sweep.py"):
        at = visit(page, run=finished_run, nu="8")
        assert not at.exception
        assert "A fault of this program" not in text_of(at)


@pytest.mark.parametrize("page", RESULT_PAGES)
def test_a_method_without_nu_has_no_nu_to_choose(finished_run: str, page: str) -> None:
    import xarray as xr

    path = store.folder(finished_run) / "verification.nc"
    with xr.open_dataset(path, engine="h5netcdf") as file:
        data = file.load().isel(nu=[3]).assign_attrs(method="director", method_title="DIRECTOR", uses_nu=0, operating_points="{}")
    path.unlink()  # a hard link that the other tests share: it is replaced, never written into
    data.to_netcdf(path, engine="h5netcdf")
    at = visit(page, run=finished_run)
    said = text_of(at)
    assert not at.exception and "This did not work" not in said
    assert "pick_nu" not in {p.key for p in at.pills} and "ν = 8" not in said
    assert all("ν = 8" not in drawn for drawn in charts(at)) and any("DIRECTOR" in drawn for drawn in charts(at))
    if page == "30_sweep.py":
        assert "no ν to choose" in said and "What changes with ν" not in said
