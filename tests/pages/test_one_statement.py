"""What pages say of one thing is said once: operating points of what is looked at, one judgement of a place, the address on Start."""

import json

import pytest
import xarray as xr

from engine import judging
from engine.runs import store
from tests.pages.driven import charts, text_of, visit

Z500, T850 = "geopotential_height_500", "temperature_850"


def rewritten(key: str, **attrs: object) -> xr.Dataset:
    """The run's verification with other attributes, in place."""
    path = store.folder(key) / "verification.nc"
    with xr.open_dataset(path, engine="h5netcdf") as file:
        data = file.load().assign_attrs({k: v if isinstance(v, str | int) else json.dumps(v) for k, v in attrs.items()})
    path.unlink()  # a hard link that the other tests share: it is replaced, never written into
    data.to_netcdf(path, engine="h5netcdf")
    return data


def title_of(drawing: str) -> str:
    return json.loads(drawing)["layout"]["meta"]["title"]


def point(nu: int, variable: str = Z500, **more: object) -> dict[str, object]:
    about = {"chosen_on": "calibrate", "variable": variable, "region": "global", "lead_hours": 72.0, "rule": "least residual-scale loss"}
    return {"nu": nu, **about, "edge": False, "remark": "", **more}


def test_points_of_another_variable_are_never_shown_as_if_chosen_for_this_one(finished_run: str) -> None:
    own = {"calibration_first": point(4), "score_oriented": point(16)}
    rewritten(finished_run, operating_points=own)
    here = text_of(visit("30_sweep.py", run=finished_run, nu="4"))
    assert "Chosen for" not in here
    for query in ({"variable": T850}, {"region": "tropics"}):
        at = visit("30_sweep.py", run=finished_run, nu="4", **query)
        said = text_of(at)
        assert said.count("Chosen for Z500 geopotential height, global, 72 h ahead. What is shown here may have another best ν.") == 2
        assert "not for this" in said, "beside the values of ν too"
        assert any("not for this" in json.loads(c)["layout"]["meta"]["subtitle"] for c in charts(at)), "and under the curve"


def test_points_chosen_anew_for_a_variable_are_those_that_its_pages_show(finished_run: str) -> None:
    own = {"calibration_first": point(4), "score_oriented": point(16)}
    anew = [{"calibration_first": point(32, T850), "score_oriented": point(64, T850)}]
    rewritten(finished_run, operating_points=own, operating_points_elsewhere=anew)
    at = visit("30_sweep.py", run=finished_run, variable=T850)
    said = text_of(at)
    assert "Calibration first: ν = 32" in said and "Score oriented: ν = 64" in said and "Chosen for" not in said
    assert at.query_params["nu"] in ("32", ["32"]), "a page starts at the point of what is looked at"
    assert "ν = 32 is calibration first, ν = 64 score oriented" in title_of(charts(at)[0])


def test_an_edge_of_the_grid_is_said_for_both_points(finished_run: str) -> None:
    remark = "lowest at the largest ν tried: try larger ν"
    edge = {n: point(128, edge=True, remark=remark) for n in ("calibration_first", "score_oriented")}
    rewritten(finished_run, operating_points=edge)
    assert text_of(visit("30_sweep.py", run=finished_run)).count("Lowest at the largest ν tried: try larger ν.") == 2
    # a run of an earlier version stored the edge alone
    rewritten(finished_run, operating_points={n: {"nu": 128, "chosen_on": "calibrate", "rule": "r", "edge": True} for n in edge})
    assert text_of(visit("30_sweep.py", run=finished_run)).count("Lowest at the largest ν tried: try larger ν.") == 2


