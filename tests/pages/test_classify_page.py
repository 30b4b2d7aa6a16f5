"""The page of a classification, driven without a browser: none, running, finished, failed, text, hostile words, runs of other kinds."""

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

from engine import judging
from engine.runs import store
from pages._parts.classification import Classified, change, finding, headline
from tests.pages import driven
from tests.pages.driven import FRAME, ROOT, charts, fake, keys, text_of

PAGE = "45_classify.py"
KEY = "c1a550123456789a"
DEMO = "demo0123456789ab"


def make(**changes):
    return fake("fake_classification", **changes)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list:
    """What is submitted, instead of being run; and an image demo whose files are there."""
    asked: list = []
    monkeypatch.setattr("pages._parts.results.image_demo_key", lambda: DEMO)
    monkeypatch.setattr("engine.runs.jobs.submit", lambda spec: asked.append(spec) or DEMO)
    return asked


def visit(page: str = PAGE, **query: str) -> AppTest:
    return driven.visit(page, **query)


def of(data, entry: str = "director") -> Classified:
    return Classified(KEY, 0, data, entry)


def test_the_demo_is_run_at_a_click(home: Path, submitted: list) -> None:
    at = visit()
    assert "up to two minutes on two cores" in text_of(at) and not charts(at)
    at.button(key="run_image_demo").click().run()
    assert len(submitted) == 1 and submitted[0].task == "classification"


def test_where_there_is_no_demo_the_page_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.image_demo_key", lambda: None)
    at = visit()
    assert "not part of this copy" in text_of(at) and "run_image_demo" not in keys(at)


def test_a_finished_run_says_its_answer(new_classification) -> None:
    at = visit(run=new_classification())
    said, data = text_of(at), make()
    assert "This did not work" not in said
    p, y = data.probability.sel(entry="deterministic").values, data.observed.values
    right, sure = p.argmax(-1) == y, p.max(-1) >= 0.9
    assert f"Of 800 images the frozen model gets {100 * right.mean():.1f}% right" in said
    assert f"and is right {100 * right[sure].mean():.1f}% of the time" in said
    assert len(charts(at)) == 8
    assert f"export/{KEY}/class_reliability.png?entry=director" in said
    assert at.query_params["entry"] == "director"


def test_the_finding_claims_only_what_the_intervals_allow() -> None:
    data = make()
    assert "Least calibration error: " in finding(of(data))
    flat = data.copy()
    for end in ("", "_low", "_high"):
        flat[f"ece_difference{end}"] = flat[f"ece_difference{end}"] * 0 + {"": -0.01, "_low": -0.02, "_high": 0.01}[end]
    assert finding(of(flat)).startswith("No method's calibration error is told apart from")
    assert judging.best(of(flat).verification, "ece") is None


def test_the_best_is_bold_only_where_it_beats_the_frozen_model() -> None:
    c = of(make())
    values = {e: float(c.verification["ece"].sel(entry=e)) for e in c.methods}
    assert judging.best(c.verification, "ece") == min(values, key=values.__getitem__)
    assert not any(e.startswith("director:") for e in c.methods), "controls are not ranked"
    data = make().copy()
    for end, value in (("", -0.05), ("_low", -0.08), ("_high", -0.02)):
        data[f"accuracy_difference{end}"] = data[f"accuracy_difference{end}"] * 0 + value
    assert judging.best(of(data).verification, "accuracy") is None, "where the frozen model is best nobody is marked"


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("accuracy", (-0.02, -0.03, -0.01), "2.0 points lower (1.0 … 3.0)"),
        ("ece", (0.02, -0.01, 0.05), "not told apart"),
        ("nll", (0.25, 0.2, 0.3), "0.250 higher (0.200 … 0.300)"),
    ],
)
def test_differences_in_words(name: str, found: tuple[float, float, float], said: str) -> None:
    assert change(name, found) == said


def test_a_difference_turns_round_with_its_sides() -> None:
    data = make().sel(against=["deterministic"])
    c = of(data)
    there, back = c.difference("ece", "director", "deterministic"), c.difference("ece", "deterministic", "director")
    assert there and back and there[0] == -back[0] and there[1] == -back[2] and there[1] <= there[0] <= there[2]
    assert c.better("ece", "director", "deterministic") is not c.better("ece", "deterministic", "director")


def test_few_sure_cases_are_not_spoken_of() -> None:
    data = make().copy()
    data["probability"] = data["probability"] * 0 + 0.1
    assert "it says 10.0% on average" in headline(of(data))


def test_a_method_is_chosen_and_kept_in_the_address(new_classification) -> None:
    at = visit(run=new_classification(), entry="temperature_scaling")
    assert at.selectbox(key="pick_entry").value == "temperature_scaling"
    before = charts(at)
    at.selectbox(key="pick_entry").select("stochastic_attention:16").run()
    assert at.query_params["entry"] == "stochastic_attention:16" and charts(at) != before
    at = visit(run=KEY, entry="<b>no such method</b>")
    assert at.query_params["entry"] == "director" and "<b>no such" not in text_of(at)


def test_a_mistake_is_opened_by_its_tile(new_classification) -> None:
    at = visit(run=new_classification())
    data = make()
    p, y = data.probability.sel(entry="director"), data.observed
    wrong = [int(e) for e in data.example.values if int(p.sel(case=e).values.argmax()) != int(y.sel(case=e))]
    wrong.sort(key=lambda e: -float(p.sel(case=e).max()))
    assert [k for k in (b.key for b in at.button) if k and k.startswith("look_")] == [f"look_{e}" for e in wrong[:8]]
    assert at.selectbox(key="pick_example").value == wrong[0]
    at.button(key=f"look_{wrong[-1]}").click().run()
    assert at.selectbox(key="pick_example").value == wrong[-1]
    assert f"example={wrong[-1]}" in text_of(at)


