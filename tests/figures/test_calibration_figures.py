"""Figures of a calibration as data: what is drawn equals the result, and the words are true of it."""

import importlib.util
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

from engine.errors import SpecError
from engine.figures._calibration import log_axis, nu_axis
from engine.registry import get
from engine.runs import picture

KEYS = ("scale_fit", "calibration_audit", "calibration_costs", "calibration_periods")


def make(**changes):
    name = "fake_calibration"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].make(**changes)


@pytest.fixture(scope="module")
def calibration():
    return make()


def title(key, dataset):
    return re.sub(r"<br>", " ", re.match(r"<b>(.*?)</b>", get("figures", key).screen(dataset).layout.title.text)[1])


def test_the_synthetic_calibration_is_of_the_schema(calibration, tmp_path):
    from engine.runs.calibration import open_calibration, verification_spec

    calibration.to_netcdf(tmp_path / "calibration.nc", engine="h5netcdf")
    back = open_calibration(tmp_path)
    for name in ("target_scale", "scale", "loss", "shift", "spread", "w1_pit", "coverage_95", "crps_fair", "acc", "nll_gaussian"):
        assert {name, f"{name}_low", f"{name}_high"} <= set(back.data_vars)
        assert (back[f"{name}_low"] <= back[name]).all() and (back[name] <= back[f"{name}_high"]).all()
    np.testing.assert_allclose(back["shift"] ** 2 + back["spread"] ** 2, back["scale"] ** 2)
    points = json.loads(back.attrs["operating_points"])
    assert (points["calibration_first"]["nu"], points["score_oriented"]["nu"]) == (15, 31)
    assert int(back["nu"][back["crps_fair"].argmin("nu").item()]) == 31
    assert int(back["nu"][back["w1_pit"].argmin("nu").item()]) == 8, "the departure holds the bias of the mean: ν* is not the least W₁"
    assert 15 in verification_spec(back).nu


def test_scale_fit_draws_what_was_measured(calibration):
    figure, table = get("figures", "scale_fit").screen(calibration), get("figures", "scale_fit").data(calibration)
    passes = next(t for t in figure.data if t.name == "one pass")
    np.testing.assert_allclose(10 ** np.asarray(passes.y), calibration["evaluation_scale"])
    np.testing.assert_allclose(2 ** np.asarray(passes.x), calibration["evaluation_nu"])
    means = next(t for t in figure.data if t.name == "mean at one ν")
    np.testing.assert_allclose(10 ** np.asarray(means.y), calibration["scale"])
    np.testing.assert_allclose(10 ** (np.asarray(means.y) + means.error_y.array), calibration["scale_high"])
    line = next(t for t in figure.data if t.mode == "lines" and t.name == "fit with 95% band")
    np.testing.assert_allclose(10 ** np.asarray(line.y), calibration["fit"])
    rules = {s.yref if s.y0 == s.y1 else s.xref: s for s in figure.layout.shapes}
    assert 10 ** rules["y"].y0 == pytest.approx(0.48)
    assert 2 ** rules["x"].x0 == pytest.approx(15)
    assert any("the frozen model's own error: 0.480" in a.text for a in figure.layout.annotations)
    assert any(a.text == "ν* = 15 (12 … 19)" for a in figure.layout.annotations)
    assert table.groupby("kind").size()["fit"] == calibration.sizes["curve_nu"]
    # the line passes through the rule at ν*, where the fake's law puts it
    assert np.interp(np.log(15), np.log(calibration["curve_nu"]), calibration["fit"]) == pytest.approx(0.48, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "At ν = 15 the members stray as far as the model errs"),
        ({"edge": True}, "Even at ν = 1 the members stray less than the model errs"),
        ({"rising": True}, "no ν matches the model's own error"),
        ({"objective": "w1_pit"}, "ν = 15 was chosen by the smallest W₁(PIT): the members stray 1.0 times as far as the model errs"),
    ],
)
def test_the_message_of_scale_fit(changes, said):
    assert said in title("scale_fit", make(**changes))


def test_an_edge_at_the_largest_nu_says_further():
    points = {"calibration_first": {"nu": 512, "low": 400, "high": 512, "edge": True}}
    wide = make(operating_points=json.dumps(points))
    wide["scale"] = wide["scale"] * 0 + 0.9
    assert title("scale_fit", wide) == "Even at ν = 512 the members stray further than the model errs"


