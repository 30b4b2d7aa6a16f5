"""Figures as data: what is drawn equals the table, and the words are true."""

import json
import re

import numpy as np
import pytest

from engine.errors import SpecError
from engine.figures import _pit
from engine.figures.cell_series import ordinals
from engine.figures.spread_skill import merge
from engine.judging import operating_points
from engine.registry import get


def trace(figure, **wanted):
    """The first trace whose attributes are as wanted."""
    return next(t for t in figure.data if all(getattr(t, k) == v for k, v in wanted.items()))


def test_trade_off_points_bars_and_clicks(verification):
    figure, table = get("figures", "trade_off").screen(verification, nu=8), get("figures", "trade_off").data(verification, nu=8)
    points = next(t for t in figure.data if t.customdata is not None)
    assert [c[0] for c in points.customdata] == table["nu"].tolist() == [1, 2, 4, 8, 16, 32, 64, 128]
    at = verification.isel(region=0, lead_time=0, variable=0)
    np.testing.assert_allclose(points.x, at["crps_fair"])
    np.testing.assert_allclose(points.y, at["w1_pit"])
    np.testing.assert_allclose(np.asarray(points.x) + points.error_x.array, at["crps_fair_high"])
    np.testing.assert_allclose(np.asarray(points.y) - points.error_y.arrayminus, at["w1_pit_low"])
    assert figure.layout.clickmode == "event+select"
    labels = next(t for t in figure.data if t.mode == "markers+text").text
    assert [re.sub(r"</?b>", "", t).split(" · ")[0] for t in labels] == [f"ν = {n}" for n in table["nu"]]
    chosen = {name: point["nu"] for name, point in operating_points(verification).items()}
    assert "calibration first" in labels[table["nu"].tolist().index(chosen["calibration_first"])]
    assert "score oriented" in labels[table["nu"].tolist().index(chosen["score_oriented"])]
    ring = next(t for t in figure.data if t.marker.symbol == "circle-open")
    assert list(ring.x) == table.loc[table["nu"] == 8, "crps_fair"].tolist()
    assert "(m)" in figure.layout.xaxis.title.text


def test_trade_off_by_coverage_is_signed_about_a_perfect_ensemble(verification):
    table = get("figures", "trade_off").data(verification, calibration="coverage_95")
    expected = verification["coverage_95"].isel(region=0, lead_time=0, variable=0).values - verification.attrs["nominal_95"]
    np.testing.assert_allclose(table["coverage_error_95"], expected)
    assert table["coverage_error_95"].iloc[0] > 0 > table["coverage_error_95"].iloc[-1]
    with pytest.raises(SpecError, match="w1_pit"):
        get("figures", "trade_off").data(verification, calibration="ece")


@pytest.mark.parametrize("key", ["trade_off"])
def test_labels_do_not_overlap(key, verification):
    from engine.figures.trade_off import _label_places

    rng = np.random.default_rng(0)
    x, y = np.linspace(0.1, 0.9, 8), np.linspace(0.9, 0.1, 8) + 0.02 * rng.standard_normal(8)
    places = _label_places(x, y, [f"ν = {n}" for n in range(8)], (0, 1), (0, 1))
    boxes = []
    for place, a, b in zip(places, x * 640, y * 380, strict=True):
        up, side = place.split()
        left, bottom = (a + 9 if side == "right" else a - 9 - 36), b + {"top": 5, "bottom": -20, "middle": -8}[up]
        boxes.append((left, bottom, left + 36, bottom + 15))
    overlap = [
        (i, j)
        for i, p in enumerate(boxes)
        for j, q in enumerate(boxes)
        if i < j and p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]
    ]
    assert not overlap


def test_over_nu_bands_and_references(verification):
    at = verification.isel(region=0, lead_time=0, variable=0)
    figure = get("figures", "coverage_over_nu").screen(verification)
    band = next(t for t in figure.data if t.fill == "tonexty")
    np.testing.assert_allclose(band.y, at["coverage_95_high"])
    np.testing.assert_allclose(figure.data[0].y, at["coverage_95_low"])
    levels = {round(s.y0, 6) for s in figure.layout.shapes}
    assert levels == {0.95, round(verification.attrs["nominal_95"], 6)}
    texts = " ".join(a.text for a in figure.layout.annotations)
    assert "nominal 95%" in texts
    assert "perfect (Gaussian) at M = 20: 87.1%" in texts
    assert list(figure.layout.xaxis.ticktext) == ["1", "2", "4", "8", "16", "32", "64", "128"]
    np.testing.assert_allclose(np.diff(figure.layout.xaxis.tickvals), 1.0)
    rmse = get("figures", "rmse_over_nu").screen(verification)
    assert rmse.layout.shapes[0].y0 == pytest.approx(float(at["rmse_deterministic"]))
    assert get("figures", "spread_skill_over_nu").screen(verification).layout.shapes[0].y0 == 1
    other = get("figures", "coverage_over_nu").screen(verification, level=50)
    assert [s.y0 for s in other.layout.shapes] == [0.5]
    np.testing.assert_allclose(trace(other, mode="markers").y, at["coverage_50"])


