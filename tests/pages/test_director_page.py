"""The page of DIRECTOR, driven without a browser: with a run that holds it, without one, distilling, on fields."""

import json
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from engine.runs import store
from engine.runs.spec import parse_spec
from pages._parts import director, field_scores
from pages._parts.classification import Classified
from pages._parts.director_form import student_spec
from tests.pages import driven
from tests.pages.driven import charts, fake, keys, text_of

PAGE = "70_director.py"
KEY, DEMO = "c1a550123456789a", "demo0123456789ab"


def make(**changes):
    return fake("fake_classification", **changes)


def visit(page: str = PAGE, **query: str) -> AppTest:
    return driven.visit(page, **query)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list:
    """What is submitted, instead of being run; and an image demo whose files are there."""
    asked: list = []
    monkeypatch.setattr("pages._parts.results.image_demo_key", lambda: DEMO)
    monkeypatch.setattr("engine.runs.jobs.submit", lambda spec: asked.append(spec) or DEMO)
    return asked


def told(name: str, control: str, low: float, high: float):
    """The synthetic run with another paired difference between DIRECTOR and a control."""
    data = make().copy()
    pairs = (("director", control, (low + high) / 2, low, high), (control, "director", -(low + high) / 2, -high, -low))
    for entry, against, *values in pairs:
        for end, value in zip(("", "_low", "_high"), values, strict=True):
            data[f"{name}_difference{end}"] = data[f"{name}_difference{end}"].copy()
            data[f"{name}_difference{end}"].loc[{"entry": entry, "against": against}] = value
    return Classified(KEY, 0, data, "director")


def test_a_run_that_holds_it_is_shown(new_classification) -> None:
    at = visit(run=new_classification())
    said = text_of(at)
    assert "This did not work" not in said and len(charts(at)) == 3
    assert "A student with 47% of its teacher" in said and "calibration error 4." in said
    assert "290,000" in said and "1.2 MB" in said and "620,000" in said
    assert "0.81 (0.78 … 0.84); 0.5 is chance" in said
    at.button(key="to_examples").click().run()
    assert at.query_params["run"] == KEY and at.query_params["entry"] == "director"
    assert "Its surest mistakes" in text_of(at)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.2, -0.1, "noise that depends on the input (NLL 0.150 lower, 0.100 … 0.200)."),
        (0.1, 0.2, "What hurts: noise that depends on the input (NLL 0.150 higher, 0.100 … 0.200)."),
        (-0.1, 0.1, "Not shown to help"),
    ],
)
def test_the_controls_say_only_what_the_intervals_allow(low: float, high: float, said: str) -> None:
    told_ = director.controls(told("nll", "director:constant_noise", low, high), "director")
    assert said in told_
    assert ("What hurts" in told_) == (low > 0) and ("Not shown to help" in told_) == (low < 0 < high)


def test_a_control_that_was_not_run_is_not_spoken_of() -> None:
    c = Classified(KEY, 0, make().sel(entry=["deterministic", "director"], against=["deterministic"]), "director")
    assert director.controls(c, "director") == ""
    assert "calibration error 4." in director.headline(c, "director")


def test_a_spread_that_tells_nothing_is_said_to() -> None:
    data = make().copy()
    for end, value in (("", 0.52), ("_low", 0.47), ("_high", 0.57)):
        data[f"spread_error_auroc{end}"] = data[f"spread_error_auroc{end}"] * 0 + value
    assert "not told apart from chance" in director.telling(Classified(KEY, 0, data), "director")


def test_without_a_run_the_demo_and_the_form_are_offered(home: Path, submitted: list) -> None:
    at = visit()
    assert "Distil a student yourself" in text_of(at) and not charts(at)
    at.button(key="run_image_demo").click().run()
    assert submitted[0].task == "classification" and submitted[0].states.keys() <= set(submitted[0].entries)


def test_without_the_demos_files_the_way_on_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.image_demo_key", lambda: None)
    at = visit()
    assert "Bring a classifier and its data" in text_of(at) and not keys(at) & {"distil", "run_image_demo"}


def test_a_student_is_distilled_with_the_settings_asked_for(home: Path, submitted: list) -> None:
    at = visit()
    at.number_input(key="distil_epochs").set_value(7)
    at.selectbox(key="distil_noise").select("constant")
    at.number_input(key="distil_lambda_task").set_value(0.5)
    at.toggle(key="distil_controls").set_value(True)
    at.button(key="distil").click().run()
    asked = submitted[0]
    assert asked["params"] == {"director": {"epochs": 7, "noise": "constant", "lambda_task": 0.5}} and asked["states"] == {}
    assert asked["entries"] == ["deterministic", "director", "director:no_noise", "director:constant_noise", "director:no_matching"]
    spec = parse_spec(asked)
    assert spec.fit and spec.entries[1] == "director"
    assert at.query_params["run"] == DEMO


def test_what_is_left_alone_stays_the_engines_default(home: Path, submitted: list) -> None:
    at = visit()
    at.button(key="distil").click().run()
    assert submitted[0]["params"] == {} and submitted[0]["entries"] == ["deterministic", "director"]