def test_no_interval_is_made_up():
    bare = make(intervals=False)
    words = get("figures", "scale_fit").describe(bare)
    assert "Chosen: ν = 15." in words
    figure = get("figures", "scale_fit").screen(bare)
    assert any(a.text == "ν* = 15" for a in figure.layout.annotations)
    assert "interval of ν*" not in figure.layout.title.text
    texts = [t.text[0] for t in get("figures", "calibration_audit").screen(bare).data if t.mode == "markers+text"]
    assert texts and not any("…" in t for t in texts)


def test_nan_where_it_is_allowed_leaves_no_nan_in_words():
    bare = make(intervals=False, score_point=False, acc=False)
    for name in ("fit_low", "fit_high", "target_scale_low", "target_scale_high", "reading_loss"):
        bare[name] = bare[name] * np.nan
    bare["scale"] = bare["scale"].where(bare["nu"] != 512, 0.0)  # so large a ν that nothing is drawn
    for key in KEYS:
        entry = get("figures", key)
        assert "nan" not in entry.describe(bare).lower()
        assert "nan" not in json.dumps(entry.screen(bare).layout.to_plotly_json()).lower()
        entry.page(bare)
    assert 512 not in get("figures", "scale_fit").data(bare).query("kind == 'mean'")["nu"].tolist()


def test_audit_says_whether_the_readings_agree(calibration):
    assert title("calibration_audit", calibration) == "The three readings agree within their intervals: ν = 15, 15 and 17"
    assert title("calibration_audit", make(readings=(15, 15, 15))) == "All three readings give ν = 15"
    assert "disagree: ν = 4, 15 and 60" in title("calibration_audit", make(readings=(15, 60, 4)))
    assert "their losses differ" in title("calibration_audit", make(warnings=("disagree",))), (
        "never kinder than the calibration's own warning"
    )
    figure = get("figures", "calibration_audit").screen(calibration)
    loss = next(t for t in figure.data if t.mode == "markers" and t.error_y.array is not None)
    np.testing.assert_allclose(10 ** np.asarray(loss.y), calibration["loss"])
    np.testing.assert_allclose(10 ** (np.asarray(loss.y) - loss.error_y.arrayminus), calibration["loss_low"])
    marks = [2 ** t.x[0] for t in figure.data if t.mode == "markers" and t.marker.symbol == "diamond"]
    np.testing.assert_allclose(sorted(marks), sorted(calibration["reading_nu"].values))


def test_costs_mark_both_points_and_never_place_what_was_not_scored(calibration):
    figure = get("figures", "calibration_costs").screen(calibration)
    stars = {t.marker.symbol: (t.x[0], t.y[0]) for t in figure.data if t.marker.symbol in ("star", "diamond")}
    for symbol, nu in (("star", 15), ("diamond", 31)):
        np.testing.assert_allclose(stars[symbol], (calibration["crps_fair"].sel(nu=nu), calibration["w1_pit"].sel(nu=nu)))
    assert not any(t.customdata is not None for t in figure.data), "nothing to click: a calibration has no ν to choose"
    assert "click" not in json.dumps(figure.to_plotly_json(), default=lambda a: a.tolist())
    cost = 1 - float(calibration["crps_fair"].sel(nu=31) / calibration["crps_fair"].sel(nu=15))
    assert f"({100 * cost:.1f}% less error)" in title("calibration_costs", calibration)
    bare = make(score_point=False)
    assert "ν = 31 was not scored" in title("calibration_costs", bare)
    assert not any(t.marker.symbol == "diamond" for t in get("figures", "calibration_costs").screen(bare).data)
    table = get("figures", "calibration_costs").data(calibration, calibration="coverage_95")
    np.testing.assert_allclose(table["coverage_error_95"], calibration["coverage_95"] - calibration.attrs["nominal_95"])