def test_pit_histogram_merges_ranks_and_bars_equal_the_table(verification):
    table = get("figures", "pit_histogram").data(verification, nu=16)
    bars = next(t for t in get("figures", "pit_histogram").screen(verification, nu=16).data if t.type == "bar")
    shares = verification["rank_counts"].isel(region=0, lead_time=0, variable=0).sel(nu=16).values
    np.testing.assert_allclose(bars.y, shares.reshape(7, 3).sum(1) * 7)
    np.testing.assert_allclose(table["density"].mean(), 1)
    np.testing.assert_allclose(bars.x, (np.arange(7) + 0.5) / 7)
    assert (table["band_low"] < 1).all()
    assert (table["band_high"] > 1).all()


@pytest.mark.parametrize(("ranks", "bins"), [(21, 7), (11, 11), (51, 17), (101, 101), (24, 12), (2, 2), (100, 10)])
def test_bins_divide_the_ranks(ranks, bins):
    assert _pit.bin_count(ranks) == bins
    assert ranks % bins == 0


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (np.full(21, 1 / 21), "is not told apart from honest"),
        (np.r_[0.3, np.full(19, 0.4 / 19), 0.3], "is too narrow (under-dispersed)"),
        (np.r_[np.full(7, 0.01), np.full(7, 0.86 / 7), np.full(7, 0.01)], "is too wide (over-dispersed)"),
        (np.arange(21, 0, -1.0), "is too high (biased)"),
        (np.arange(1, 22.0), "is too low (biased)"),
    ],
)
def test_the_shape_of_a_pit_in_words(shares, words):
    assert _pit.verdict(shares / shares.sum(), 0.03).words == words


def test_a_pit_without_a_band_is_not_called_honest():
    assert "honest" not in _pit.verdict(np.full(21, 1 / 21), float("nan")).words


def test_words_follow_nu(verification):
    describe = get("figures", "pit_histogram").describe
    assert "too wide" in describe(verification, nu=1)
    assert "too narrow" in describe(verification, nu=128)
    assert "over-confident" in get("figures", "reliability").screen(verification, nu=128).layout.title.text


def test_pit_ecdf_is_the_cumulated_departure_within_its_band(verification):
    figure, table = (getattr(get("figures", "pit_ecdf"), how)(verification, nu=(4, 64)) for how in ("screen", "data"))
    shares = verification["rank_counts"].isel(region=0, lead_time=0, variable=0).sel(nu=64).values
    line = next(t for t in figure.data if t.name == "ν = 64")
    np.testing.assert_allclose(line.y, np.r_[0, np.cumsum(shares)] - np.arange(22) / 21, atol=1e-12)
    bands = [t for t in figure.data if t.fill == "tonexty"]
    np.testing.assert_allclose([b.y[0] for b in bands], verification["pit_band"].isel(region=0, lead_time=0, variable=0).sel(nu=[4, 64]))
    assert table.groupby("nu").size().tolist() == [22, 22]


def test_quantile_reliability_of_an_honest_ensemble_is_the_diagonal(verification):
    flat = verification.copy()
    flat["rank_counts"] = flat["rank_counts"] * 0 + 1 / 21
    table = get("figures", "quantile_reliability").data(flat)
    np.testing.assert_allclose(table["frequency"], table["level"])
    assert "not told apart from what they say" in get("figures", "quantile_reliability").screen(flat).layout.title.text


def test_rank_histogram_carries_bootstrap_bars_and_thins_for_many_members(verification):
    bars = next(t for t in get("figures", "rank_histogram").screen(verification, nu=16).data if t.type == "bar")
    at = verification.isel(region=0, lead_time=0, variable=0).sel(nu=16)
    np.testing.assert_allclose(np.asarray(bars.y) + bars.error_y.array, np.maximum(at["rank_high"], at["rank_counts"]))
    many = (
        verification.drop_vars(["probability"])
        .interp(rank=np.linspace(0, 20, 101))
        .assign_coords(rank=np.arange(101))
        .assign_attrs(members=100)
    )
    assert not [t for t in get("figures", "rank_histogram").screen(many, nu=16).data if t.type == "bar"]


def test_reliability_panels_bands_and_counts(verification):
    figure, table = (getattr(get("figures", "reliability"), how)(verification, nu=8) for how in ("screen", "data"))
    at = verification.isel(region=0, lead_time=0, variable=0).sel(nu=8)
    values = at["threshold_value"].values
    for index, threshold in enumerate(values):
        part = table[np.isclose(table["threshold"], threshold)]
        line = [t for t in figure.data if t.type == "scatter" and t.mode == "markers"][index]
        np.testing.assert_allclose(line.y, part["frequency"])
        np.testing.assert_allclose(part["weight"].sum(), 1)
    assert len([t for t in figure.data if t.type == "bar"]) == 3, "a counts strip per threshold"
    assert len([t for t in figure.data if t.type == "scatter" and t.fill == "tonexty"]) == 3
    np.testing.assert_allclose(table["frequency"], at["corp_event"].values[~np.isnan(at["corp_event"].values)])
    assert get("figures", "reliability").data(verification, nu=8, threshold=1)["threshold"].nunique() == 1


