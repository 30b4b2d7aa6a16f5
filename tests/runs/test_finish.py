"""The files that a run leaves obey the schema in `engine/runs/verification.py`; operating points from hand-made shards."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from engine.registry import entries
from engine.runs import jobs, operating, store
from engine.runs.accumulate import ShardStatistics
from engine.runs.rows import COLUMNS, document, rows, table
from engine.runs.spec import RunSpec
from engine.runs.verification import FAN, LEVELS, open_fields
from engine.types import Score

FRONT = ("nu", "region", "lead_time", "variable")
MAP = ("nu", "lead_time", "variable", "latitude", "longitude")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, make, world):
    """One run with all scores, two variables, and a place of its own: (verification, fields)."""
    from engine.settings import settings

    own = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUSCOPE_HOME", str(own))
        settings.cache_clear()
        found = jobs.run(make.spec(world, scores=(), variables=make.variables[:2], max_cases=8, regions={"alps": (20, 70, 0, 90)}))
        with open_fields(store.folder(found.attrs["key"])) as maps:
            fields = maps.load()
    settings.cache_clear()
    assert store.settings().home != own
    return found, fields


def test_every_score_has_value_interval_and_words(whole) -> None:
    found = whole[0]
    for score in entries("scoring").values():
        if not isinstance(score, Score) or score.optional or score.profile:
            continue
        names = [score.key] if score.key in found else [n for n in found if str(n).startswith(f"{score.key}_") and f"{n}_low" in found]
        assert names, f"{score.key} is missing"
        for name in names:
            for part in (name, f"{name}_low", f"{name}_high"):
                assert found[part].dims == FRONT
                assert np.isfinite(found[part]).all(), part
        if score.key in found:
            assert {"title", "symbol", "units", "better", "perfect", "estimator", "reference"} <= found[score.key].attrs.keys()
            assert found[score.key].attrs["units"] == ("" if score.unit == "variable" else score.unit)
        if score.headline:
            assert found[f"{score.key}_case"].dims == (*FRONT, "case")


SCHEMA = {
    **{f"{n}_deterministic{end}": FRONT[1:] for n in ("rmse", "acc") for end in ("", "_low", "_high")},
    "mean_shift_rmse": FRONT,
    **{n: (*FRONT, "rank") for n in ("rank_counts", "rank_low", "rank_high")},
    **dict.fromkeys(("pit_band", "n_effective"), FRONT),
    **{n: (*FRONT, "threshold", "probability") for n in ("exceedance_weight", "exceedance_event", "corp_event", "corp_low", "corp_high")},
    **{n: (*FRONT, "spread_bin") for n in ("spread_weight", "spread_variance", "spread_error2")},
    "coverage_map": (*MAP[:3], "level", *MAP[3:]),
    "rank_map": (*MAP[:3], "rank_bin", *MAP[3:]),
    **dict.fromkeys(("width_map", "bias_map", "rmse_map", "spread_map"), MAP),
    "valid_map": MAP[1:],
    "seconds": ("nu",),
    "valid_fraction": FRONT[1:],
}


@pytest.mark.parametrize("name", SCHEMA)
def test_every_name_of_the_schema_has_its_dimensions(whole, name) -> None:
    assert whole[0][name].dims == SCHEMA[name]
    allowed_empty = name.startswith("corp_") or name == "n_effective"  # no weight, no frequency; no noise, no count
    assert allowed_empty or np.isfinite(whole[0][name]).all()


def test_coordinates(whole) -> None:
    found = whole[0]
    assert found["nu"].values.tolist() == [2, 16] and found["rank"].values.tolist() == [0, 1, 2, 3, 4]
    assert found["probability"].values.tolist() == [0, 1, 2, 3, 4] and found["level"].values.tolist() == list(LEVELS)
    assert found["threshold_value"].dims == ("variable", "threshold")
    assert found["unit"].values.tolist() == ["m", "K"]
    assert found["init_time"].dims == found["valid_time"].dims == ("case",) and found.sizes["case"] == 8
    assert found["region"].values[-1] == "alps"
    # the thresholds are in units of the checkpoint's own spread
    np.testing.assert_allclose(found["threshold_value"].sel(variable="geopotential_height_500"), [-60, 0, 60])


def test_attributes(whole) -> None:
    attrs = whole[0].attrs
    wanted = "key command spec members seed cases method estimator version checkpoint_revision dataset_fingerprint nominal_95".split()
    assert {*wanted, "operating_points", "block_length", "bootstrap", "regions", "title"} <= attrs.keys()
    assert RunSpec.model_validate_json(attrs["spec"]).key() == attrs["key"]
    assert attrs["members"] == 4 and attrs["cases"] == 8
    # what a perfect Gaussian ensemble of four covers, drawn: 4 standard errors of 200 000 draws are 0.0044
    drawn = np.random.default_rng(0).normal(size=(5, 200_000))
    low, high = np.quantile(drawn[:4], (0.025, 0.975), axis=0)
    assert attrs["nominal_95"] == pytest.approx(((low <= drawn[4]) & (drawn[4] <= high)).mean(), abs=0.0044)
    assert json.loads(attrs["regions"])["alps"] == [20, 70, 0, 90]
    assert 1 <= attrs["block_length"] <= 8


def test_intervals_hold_their_values_and_shares_sum_to_one(whole) -> None:
    """A percentile interval of means holds the mean; of a root or a ratio too, at these sizes."""
    found = whole[0]
    for name in ("crps_fair", "width_95", "coverage_95", "rmse", "bias"):
        assert (found[f"{name}_low"] <= found[name]).all() and (found[name] <= found[f"{name}_high"]).all(), name
    np.testing.assert_allclose(found["rank_counts"].sum("rank"), 1, rtol=1e-12)  # float64 shares of five
    np.testing.assert_allclose(found["rank_map"].sum("rank_bin"), 1, rtol=1e-5)  # float32 maps
    assert (found["rank_low"] <= found["rank_counts"]).all() and (found["rank_counts"] <= found["rank_high"]).all()


def lasting(make, tmp_path, scores, nu, bootstrap):
    """A run of 60 cases over weather that stays for ten."""
    world = make.world(tmp_path, days=63)
    days = make.fields("0004-01-01", 63, 1)
    days.isel(time=(np.arange(63) // 10) * 10).assign_coords(time=days["time"]).to_netcdf(world.verify, engine="h5netcdf")
    few = {"nu": nu, "max_cases": 60, "maps": False, "calibrate": (), "bootstrap": bootstrap}
    return jobs.run(make.spec(world, scores=scores, **few))


def test_intervals_hold_the_dependence_of_neighbouring_cases(home, make, tmp_path) -> None:
    """60 cases are worth six, and a mean's interval is some √10 times that of 60 independent ones."""
    found = lasting(make, tmp_path, ("crps_fair", "width_95", "rmse"), (2, 64), 100).isel(region=0, lead_time=0, variable=0)
    assert found.attrs["block_length"] > 5
    for nu in (2, 64):
        at = found.sel(nu=nu)
        case = at["crps_fair_case"].values
        independent = 1.96 * case.std(ddof=1) / np.sqrt(len(case))
        assert float(at["crps_fair_high"] - at["crps_fair_low"]) / 2 > 1.8 * independent
    # a root mean square moves half as much, relatively, as its square
    half = float(found["rmse_deterministic_high"] - found["rmse_deterministic_low"]) / 2
    assert half / float(found["rmse_deterministic"]) > 0.02