def test_texts_are_shown_as_text(new_classification) -> None:
    data = make(kind="text", key=KEY)
    hostile = "![x](http://outside/x) <script>alert(1)</script>"
    data["example_text"] = data["example_text"].copy(data=[hostile] * data.sizes["example"])
    at = visit(run=new_classification(result=data))
    said = text_of(at)
    assert "Of 800 texts" in said and hostile in [e.value for e in at.text]
    assert not any("<script>" in str(e.proto.body) for e in at.html)


def test_a_run_without_examples_outside_sets_or_corruptions_is_shown(new_classification) -> None:
    data = make(key=KEY).drop_dims(["example", "ood", "corruption", "severity", "step", "step_other", "path"])
    at = visit(run=new_classification(result=data))
    said = text_of(at)
    assert "This run kept no single examples." in said and "This did not work" not in said


def test_a_running_run_shows_progress_and_cancels(new_classification, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = []
    monkeypatch.setattr("engine.runs.jobs.cancel", cancelled.append)
    me = psutil.Process(os.getpid())
    row = {"pid": me.pid, "pid_started": store.born(me.pid), "started": time.time() - 60, "message": "distilling", "finished": None}
    key = new_classification(status="running", row=row)
    at = visit(run=key)
    assert "50%" in text_of(at) and "distilling" in text_of(at) and not charts(at)
    at.button(key=f"cancel_{key}").click().run()
    assert cancelled == [key]


def test_a_failed_run_shows_its_card_and_can_go_on(new_classification, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed = []
    monkeypatch.setattr("engine.runs.jobs.resume", resumed.append)
    error = {"what": "labels ![x](http://outside/x)", "found": "**eleven** classes", "expected": "ten", "remedy": "Bring others."}
    key = new_classification(status="failed", row={"error": json.dumps(error)})
    at = visit(run=key)
    assert set(error.values()) <= {e.value for e in at.text}, "an error's words are text, never Markdown"
    at.button(key=f"resume_{key}").click().run()
    assert resumed == [key]


@pytest.mark.parametrize("hostile", ["nosuchrun", "../../etc/passwd", "<script>alert(1)</script>", "a" * 5000])
def test_an_unknown_run_is_said_and_classifications_are_offered(new_classification, finished_run: str, hostile: str) -> None:
    key = new_classification()
    at = visit(run=hostile)
    assert "no such run on this server" in text_of(at) and not charts(at)
    assert len(at.selectbox(key="other_run").options) == 1, "classifications, no sweeps"
    at.selectbox(key="other_run").select(key).run()
    assert at.query_params["run"] == key and charts(at)


def test_runs_of_both_kinds_keep_out_of_each_others_pages(new_classification, finished_run: str, new_calibration) -> None:
    key, tuned = new_classification(), new_calibration()
    at = visit("30_sweep.py", run=finished_run, nu="16")
    at.query_params.clear()  # what the browser does on a page change
    at.switch_page(PAGE).run()
    assert at.query_params["run"] == key and "the frozen model gets" in text_of(at)
    at.query_params.clear()
    at.switch_page("40_diagnose.py").run()
    assert at.query_params["run"] == finished_run and at.query_params["nu"] == "16" and "ν = 16" in text_of(at)
    assert key not in at.selectbox(key="pick_run").options
    assert "ν* = 15" in text_of(visit("35_calibrate.py", run=key)), "and the calibration page shows a calibration"
    assert visit("35_calibrate.py", run=tuned).selectbox(key="pick_run").value == tuned


def test_lists_open_a_classification_on_its_own_page(new_classification, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: None)
    key = new_classification()
    said = text_of(visit("80_runs.py"))
    assert "classification: 4 methods · M = 8" in said and "classification.nc" in said and "python -m engine" in said
    for page in ("80_runs.py", "10_start.py"):
        at = visit(page)
        at.button(key=f"open_{key}").click().run()
        assert "the frozen model gets" in text_of(at) and at.query_params["run"] == key


def test_start_offers_the_image_demo_and_shows_its_answer(new_classification, submitted: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: None)
    at = visit("10_start.py")
    assert "A classifier: Fashion-MNIST images" in text_of(at) and "up to two minutes" in text_of(at)
    at.button(key="run_image_demo").click().run()
    assert submitted[0].task == "classification"
    new_classification(DEMO)
    at = visit("10_start.py")
    assert "the frozen model gets" in text_of(at)
    at.button(key="to_45_classify.py").click().run()
    assert at.query_params["run"] == DEMO and charts(at)


def test_a_classification_costs_the_web_process_no_model_library(new_classification) -> None:
    script = f"""
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file({FRAME!r}, default_timeout=60)
at.run()
at.query_params["run"] = {new_classification()!r}
for page in ({PAGE!r}, "70_director.py"):
    at.switch_page(page).run()
    assert not at.exception and len(at.get("plotly_chart")) >= 3
print([name for name in ("torch", "sklearn", "skopt") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip().splitlines()[-1] == "[]"


def test_an_empty_table_of_runs_has_no_image_demo_key_without_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pages._parts import results

    gone = SimpleNamespace(files=lambda: {"checkpoint": (tmp_path / "nowhere",)})
    assert results._key_of(gone) is None