def test_spread_skill_groups_keep_the_sums(verification):
    table = get("figures", "spread_skill").data(verification, nu=4)
    at = verification.isel(region=0, lead_time=0, variable=0).sel(nu=4)
    assert 8 <= len(table) <= 10
    np.testing.assert_allclose(table["weight"].sum(), 1)
    np.testing.assert_allclose((table["weight"] * table["error"] ** 2).sum(), at["spread_error2"].sum() / at["spread_weight"].sum())
    assert table["weight"].max() < 0.2
    assert (table["error_low"] < table["error"]).all()
    assert table["spread"].is_monotonic_increasing


def test_merge_takes_empty_bins():
    assert [g.tolist() for g in merge(np.array([0.0, 1, 0, 1, 0]), 2)] == [[1], [3]]
    assert merge(np.zeros(4)) == []


def test_cell_pit_counts_cases_of_this_cell(verification):
    table = get("figures", "cell_pit").data(verification, variable="temperature_850", nu=4, latitude=10, longitude=200)
    row, column = np.abs(verification["latitude"].values - 10).argmin(), np.abs(verification["longitude"].values - 200).argmin()
    assert float(verification["valid_map"][0, 1, row, column]) == 0.75
    assert set(table["cases"]) == {30}
    np.testing.assert_allclose(table["density"].mean(), 1, atol=1e-6)
    full = get("figures", "cell_pit").data(verification, variable="temperature_850", nu=4, latitude=10, longitude=20)
    assert full["band_high"].iloc[0] < table["band_high"].iloc[0], "fewer cases, wider band"


def test_cell_series_matches_fields_and_marks_what_fell_outside(verification, fields):
    options = {"fields": fields, "nu": 4, "latitude": 50, "longitude": -170}
    table = get("figures", "cell_series").data(verification, **options)
    here = fields.isel(lead_time=0, variable=0).sel(latitude=table["latitude"].iloc[0], longitude=table["longitude"].iloc[0])
    assert table["longitude"].iloc[0] == pytest.approx(190, abs=3), "longitudes are modulo 360"
    np.testing.assert_allclose(table["observed"], here["observed"], rtol=1e-6)
    np.testing.assert_allclose(table["q0.975"], here["quantiles"].sel(nu=4, quantile=0.975), rtol=1e-6)
    figure = get("figures", "cell_series").screen(verification, **options)
    outside = [t for t in figure.data if t.name == "observed outside 95%"]
    n = int((~table["inside_95"].astype(bool)).sum())
    assert (len(outside[0].x) if outside else 0) == n
    assert f"held {40 - n} of 40" in get("figures", "cell_series").describe(verification, **options)
    assert list(table["init_time"])[29] == "0012-02-30T00:00:00"
    text = json.dumps(figure.to_plotly_json(), default=lambda a: a.tolist())
    assert '"type": "date"' not in text
    assert "0012-02-01" in figure.layout.xaxis.ticktext


@pytest.mark.parametrize(
    ("times", "days"),
    [
        (["2001-02-28T00:00:00", "2001-03-01T12:00:00"], [0, 1.5]),
        (["0012-02-29T00:00:00", "0012-02-30T00:00:00", "0012-03-01T06:00:00"], [0, 1, 2.25]),
        (["2001-02-30T00:00:00", "2001-03-31T00:00:00"], [0, 1]),
        (["day 4", "day 9"], [0, 1]),
    ],
)
def test_dates_of_any_calendar_have_places(times, days):
    assert ordinals(times) == pytest.approx(days)


def test_a_region_without_valid_points_is_refused(verification):
    empty = verification.copy()
    empty["crps_fair"] = empty["crps_fair"].where(empty["region"] != "europe")
    with pytest.raises(SpecError, match="europe"):
        get("figures", "trade_off").data(empty, region="europe")


@pytest.mark.parametrize("key", ["trade_off", "width_over_nu", "coverage_over_nu", "spread_skill_over_nu", "rmse_over_nu", "pit_histogram"])
def test_a_method_without_nu_stands_by_its_name(key, verification):
    """Its one value on the axis of ν means nothing: neither spoken of, nor an axis, nor to be clicked."""
    alone = verification.isel(nu=[3])
    alone = alone.assign_attrs(method="director", method_title="DIRECTOR", uses_nu=0, operating_points="{}")
    figure = get("figures", key)
    drawn, words = figure.screen(alone), figure.describe(alone)
    shown = json.dumps(drawn.to_plotly_json(), default=str, ensure_ascii=False)
    assert "DIRECTOR" in shown and "DIRECTOR" in words
    assert "ν" not in words and "ν" not in shown
    assert all(t.customdata is None for t in drawn.data) or key == "pit_histogram"
    assert "ν = 8" in figure.describe(verification, nu=8)