def test_consistency_bands_hold_the_dependence_of_neighbouring_cases(home, make, tmp_path) -> None:
    """The band of a reliability curve is that of resampled blocks as long as the run says, and wider than that of single cases."""
    from engine.runs.accumulate import finalise
    from engine.runs.paired import _statistics

    found = lasting(make, tmp_path, ("exceedance",), (2,), 300)
    stats = _statistics(found.attrs["key"], 2)
    length = int(found.attrs["block_length"])
    assert length > 5

    def width(block: int) -> np.ndarray:
        own = finalise(stats, ("exceedance",), members=4, replicates=300, seed=found.attrs["seed"], block=block)
        return own["corp_high"] - own["corp_low"]

    band = (found["corp_high"] - found["corp_low"]).sel(nu=2).isel(lead_time=0, variable=0).values
    np.testing.assert_allclose(band, width(length), rtol=1e-6, atol=1e-9)
    assert np.nanmean(band) > 1.2 * np.nanmean(width(1))


def test_maps_stand_where_their_fields_do(whole) -> None:
    """Each map over all cases, recomputed at each place from the fields of those cases."""
    found, maps = whole
    error = maps["mean"] - maps["observed"]
    low, high = (maps["quantiles"].sel(quantile=q, method="nearest") for q in (0.025, 0.975))
    wanted = {
        "bias_map": error.mean("map_case"),
        "rmse_map": np.sqrt((error**2).mean("map_case")),
        "width_map": (high - low).mean("map_case"),
        "coverage_map": ((low <= maps["observed"]) & (maps["observed"] <= high)).mean("map_case"),
    }
    for name, expected in wanted.items():
        got = found[name].sel(level=95) if name == "coverage_map" else found[name]
        np.testing.assert_allclose(got, expected.transpose(*MAP), rtol=1e-3, atol=1e-2, err_msg=name)  # float32 fields near 5600 m
        assert float(abs(got - got.isel(latitude=slice(None, None, -1)).values).max()) > 0.1, "a map that is turned would show"


