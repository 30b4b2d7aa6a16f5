"""Figures of a classification as data: what is drawn equals the result, the words are true of it, and nothing lies on anything else."""

import importlib.util
import io
import json
import re
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from engine.errors import EngineError, ExportError, SpecError
from engine.figures import _export
from engine.figures._classes import amount, evenly
from engine.kernels.binning import bins, equal_width
from engine.registry import entries, get

KEYS = tuple(k for k, f in entries("figures").items() if f.reads == "classification")
PATHS = ("path_spread", "path_controls", "student_fidelity")


def synthetic(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def make(**changes):
    return synthetic("fake_classification").make(**changes)


@pytest.fixture(scope="module")
def run():
    return make()


@pytest.fixture(scope="module")
def verification():
    """The little of a Verification that a spectrum is drawn beside."""
    where = {
        "nu": [1, 8, 128],
        "region": ["global"],
        "lead_time": [72.0],
        "variable": ["geopotential_height_500"],
        "longitude": np.arange(64) * 360 / 64,
    }
    share = (("region", "lead_time", "variable"), np.ones((1, 1, 1)))
    attrs = {"members": 20, "cases": 40, "key": "fake0123", "method": "stochastic_attention"}
    return xr.Dataset({"unit": ("variable", ["m"]), "valid_fraction": share}, where, attrs)


def title(key, dataset, **options):
    return re.sub(r"<br>", " ", re.match(r"<b>(.*?)</b>", get("figures", key).screen(dataset, **options).layout.title.text)[1])


def named(figure, name):
    return next(t for t in figure.data if t.name == name)


def test_the_synthetic_run_is_of_the_schema(run, tmp_path):
    from engine.runs.classification import open_classification

    run.to_netcdf(tmp_path / "classification.nc", engine="h5netcdf")
    back = open_classification(tmp_path)
    schema = sys.modules["engine.runs.classification"].__doc__
    for name in back.data_vars:
        stem = str(name).removesuffix("_low").removesuffix("_high").removesuffix("_difference")
        assert stem in schema, name
    np.testing.assert_allclose(back["probability"].sum("class"), 1, atol=1e-5)
    np.testing.assert_allclose(
        (back["probability"].argmax("class") == back["observed"]).mean("case").values,
        back["accuracy"].values,
        err_msg="scores are those of the cases",
    )
    for name in ("accuracy", "nll", "ece", "auroc_failure", "nll_difference"):
        assert (back[f"{name}_low"] <= back[name]).all() and (back[name] <= back[f"{name}_high"]).all()


def test_reliability_draws_bins_and_curve(run):
    figure, table = (
        get("figures", "class_reliability").screen(run, entry="deterministic"),
        get("figures", "class_reliability").data(run, entry="deterministic"),
    )
    p, y = run["probability"].sel(entry="deterministic").values, run["observed"].values
    binned = bins(p.max(-1), p.argmax(-1) == y, None, equal_width())
    held = binned.counts > 0
    dots = sorted((t.x[0], t.y[0], t.marker.size) for t in figure.data if getattr(t, "mode", "") == "markers")
    np.testing.assert_allclose([d[:2] for d in dots], np.c_[binned.confidence, binned.accuracy][held])
    assert np.corrcoef([d[2] for d in dots], np.sqrt(binned.counts[held]))[0, 1] > 0.999, "area by count"
    gap = np.nansum(binned.counts * np.abs(binned.accuracy - binned.confidence)) / len(y)
    assert gap == pytest.approx(float(run["ece"].sel(entry="deterministic")), abs=1e-6), "the dots are those of the ECE that is named"
    curve = named(figure, "how often it is right")
    assert (np.diff(curve.y) >= 0).all() and curve.x[0] >= 0.1
    bars = next(t for t in figure.data if t.type == "bar")
    assert sum(bars.y) == pytest.approx(1)
    assert table["kind"].value_counts()["bin"] == held.sum()


def test_reliability_tells_honest_from_bold(run):
    assert "within what chance allows" in title("class_reliability", run, entry="director")
    assert re.search(
        r"Frozen model is over-confident: 90% sure on average, right in 83%", title("class_reliability", run, entry="deterministic")
    )
    shy = run.copy()
    p = run["probability"].values ** 0.25
    shy["probability"] = (run["probability"].dims, p / p.sum(-1, keepdims=True))
    assert "under-confident" in title("class_reliability", shy, entry="temperature_scaling")


def test_confidence_histogram_shares_are_of_each_group(run):
    table = get("figures", "confidence_histogram").data(run)
    np.testing.assert_allclose(table.groupby("group")["share"].sum(), 1)
    assert table["count"].sum() == 800
    figure = get("figures", "confidence_histogram").screen(run)
    assert "AUROC 0.87" in figure.layout.title.text
    perfect = run.copy()
    perfect["observed"] = ("case", run["probability"].sel(entry="director").argmax("class").values)
    assert title("confidence_histogram", perfect) == "DIRECTOR is right in every example"


def test_scores_are_best_first_with_their_intervals(run):
    table = get("figures", "class_scores").data(run, score="nll")
    assert table["nll"].is_monotonic_increasing
    assert get("figures", "class_scores").data(run, score="accuracy")["accuracy"].is_monotonic_decreasing
    figure = get("figures", "class_scores").screen(run, score="nll")
    points = [t for t in figure.data if t.mode == "markers"]
    np.testing.assert_allclose([t.x[0] for t in points], table["nll"])
    np.testing.assert_allclose([t.x[0] + t.error_x.array[0] for t in points], table["nll_high"])
    assert sum(t.marker.symbol == "circle-open" for t in points) == 2, "controls are rings"
    (rule,) = figure.layout.shapes
    assert rule.x0 == pytest.approx(float(run["nll"].sel(entry="deterministic")))
    assert rule.layer == "below"
    assert title("class_scores", run) == "DIRECTOR has the lowest calibration error: 3.0%, the frozen model 7.1%"


def test_a_best_score_within_its_noise_is_not_called_better(run):
    assert "No accuracy is told apart from the frozen model's and better" in title("class_scores", run, score="accuracy")
    best = run.copy()
    for end, value in (("", 0.01), ("_low", -0.01), ("_high", 0.03)):
        best[f"ece_difference{end}"] = best[f"ece_difference{end}"] * 0 + value
    assert "No calibration error is told apart from the frozen model's and better" in title("class_scores", best)
    with pytest.raises(SpecError, match="ece"):
        get("figures", "class_scores").data(run, score="crps_fair")


def test_trade_off_has_bars_on_both_axes(run):
    figure = get("figures", "class_trade_off").screen(run, calibration="nll")
    points = {t.text[0]: t for t in figure.data if t.mode == "markers+text"}
    assert set(points) == {"Frozen model", "Temperature scaling", "Stochastic attention, ν = 16", "DIRECTOR", "no noise", "constant noise"}
    at = run.sel(entry="director")
    np.testing.assert_allclose((points["DIRECTOR"].x[0], points["DIRECTOR"].y[0]), (at["accuracy"], at["nll"]))
    np.testing.assert_allclose(points["DIRECTOR"].x[0] - points["DIRECTOR"].error_x.arrayminus[0], at["accuracy_low"])
    np.testing.assert_allclose(points["DIRECTOR"].y[0] + points["DIRECTOR"].error_y.array[0], at["nll_high"])
    assert "accuracy not told apart" in title("class_trade_off", run)
    apart = run["ece_difference"].sel(entry="director", against="deterministic")
    assert f"lower by {-100 * float(apart):.1f} points" in title("class_trade_off", run)


def test_risk_coverage_ends_at_the_error_rate_and_at_zero_for_a_perfect_order(run):
    table = get("figures", "risk_coverage").data(run)
    for entry, part in table.groupby("entry"):
        last = part.iloc[-1]
        assert last["coverage"] == pytest.approx(1)
        assert last["error_rate"] == pytest.approx(1 - float(run["accuracy"].sel(entry=entry)))
        assert last["ideal"] == pytest.approx(last["error_rate"])
        assert (part["ideal"] <= part["error_rate"] + 1e-12).all()
        assert (part["low"] <= part["error_rate"]).all() and (part["error_rate"] <= part["high"]).all()
    assert len(table["entry"].unique()) == 4
    two = get("figures", "risk_coverage").data(run, entries=["deterministic", "director:no_noise"])
    assert two["entry"].unique().tolist() == ["deterministic", "director:no_noise"]
    for wrong in (["nobody"], list(run["entry"].values[:5])):
        with pytest.raises(SpecError):
            get("figures", "risk_coverage").data(run, entries=wrong)


def test_robustness_is_a_cell_a_corruption_and_severity(run):
    figure = get("figures", "robustness").screen(run, score="ece")
    cells = next(t for t in figure.data if t.type == "heatmap")
    assert np.shape(cells.z) == (3, 6)
    got = {tuple(np.round(row, 12)) for row in cells.z}
    assert got == {tuple(np.round(row, 12)) for row in run["ece_corrupted"].sel(entry="director").values}
    table = get("figures", "robustness").data(run, against="deterministic")
    expected = (run["accuracy_corrupted"].sel(entry="director") - run["accuracy_corrupted"].sel(entry="deterministic")).values.ravel()
    np.testing.assert_allclose(table["difference"], expected)
    better = (expected.reshape(3, 6)[:, 1:] > 0).sum()
    assert f"in {better} of 15 corrupted cells" in title("robustness", run, against="deterministic")
    assert "goes from 82.6% to 50.0% under gaussian noise of severity 5" in title("robustness", run)
    bare = run.drop_vars([f"{n}_corrupted" for n in ("accuracy", "ece", "nll")])
    with pytest.raises(SpecError, match="accuracy_corrupted"):
        get("figures", "robustness").data(bare)


def test_numbers_in_cells_stand_out_from_their_colour(run):
    from engine.figures._cells import CellPanel, Cells

    entry = get("figures", "robustness")
    s = entry.choose(run, {})
    (panel,) = entry.chart(entry.data(run), s).panels
    assert isinstance(panel, CellPanel) and isinstance(panel.content, Cells)
    texts = [t for t in entry.screen(run).data if getattr(t, "mode", "") == "text"]
    seen = {(x, y): t.textfont.color for t in texts for x, y in zip(t.x, t.y, strict=True)}
    assert len(seen) == 18
    for (column, row), ink in seen.items():
        assert contrast(ink, panel.content.colour(panel.content.values[row, column])) >= 4.0


def contrast(first, second):
    def light(colour):
        c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    a, b = light(first), light(second)
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_outside_detection_with_and_without_the_outside_confidences(run):
    figure = get("figures", "outside_detection").screen(run, by="entropy")
    assert not any(t.type == "bar" for t in figure.data)
    assert "confidences were not stored" in figure.layout.title.text.replace("<br>", " ")
    points = {t.hovertext[0].split("<")[1].removeprefix("b>"): t for t in figure.data if t.mode == "markers"}
    assert points["DIRECTOR"].x[0] == pytest.approx(float(run["auroc_ood_entropy"].sel(entry="director", ood="letters")))
    stored = make(outside=True)
    figure = get("figures", "outside_detection").screen(stored)
    assert sum(next(t for t in figure.data if t.type == "bar").y) == pytest.approx(1)
    assert named(figure, "outside (400)")
    with pytest.raises(SpecError, match="letters"):
        get("figures", "outside_detection").data(run, ood="digits")
    with pytest.raises(SpecError, match="no outside examples"):
        get("figures", "outside_detection").data(run.drop_dims("ood"))


def test_path_spread_shows_what_was_measured_and_says_when_nothing_spreads(run):
    figure = get("figures", "path_spread").screen(run)
    line = next(t for t in figure.data if t.mode == "lines")
    np.testing.assert_allclose(line.y, run["step_spread"].sel(entry="director"))
    np.testing.assert_allclose(next(t for t in figure.data if t.type == "heatmap").z, run["step_correlation"].sel(entry="director"))
    assert title("path_spread", run, entry="director:no_noise") == "DIRECTOR, no noise: all paths are one, nothing spreads"
    with pytest.raises(SpecError, match="director"):
        get("figures", "path_spread").data(run, entry="temperature_scaling")


def test_path_controls_are_the_paired_differences(run):
    table = get("figures", "path_controls").data(run)
    assert table["control"].unique().tolist() == ["director:constant_noise", "director:no_noise"]
    for r in table.to_dict("records"):
        at = {"entry": "director", "against": r["control"]}
        low, high = (float(run[f"{r['score']}_difference{end}"].sel(at)) for end in ("_low", "_high"))
        assert r["difference"] == pytest.approx(float(run[f"{r['score']}_difference"].sel(at)))
        assert r["clear"] == (low > 0 or high < 0)
        assert (abs(r["drawn"]) > 1) == r["clear"], "outside the grey zone exactly where the interval leaves out zero"
        assert (r["drawn"] > 0) == r["better"], "right is better, whichever way the score runs"
        assert r["drawn_low"] <= r["drawn"] <= r["drawn_high"]
    better = table.set_index(["control", "score"])["better"]
    assert better["director:no_noise", "ece"], "less is better"
    assert "no difference in 5 of 6 scores" in title("path_controls", run)


def test_no_difference_is_said_in_those_words(run):
    level = run.copy()
    for name in [n for n in run.data_vars if n.endswith("_difference")]:
        level[f"{name}_low"], level[f"{name}_high"] = run[name] - 1, run[name] + 1
    assert title("path_controls", level) == "Input-dependent noise: no difference that these 800 examples could show"
    assert all(t.marker.symbol == "circle-open" for t in get("figures", "path_controls").screen(level).data if t.mode == "markers")
    worse = level.copy()
    worse["nll_difference"] = run["nll_difference"] * 0 + 0.02
    worse["nll_difference_low"], worse["nll_difference_high"] = worse["nll_difference"] - 0.01, worse["nll_difference"] + 0.014
    said = title("path_controls", worse)
    assert said == "Input-dependent noise: worse NLL by 0.020 (0.010 … 0.034), no difference in 5 of 6 scores"


def test_differences_are_found_in_either_direction(run):
    there = get("figures", "path_controls").data(run)
    back = get("figures", "path_controls").data(run.sel(against=["director:no_noise", "director:constant_noise"]))
    other = get("figures", "path_controls").data(run.sel(against=["director"]))
    pd.testing.assert_frame_equal(there, back)
    np.testing.assert_allclose(there["difference"], other["difference"])
    with pytest.raises(SpecError, match="compared"):
        get("figures", "path_controls").data(run.sel(against=["deterministic"]))


@pytest.mark.parametrize(
    ("score", "difference", "said"),
    [
        ("nll", (-0.0378, -0.0721, -0.00109), "−0.038 (−0.072 … −0.001)"),
        ("ece", (-0.0417, -0.067, -0.019), "−4.2 points (−6.7 … −1.9)"),
        ("nll", (12.0, -3.0, 44.0), "+12 (−3 … +44)"),
    ],
)
def test_differences_in_words_keep_one_number_of_decimals(score, difference, said):
    assert evenly(score, difference) == said


def test_the_size_of_a_difference_has_no_sign():
    assert amount("nll", (-0.021, -0.034, -0.010)) == "0.021 (0.010 … 0.034)"


def test_example_paths_draw_every_path_and_the_mean(run):
    example = int(run["example"][1])
    table = get("figures", "example_paths").data(run, example=example)
    p = run["path_probability"].sel(entry="director", example=example)
    for name, part in table.groupby("class"):
        np.testing.assert_allclose(np.sort(part.loc[part["path"] >= 0, "probability"]), np.sort(p.sel({"class": name})))
        assert part.loc[part["path"] < 0, "probability"].item() == pytest.approx(float(p.sel({"class": name}).mean()))
    truth = str(run["class"].values[int(run["observed"].sel(case=example))])
    assert table.loc[table["true"], "class"].unique().tolist() == [truth]
    assert f"but it is {truth}" in title("example_paths", run, example=example)
    figure = get("figures", "example_paths").screen(run, example=example)
    image = next(t for t in figure.data if t.type == "image")
    np.testing.assert_array_equal(np.asarray(image.z)[..., 0], run["example_image"].sel(example=example).values[..., 0])
    text = get("figures", "example_paths").screen(make(kind="text"), example=example)
    assert not any(t.type == "image" for t in text.data)
    assert "the plot is thin" in text.layout.title.text.replace("<br>", " ")
    single = get("figures", "example_paths").data(run, entry="director:no_noise")
    assert set(single["path"]) == {-1, 0}, "places beyond an entry's members are no paths"
    with pytest.raises(SpecError, match=str(example)):
        get("figures", "example_paths").data(run, example=-5)


def test_a_hundred_classes_show_the_ones_that_matter(run):
    p = np.full((6, 12, 8, 100), 0.0005, np.float32)
    p[..., 7], p[..., 8] = 0.6, 0.351
    many = run.drop_dims("class").assign_coords({"class": [f"class {i}" for i in range(100)]})
    many["path_probability"] = (("entry", "example", "path", "class"), p)
    many["observed"] = ("case", np.full(800, 93))
    table = get("figures", "example_paths").data(many)
    assert table["class"].unique().tolist() == ["class 7", "class 8", "class 0", "class 93"]


def test_fidelity_draws_every_student(run):
    figure = get("figures", "student_fidelity").screen(run)
    assert {t.name for t in figure.data if t.showlegend} == {"DIRECTOR", "no noise", "constant noise"}
    np.testing.assert_allclose(named(figure, "no noise").y, run["step_error"].sel(entry="director:no_noise"))
    assert "misses 18% to 39%" in title("student_fidelity", run)


@pytest.mark.parametrize("key", PATHS)
def test_a_run_without_director_says_so(run, key):
    names = [n for n in run.data_vars if n.startswith(("step_", "spread_error"))]
    with pytest.raises(SpecError, match="DIRECTOR"):
        get("figures", key).data(run.drop_vars(names))


@pytest.mark.parametrize("key", [k for k in KEYS if k not in PATHS])
def test_a_single_frozen_model_is_enough_for_the_others(run, key):
    alone = run.sel(entry=["deterministic"], against=[])
    entry = get("figures", key)
    assert "nan" not in entry.describe(alone).lower()
    entry.screen(alone), entry.page(alone)


@pytest.mark.parametrize("key", KEYS)
def test_a_run_without_the_frozen_model_is_drawn(run, key):
    left = run.sel(entry=[e for e in run["entry"].values if e != "deterministic"], against=["director"]).assign_attrs(teacher="")
    entry = get("figures", key)
    assert "nan" not in entry.describe(left).lower()
    entry.screen(left)


@pytest.mark.parametrize("key", KEYS)
def test_results_of_fields_are_refused(verification, key):
    with pytest.raises(SpecError, match="a classification"):
        get("figures", key).data(verification)


@pytest.mark.parametrize("key", KEYS)
def test_an_unknown_entry_is_refused_with_those_that_there_are(run, key):
    with pytest.raises(EngineError, match="director:no_noise"):
        get("figures", key).data(run, entry="swag")


@pytest.mark.parametrize("key", KEYS)
def test_exports_carry_their_origin(run, key):
    entry = get("figures", key)
    source = _export.origin(run, entry.title)
    image = Image.open(io.BytesIO(_export.to_png(entry.page(run, dark=True), source)))
    assert image.size[0] > 1000
    assert image.text["Description"] == run.attrs["command"]
    assert run.attrs["key"].encode() in _export.to_svg(entry.page(run), source)
    table = entry.data(run)
    assert len(pd.read_csv(io.BytesIO(_export.to_csv(table)))) == len(table)
    with xr.open_dataset(io.BytesIO(_export.to_netcdf(table, source)), engine="h5netcdf") as back:
        assert back.attrs["key"] == run.attrs["key"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("options", [{}, {"entry": "director:constant_noise"}])
def test_words_on_a_page_neither_overlap_nor_run_over_the_edge(run, key, options):
    """Every text's box, drawn by matplotlib: two may not cover each other, none may leave the paper further than the export grows it."""
    page = get("figures", key).page(run, **options)
    FigureCanvasAgg(page).draw()  # legends are placed when they are drawn
    paper = page.bbox
    boxes = []
    for text in [*page.texts, *(t for a in page.axes for t in _texts(a)), *(t for lg in page.legends for t in lg.get_texts())]:
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            boxes.append((text.get_text(), box))
            assert box.x0 >= paper.x0 - 30 and box.x1 <= paper.x1 + 30, f"{text.get_text()!r} is cut"
    for (a, first), (b, second) in combinations(boxes, 2):
        across = min(first.x1, second.x1) - max(first.x0, second.x0)
        along = min(first.y1, second.y1) - max(first.y0, second.y0)
        assert across < 2 or along < 3, f"{a!r} lies on {b!r}"


def _texts(axes):
    ticks = [t for axis in (axes.xaxis, axes.yaxis) for t in axis.get_ticklabels() if axes.axison]
    inside = [t for t in ticks if _within(t, axes)]
    return [*axes.texts, axes.title, axes.get_legend_handles_labels and axes._left_title, axes.xaxis.label, axes.yaxis.label, *inside]


def _within(tick, axes):
    (x, y), (x0, x1), (y0, y1) = tick.get_position(), sorted(axes.get_xlim()), sorted(axes.get_ylim())
    return (y == 0 and x0 <= x <= x1) or (x == 0 and y0 <= y <= y1)


@pytest.mark.parametrize("key", ["path_controls", "example_paths"])
def test_narrow_text_is_wrapped(run, key):
    wide, slim = (get("figures", key).screen(run, narrow=narrow).layout.title.text for narrow in (False, True))
    assert slim.count("<br>") > wide.count("<br>")


def test_spectrum_draws_powers_and_says_when_they_are_not_there(verification):
    data = synthetic("fake_spectrum").with_spectra(verification)
    entry = get("figures", "member_spectrum")
    figure, table = entry.screen(data, nu=8), entry.data(data, nu=8)
    assert table["wavenumber"].tolist() == list(range(1, 33)), "the zonal mean has no place on a logarithmic axis"
    members = named(figure, "members: median, range")
    at = data.isel(lead_time=0, variable=0, wavenumber=slice(1, None))
    np.testing.assert_allclose(10 ** np.asarray(members.y), at["spectrum_members"].sel(nu=8))
    np.testing.assert_allclose(10 ** np.asarray(members.x), np.arange(1, 33))
    (rule,) = figure.layout.shapes
    assert 10**rule.x0 == pytest.approx(16), "64 longitudes in patches of 4"
    assert "times as much small-scale power" in title("member_spectrum", data, nu=1)
    assert re.search(r"hold \d+% as much small-scale power", title("member_spectrum", data, nu=128))
    assert "m" in figure.layout.yaxis.title.text
    with pytest.raises(ExportError, match="not stored") as caught:
        entry.screen(verification, nu=8)
    assert caught.value.remedy
    assert json.dumps(caught.value.as_dict())


def test_one_entry_alone_and_few_examples_are_drawn_and_said() -> None:
    """A chart of one row has no height to spare; the surest half of eighteen examples cannot be told."""
    whole = make()
    one = whole.sel(entry=["deterministic"]).isel(case=slice(0, 18))
    assert get("figures", "outside_detection").screen(one) is not None
    figure = get("figures", "risk_coverage")
    assert "too few examples" in figure.describe(one)