def test_departure_shift_and_spread_are_told_apart(finished_run: str) -> None:
    scale = [0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15]
    curves = {"scale": scale, "target_scale": [0.4] * 8, "shift": [0.24] * 8, "spread": [0.32] * 8}
    rewritten(finished_run, operating_points={"calibration_first": point(4, curves=curves), "score_oriented": point(8)})
    said = text_of(visit("30_sweep.py", run=finished_run))
    assert "At ν = 4 the members stray by 0.400, and the frozen forecast errs by 0.400 standard deviations" in said
    assert "0.240 is a shift that all members share, and 0.320 their spread" in said
    assert "36% of its square and widens no interval" in said  # 0.24² / (0.24² + 0.32²)
    assert "spread of its members matches" not in said


def test_start_shows_the_nu_of_the_address_and_keeps_it(finished_run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: finished_run)
    at = visit("10_start.py", nu="32", variable=T850)
    assert "At ν = 32" in text_of(at) and "K wide on average" in text_of(at)
    assert at.query_params["nu"] in ("32", ["32"])
    at.button(key="to_40_diagnose.py").click().run()
    assert at.query_params["nu"] in ("32", ["32"]) and at.query_params["variable"] in (T850, [T850])


def test_start_leaves_the_address_of_another_run_alone(finished_run: str, new_run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages._parts.results.demo_key", lambda: finished_run)
    other = new_run("other0123456789a", title="Another")
    at = visit("10_start.py", run=other, nu="32", region="tropics")
    assert "At ν = 4" in text_of(at), "the demo's own point"
    assert at.query_params["nu"] in ("32", ["32"]) and at.query_params["region"] in ("tropics", ["tropics"])


def test_both_captions_of_a_place_are_one_judgement(finished_run: str) -> None:
    """A band of cells is dragged out of the ensemble's reach: what the series says there is what the histogram says."""
    data = rewritten(finished_run)
    there = {"latitude": int(abs(data.latitude.values - 50).argmin()), "longitude": int(abs(data.longitude.values - 10).argmin())}
    data["coverage_map"][{"level": list(data.level.values).index(95)} | there] = 0.5
    (store.folder(finished_run) / "verification.nc").unlink()
    data.to_netcdf(store.folder(finished_run) / "verification.nc", engine="h5netcdf")
    at = visit("50_maps.py", run=finished_run, nu="4")
    told = [t for t in map(title_of, charts(at)) if "the 95% range held" in t]
    assert len(told) == 2 and told[0] == told[1]
    assert "held 20 of 40" in told[0] and "too seldom" in told[0]


def test_pairs_stand_side_by_side(finished_run: str) -> None:
    at = visit("50_maps.py", run=finished_run, nu="4")
    at.selectbox(key="map_second").select(64).run()
    rows = [[title_of(e.proto.spec).split(":")[0] for c in row.children.values() for e in c.get("plotly_chart")] for row in _rows(at)]
    assert ["Width of the 95% interval"] * 2 in rows and ["Ensemble mean"] * 2 in rows, rows


def _rows(at) -> list:
    """Blocks that hold columns."""
    found, stack = [], [at.main]
    while stack:
        block = stack.pop()
        children = list(getattr(block, "children", {}).values())
        if children and all(getattr(c, "type", "") == "column" for c in children):
            found.append(block)
        stack += [c for c in children if hasattr(c, "children")]
    return found


@pytest.mark.parametrize(
    ("ends", "word"),
    [((0.80, 0.85), "too seldom"), ((0.80, 0.90), "not told apart from it"), ((0.88, 0.95), "too often"), ((float("nan"),) * 2, "")],
)
def test_coverage_is_judged_by_its_interval(ends: tuple[float, float], word: str) -> None:
    value = sum(ends) / 2 if word else 0.8
    assert judging.coverage_word(value, *ends, 0.872) == word


def test_a_promise_is_not_called_a_perfect_ensemble() -> None:
    after = json.dumps({"intervals": True, "title": "Conformal intervals"})
    assert judging.aim({"members": 20, "nominal_95": 0.95, "posthoc": after})[1] == "Conformal intervals promises 95%"
    assert judging.aim({"members": 20, "nominal_95": 0.8716})[1] == "a perfect (Gaussian) ensemble of 20 holds 87.2%"