@pytest.mark.parametrize("ascending", [True, False])
def test_observed_fields_stand_where_the_file_has_them(home, make, tmp_path, ascending) -> None:
    world = make.world(tmp_path, days=12)
    days = make.fields("0004-01-01", 12, 1).sortby("latitude", ascending=ascending)
    days.to_netcdf(world.verify, engine="h5netcdf")
    key = jobs.run(make.spec(world, nu=(4,), max_cases=3, maps=True, calibrate=())).attrs["key"]
    with open_fields(store.folder(key)) as maps:
        for case in range(maps.sizes["map_case"]):
            observed = maps["observed"].isel(lead_time=0, variable=0, map_case=case)
            then = [t.isoformat()[:13] for t in days["time"].values].index(str(observed["valid_time"].values)[:13])
            file = days[make.variables[0]].isel(time=then)
            for lat, lon in ((70, 10), (-70, 10), (40, 90), (-10, 300)):
                at = {"latitude": lat, "longitude": lon, "method": "nearest"}
                assert float(observed.sel(**at)) == pytest.approx(float(file.sel(**at)), rel=1e-6)


def test_maps_agree_with_the_scores(whole) -> None:
    """The area mean of the coverage map is the globe's coverage: all points are valid."""
    found = whole[0]
    area = np.cos(np.deg2rad(found["latitude"]))
    for level in LEVELS:
        mean = found["coverage_map"].sel(level=level).weighted(area).mean(("latitude", "longitude"))
        np.testing.assert_allclose(mean, found[f"coverage_{level}"].sel(region="globe").transpose(*mean.dims), rtol=1e-5)  # float32 maps


def test_fields(whole) -> None:
    maps = whole[1]
    cell = ("latitude", "longitude")
    assert maps["observed"].dims == maps["deterministic"].dims == ("lead_time", "variable", "map_case", *cell)
    assert maps["mean"].dims == ("nu", "lead_time", "variable", "map_case", *cell)
    assert maps["quantiles"].dims == ("nu", "lead_time", "variable", "map_case", "quantile", *cell)
    assert maps["quantile"].values.tolist() == list(FAN)
    assert maps["init_time"].dims == maps["valid_time"].dims == ("map_case",)
    assert (maps["quantiles"].diff("quantile") >= 0).all()
    assert whole[0]["init_time"].values.tolist() == maps["init_time"].values.tolist()
    rmse = np.sqrt(((maps["mean"] - maps["observed"]) ** 2).mean("map_case")).transpose(*MAP)
    np.testing.assert_allclose(rmse, whole[0]["rmse_map"], rtol=1e-5)  # both float32