def test_costs_name_what_is_spoken_of_where_the_search_crowds(calibration):
    crowded = make().sel(nu=[1, 2, 4, 8, 15, 15, 15, 31, 31, 64, 128, 512]).assign_coords(nu=[1, 2, 4, 8, 13, 15, 17, 31, 33, 64, 128, 512])
    figure = get("figures", "calibration_costs").screen(crowded)
    names = [t.replace("<b>", "").replace("</b>", "") for t in next(t for t in figure.data if t.mode == "markers+text").text]
    assert [n.split(" · ")[0] for n in names if n] == [f"ν = {n}" for n in (1, 2, 4, 8, 15, 31, 64, 128, 512)]
    points = next(t for t in figure.data if t.mode == "markers" and t.error_x.array is not None)
    assert len(points.x) == 12
    assert np.isnan(np.asarray(points.error_x.array, float)).tolist() == [n == "" for n in names]
    assert len(get("figures", "calibration_costs").data(crowded)) == 12, "the table holds them all"


def test_periods_keep_apart_in_any_calendar(calibration):
    table = get("figures", "calibration_periods").data(calibration)
    spans = table[table["what"] == "span"].set_index("split")
    assert spans.loc["verify", "start"] > spans.loc["calibrate", "end"]
    # a date that is in a calendar of 360 days alone: counted, neither refused nor merely put in order
    leap = make(
        periods=json.dumps({"calibrate": {"first": "0012-02-30T00:00:00", "last": "0012-03-04T00:00:00", "cases": 2}, "verify": None})
    )
    only = get("figures", "calibration_periods").data(leap).iloc[0]
    assert only["end"] - only["start"] == pytest.approx(4.0)
    assert title("calibration_periods", calibration) == "ν was chosen on 18 cases that the verification never sees"
    assert "do not overlap" in get("figures", "calibration_periods").describe(calibration)
    assert "no data to verify it on were named" in title("calibration_periods", make(verify=False))
    stored = json.loads(calibration.attrs["periods"])
    stored["verify"] = stored["calibrate"] | {"cases": 42}
    overlapping = make(periods=json.dumps(stored))
    assert "overlaps the verification's" in title("calibration_periods", overlapping)
    assert "do not overlap" not in get("figures", "calibration_periods").describe(overlapping)


def test_nothing_is_selected_on_a_calibration(calibration):
    with pytest.raises(SpecError, match="region"):
        get("figures", "scale_fit").screen(calibration, region="tropics")


@pytest.mark.parametrize("key", KEYS)
def test_a_sweep_is_no_calibration(verification, key):
    with pytest.raises(SpecError, match="a sweep's result"):
        get("figures", key).data(verification)


@pytest.mark.parametrize("key", KEYS)
def test_exports_carry_their_origin(calibration, key):
    picture_, name, mime = picture.export(key, calibration, "png", dark=True)
    assert (name, mime) == (f"nuscope_{calibration.attrs['key']}_{key}.png", "image/png")
    image = Image.open(io.BytesIO(picture_))
    assert image.text["Description"] == calibration.attrs["command"]
    assert calibration.attrs["key"].encode() in picture.export(key, calibration, "svg")[0]
    assert len(pd.read_csv(io.BytesIO(picture.export(key, calibration, "csv")[0]))) == len(get("figures", key).data(calibration))
    with xr.open_dataset(io.BytesIO(picture.export(key, calibration, "nc")[0]), engine="h5netcdf") as back:
        assert back.attrs["figure"] == key
        assert back.attrs["key"] == calibration.attrs["key"]
    drawn = picture.draw(key, calibration, narrow=True).layout.meta
    assert drawn["title"] and drawn["footer"] and drawn["words"]


@pytest.mark.parametrize("largest", [2, 100, 512, 10**6])
def test_ticks_are_few_and_round(largest):
    axis = nu_axis("ν", largest)
    assert 2 <= len(axis.ticks) <= 11
    assert all(axis.range[0] <= t <= axis.range[1] for t in axis.ticks)
    for values in ([0.4, 0.5], [1e-3, 2.0], [12.0, 4000.0], [0.48]):
        axis = log_axis("R", np.array(values))
        assert len(axis.ticks) >= 2
        assert axis.range[0] < np.log10(min(values)) <= np.log10(max(values)) < axis.range[1]
        np.testing.assert_allclose([float(t.replace(",", "")) for t in axis.tick_text], 10 ** np.asarray(axis.ticks), rtol=1e-9)