def test_a_student_is_distilled_from_the_run_looked_at(new_classification, submitted: list) -> None:
    at = visit(run=new_classification())
    assert "From vit.safetensors, on train.npz." in text_of(at)
    at.button(key="distil").click().run()
    assert submitted[0]["checkpoint"] == "vit.safetensors" and submitted[0]["members"] == 8


def test_what_belonged_to_other_methods_is_not_asked_for_again() -> None:
    spec = {"checkpoint": "a/vit.pt", "params": {"sgpa": {"rank": 3}}, "states": {"sgpa": "s.safetensors"}, "entries": ["sgpa"]}
    asked = student_spec(spec, {}, controls=False)
    assert asked["params"] == {} and asked["states"] == {} and asked["entries"] == ["deterministic", "director"]


def test_a_run_without_it_says_so_and_offers_one(new_classification, submitted: list) -> None:
    new_classification(DEMO)
    data = make(key=KEY).sel(entry=["deterministic", "temperature_scaling"])
    at = visit(run=new_classification(spec={"entries": ["deterministic", "temperature_scaling"]}, result=data))
    assert "was not asked for DIRECTOR" in text_of(at) and not charts(at)
    at.selectbox(key="other_run").select(DEMO).run()
    assert at.query_params["run"] == DEMO and len(charts(at)) == 3


def test_the_newest_run_that_holds_it_is_shown_where_the_address_names_none(new_classification) -> None:
    new_classification(row={"created": 1.0})
    new_classification("c1a550123456789b", spec={"entries": ["deterministic"]}, result=make(key=KEY).sel(entry=["deterministic"]))
    assert visit().query_params["run"] == KEY


def test_on_fields_its_spectrum_is_shown_with_the_way_to_the_usual_pages(finished_run: str) -> None:
    import xarray as xr

    with store.table() as connection:
        spec = json.loads(connection.execute("SELECT spec FROM runs WHERE key = ?", (finished_run,)).fetchone()["spec"])
    store.update(finished_run, spec=json.dumps(spec | {"method": "director"}))
    at = visit(run=finished_run)
    assert "No run of stochastic attention on the same forecasts" in text_of(at)
    assert "This run kept no spectra" in text_of(at) and not charts(at)
    path = store.folder(finished_run) / "verification.nc"
    with xr.open_dataset(path, engine="h5netcdf") as file:
        data = file.load()
    wave = xr.DataArray([0, 1, 2, 4, 8], dims="wavenumber", coords={"wavenumber": [0, 1, 2, 4, 8]})
    power = 100.0 / (1 + wave) * xr.ones_like(data["rmse_deterministic"].isel(region=0, drop=True))
    data = data.assign({f"spectrum_{name}": power for name in ("observed", "deterministic")})
    data = data.assign({f"spectrum_members{end}": power * xr.ones_like(data["nu"], float) for end in ("", "_low", "_high")})
    path.unlink()  # a hard link that the other tests share: it is replaced, never written into
    data.to_netcdf(path, engine="h5netcdf")
    at = visit(run=finished_run)
    assert "This did not work" not in text_of(at) and len(charts(at)) == 1
    at.button(key="to_40_diagnose.py").click().run()
    assert at.query_params["run"] == finished_run and len(charts(at)) >= 5


def test_on_fields_it_stands_beside_stochastic_attention_on_the_same_forecasts(home: Path, tmp_path: Path) -> None:
    data, _ = fake("fake_verification")
    mine = data.isel(nu=[3]).assign_attrs(method="director", method_title="DIRECTOR", uses_nu=0, operating_points="{}", members=20)
    with pytest.MonkeyPatch.context() as patch:
        seen: list[str] = []
        patch.setattr(field_scores.st, "html", seen.append)
        patch.setattr(field_scores, "plain", seen.append)
        field_scores.beside(mine, data)
        alone = len(seen)
        field_scores.beside(mine, None)
    table, below = seen[0], seen[1]
    points = {p["nu"] for p in json.loads(data.attrs["operating_points"]).values()}
    assert table.count("<tr>") == 2 + len(points) and "DIRECTOR" in table
    assert all(f"Stochastic attention, ν = {nu} (" in table for nu in points)
    first = data.isel(region=0, lead_time=0, variable=0)
    assert f"{float(first['crps_fair'].isel(nu=3)):.3g}<small>" in table
    assert "perfect (Gaussian) ensemble of 20 holds 87." in below
    assert seen[alone].count("<tr>") == 2, "without a partner its own row alone"


def test_only_the_same_forecasts_are_set_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    shared = {"checkpoint": "a", "data": ["b"], "members": 20, "method": "stochastic_attention"}
    runs = [
        SimpleNamespace(key=str(i), status=status, spec=shared | change)
        for i, (status, change) in enumerate(
            [("done", {"members": 5}), ("running", {}), ("done", {"posthoc": "isotonic"}), ("done", {"method": "director"}), ("done", {})]
        )
    ]
    monkeypatch.setattr(field_scores, "runs_that", lambda *, calibrate: runs)
    found = field_scores.partner(SimpleNamespace(spec=shared | {"method": "director"}))
    assert found is not None and found.key == "4"