def test_a_run_without_maps_leaves_none(home, spec) -> None:
    key = jobs.run(spec(maps=False)).attrs["key"]
    assert not (store.folder(key) / "fields.nc").exists()


def test_rows_and_document(whole) -> None:
    answer = document(whole[0])
    assert list(answer["operating_points"]) == ["calibration_first", "score_oriented"]
    assert [r["nu"] for r in answer["rows"]] == [2, 16]
    for r in answer["rows"]:
        assert r["members"] == 4 and r["seconds"] > 0
        for name in COLUMNS:
            assert r[name].keys() == {"value", "low", "high"}
    other = rows(whole[0], region="alps", variable="temperature_850")
    assert other[0]["crps_fair"]["value"] == whole[0]["crps_fair"].sel(nu=2, region="alps", variable="temperature_850").item()
    text = table(answer)
    assert "calibration-first: ν = " in text and "geopotential_height_500 (m), 72 h" in text and answer["key"] in text


class Landscape:
    """By hand: residuals Z `(case,)`, perturbations R `(ν, case, member)` and fair CRPS `(ν, case)` as a landscape keeps them."""

    def __init__(self, nu, residual, perturbation, crps) -> None:
        self.residual = np.array(residual)[:, None, None].repeat(2, axis=2) ** 2
        self.kept = {}
        for n, r, c in zip(nu, perturbation, crps, strict=True):
            square = np.array(r)[:, :, None, None].repeat(2, axis=3) ** 2
            statistics = ShardStatistics(
                np.arange(len(c)), np.isfinite(np.array(c))[:, None] * 1.0, {"crps_fair": np.array(c)[:, None]}, {}
            )
            # all of a departure is spread: its mean over many members is nothing
            self.kept[n] = SimpleNamespace(square=square, shift=0 * square[:, 0], statistics={"z": statistics})

    def evaluate(self, nu, number=0):
        return self.kept[nu]


def plan_of(*nu):
    backbone = SimpleNamespace(output_sd=np.ones(1))
    return SimpleNamespace(
        nu=nu, variables=("z",), outputs=[0], backbone=backbone, spec=SimpleNamespace(chosen={}), method=SimpleNamespace(uses_nu=True),
        regions={"globe": (-90, 90, 0, 360)}, lead_hours=(72.0,),
    )  # fmt: skip


def test_operating_points_from_the_calibration_split() -> None:
    """By hand: three cases, ν = 1, 2, 4; the residual scale is 2, perturbations 4, 2 and 1."""
    perturbation = [[[4.0, 4.2]] * 2 + [[4.0, 4.0]], [[2.0, 2.2]] * 2 + [[2.0, 1.8]], [[1.0, 1.0]] * 2 + [[1.0, 1.2]]]
    landscape = Landscape((1, 2, 4), [2.0] * 3, perturbation, [[9.0, 9.0, 9.0], [5.0, 6.0, 7.0], [4.0, 5.0, 6.0]])
    points, elsewhere = operating.choose(plan_of(1, 2, 4), xr.Dataset(), landscape)
    assert elsewhere == []
    first, second = points["calibration_first"], points["score_oriented"]
    assert (first["nu"], first["chosen_on"], first["edge"]) == (2, "calibrate", False)
    assert (second["nu"], second["edge"]) == (4, True)
    assert first["remark"] == "" and second["remark"] == "lowest at the largest ν tried: try larger ν"
    assert all((p["variable"], p["region"], p["lead_hours"]) == ("z", "globe", 72.0) for p in points.values())
    # L(2) = mean of (0, 0.2²) twice and (0, 0.2²): 0.02
    np.testing.assert_allclose(first["curves"]["loss"][1], 0.02)
    np.testing.assert_allclose(first["curves"]["crps_fair"], [9, 6, 5])
    np.testing.assert_allclose(first["curves"]["target_scale"], [2, 2, 2])


def test_a_case_without_a_valid_point_says_nothing() -> None:
    half = Landscape((1, 2), [2.0, np.nan], [[[2.0] * 2, [9.0] * 2], [[1.0] * 2, [9.0] * 2]], [[2.0, np.nan], [1.0, np.nan]])
    points, _ = operating.choose(plan_of(1, 2), xr.Dataset(), half)
    assert (points["calibration_first"]["nu"], points["score_oriented"]["nu"]) == (1, 2)
    nothing = Landscape((1, 2), [np.nan], [[[2.0] * 2], [[1.0] * 2]], [[np.nan], [np.nan]])
    assert operating.choose(plan_of(1, 2), xr.Dataset(), nothing) == ({}, [])


def test_points_that_a_calibration_found_stand(home, spec) -> None:
    found = jobs.run(spec(chosen={"calibration_first": 16, "score_oriented": 2}))
    points = json.loads(found.attrs["operating_points"])
    assert {name: p["nu"] for name, p in points.items()} == {"calibration_first": 16, "score_oriented": 2}
    assert all(p["chosen_on"] == "calibrate" and "calibration" in p["rule"] for p in points.values())


def test_without_a_calibration_split_it_is_said(home, spec) -> None:
    found = jobs.run(spec(calibrate=()))
    points = json.loads(found.attrs["operating_points"])
    assert points["calibration_first"]["chosen_on"] == "verify" and "no calibration split" in points["calibration_first"]["rule"]
    assert points["calibration_first"]["nu"] == found["nu"].values[found["w1_pit"].sel(region="globe").values.ravel().argmin()]


def test_without_the_scores_there_are_no_points_and_still_a_table(home, spec) -> None:
    found = jobs.run(spec(calibrate=(), scores=("rmse",)))
    assert json.loads(found.attrs["operating_points"]) == {}
    assert "rmse" in table(document(found))


def test_each_variable_has_points_of_its_own() -> None:
    """Two variables on one calibration split: the ν of the one is not the ν of the other, and each names what it is for."""
    first = Landscape((1, 2), [2.0] * 3, [[[2.0] * 3] * 3, [[1.0] * 3] * 3], [[1.0] * 3, [2.0] * 3])
    other = Landscape((1, 2), [1.0] * 3, [[[2.0] * 3] * 3, [[1.0] * 3] * 3], [[2.0] * 3, [1.0] * 3])
    both = Landscape((), [], [], [])
    both.residual = np.concatenate([first.residual, other.residual], axis=1)
    for nu in (1, 2):
        a, b = first.kept[nu], other.kept[nu]
        square = np.concatenate([a.square, b.square], axis=2)
        both.kept[nu] = SimpleNamespace(square=square, shift=0 * square[:, 0], statistics={"z": a.statistics["z"], "t": b.statistics["z"]})
    plan = plan_of(1, 2)
    plan.variables, plan.outputs, plan.backbone.output_sd = ("z", "t"), [0, 1], np.ones(2)
    own, (elsewhere,) = operating.choose(plan, xr.Dataset(), both)
    assert [(p["nu"], p["variable"]) for p in own.values()] == [(1, "z")] * 2
    assert [(p["nu"], p["variable"]) for p in elsewhere.values()] == [(2, "t")] * 2


def test_the_departures_parts_stand_beside_it() -> None:
    """By hand: two members at ±√2 about a shift of √2, so R² = 4 in the mean; unbiased in M = 2, spread² = 4 and shift² = 0."""
    landscape = Landscape((1, 2), [2.0], [[[2.0, 2.0]], [[1.0, 1.0]]], [[1.0], [2.0]])
    for nu in (1, 2):
        landscape.kept[nu].shift = landscape.kept[nu].square.mean(axis=1) / 2
    curves = operating.choose(plan_of(1, 2), xr.Dataset(), landscape)[0]["calibration_first"]["curves"]
    # a shift of nothing is the root of a difference that rounds to some 1e-16
    np.testing.assert_allclose((curves["scale"], curves["spread"], curves["shift"]), ([2, 1], [2, 1], [0, 0]), atol=1e-7)
