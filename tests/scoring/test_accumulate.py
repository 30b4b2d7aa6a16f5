"""Accumulation: any split of shards gives the same numbers, files round-trip, maps and curves are what they say."""

from itertools import pairwise

import numpy as np
import pytest

from engine.errors import ScoreError
from engine.kernels.area import region_weights
from engine.kernels.wasserstein import pit_cdf
from engine.registry import entries
from engine.runs.accumulate import Accumulator, ShardStatistics, finalise
from engine.types import EnsembleView, Score

LAT, LON = np.linspace(75, -75, 6), np.arange(0.0, 360.0, 45.0)
WEIGHTS = region_weights(LAT, LON, {"globe": (-90, 90, -180, 180), "tropics": (-30, 30, -180, 180)})
NAMES = tuple(k for k, s in entries("scoring").items() if isinstance(s, Score) and k != "variogram_score")
CASES, MEMBERS = 30, 8
RNG = np.random.default_rng(0)
CENTRE = 5500 + 100 * RNG.standard_normal((CASES, 6, 8))
X = (CENTRE + 20 * RNG.standard_normal((MEMBERS, CASES, 6, 8))).astype(np.float32)
Y = (CENTRE + 20 * RNG.standard_normal((CASES, 6, 8))).astype(np.float32)
Y[3, :2] = np.nan
Y[:, 5, 7] = np.nan
X[2, 4, 3] = np.nan
Y[6, 2, 2] = X[0, 6, 2, 2]  # a tie
OPTIONS = {"thresholds": (-50.0, 50.0), "spread_edges": (15.0, 20.0, 25.0)}


def gather(cases, *, names=NAMES, step=1):
    sums = Accumulator(names, WEIGHTS, MEMBERS, **OPTIONS)
    cases = list(cases)
    for start in range(0, len(cases), step):
        part = cases[start : start + step]
        sums.add(
            EnsembleView(X[:, part], Y[part], climatology=np.full((len(part), 6, 8), 5500.0), reference=np.nan_to_num(X[0, part])), part
        )
    return sums.result()


ALL = gather(range(CASES))
DONE = finalise(ALL, NAMES, members=MEMBERS, replicates=60, seed=1)


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


@pytest.mark.parametrize("cuts", [(10,), (1, 2, 29), (7, 14, 21)])
@pytest.mark.parametrize("step", [1, 4])
def test_any_split_gives_the_same_bits(cuts, step):
    edges = (0, *cuts, CASES)
    shards = [gather(range(a, b), step=step) for a, b in pairwise(edges)]
    assert same(finalise(ShardStatistics.concatenate(shards), NAMES, members=MEMBERS, replicates=60, seed=1), DONE)


def test_order_of_shards_does_not_show():
    shards = [gather(range(20, 30)), gather(range(10)), gather(range(10, 20))]
    assert same(finalise(ShardStatistics.concatenate(shards), NAMES, members=MEMBERS, replicates=60, seed=1), DONE)


def test_a_case_counted_twice_is_refused():
    with pytest.raises(ScoreError, match="case 9 twice"):
        ShardStatistics.concatenate([gather(range(10)), gather(range(9, 12))])


def test_files_round_trip(tmp_path):
    ALL.save(tmp_path / "a.npz")
    again = ShardStatistics.load(tmp_path / "a.npz")
    assert same(again.arrays(), ALL.arrays())
    both = ALL.arrays("4/z/") | gather(range(3)).arrays("8/z/")
    assert same(ShardStatistics.from_arrays(both, "4/z/").arrays(), ALL.arrays())


def test_values_are_those_of_the_public_function():
    from engine.runs.score import score

    for name in ("crps_fair", "w1_pit", "rmse", "coverage_95", "spread_skill_ratio", "acc"):
        value = score(name, X, Y, weights=WEIGHTS[1], climatology=np.full((6, 8), 5500.0))
        np.testing.assert_allclose(DONE[name][1], value, rtol=1e-12)


def test_intervals_hold_the_value_and_stay_in_range():
    for key, score in ((k, s) for k, s in entries("scoring").items() if isinstance(s, Score)):
        for name in [n for n in DONE if n == key or (n.startswith(f"{key}_") and f"{n}_low" in DONE)]:
            if f"{name}_low" in DONE and not score.profile:
                assert (DONE[f"{name}_low"] <= DONE[name]).all()
                assert (DONE[name] <= DONE[f"{name}_high"]).all()
                assert (DONE[f"{name}_low"] < DONE[f"{name}_high"]).all()


def test_maps_are_gridpoint_means():
    valid = ~np.isnan(Y)
    x = X.astype(np.float64)
    error = np.nanmean(x, axis=0) - Y
    count = valid.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        bias = np.where(count > 0, np.where(valid, error, 0).sum(0) / count, np.nan)
    np.testing.assert_allclose(DONE["bias_map"], bias, rtol=2e-5, atol=1e-5)  # float32 maps
    assert np.isnan(DONE["rmse_map"][5, 7])
    np.testing.assert_allclose(DONE["valid_map"], count / CASES, atol=1e-7)
    assert DONE["rank_map"].shape == (9, 6, 8)
    np.testing.assert_allclose(DONE["rank_map"][:, :5].sum(0), 1, atol=1e-6)
    area = WEIGHTS[0] * count
    pooled = np.nansum(DONE["rank_map"].astype(np.float64) * area, axis=(1, 2)) / area.sum()
    np.testing.assert_allclose(
        pooled, DONE["rank_counts"][0], atol=2e-3
    )  # pooled over space first or over cases first: equal but for the holes
    coverage = np.nansum(DONE["coverage_map"][3].astype(np.float64) * area) / area.sum()
    np.testing.assert_allclose(coverage, DONE["coverage_95"][0], atol=2e-3)


def test_rank_curves_and_bands():
    np.testing.assert_allclose(DONE["rank_counts"].sum(-1), 1, atol=1e-12)
    assert (DONE["rank_low"] <= DONE["rank_counts"]).all()
    assert (DONE["rank_counts"] <= DONE["rank_high"]).all()
    assert (DONE["pit_band"] > 0).all()
    np.testing.assert_allclose(pit_cdf(DONE["rank_counts"])[..., -1], 1)
    # 48 independent points a case, of which a region's weights use fewer: the effective number is near their number
    assert 300 < DONE["n_effective"][0] < 6000


def test_reliability_and_spread_bins():
    assert DONE["exceedance_weight"].shape == (2, 2, 9)
    np.testing.assert_allclose(DONE["exceedance_weight"].sum(-1), 1, atol=1e-12)
    held = DONE["exceedance_weight"] > 0
    assert (np.isnan(DONE["corp_event"]) == ~held).all()
    for curve, mask in zip(DONE["corp_event"].reshape(-1, 9), held.reshape(-1, 9), strict=True):
        assert (np.diff(curve[mask]) >= 0).all()
    assert (DONE["corp_low"][held] <= DONE["corp_high"][held]).all()
    np.testing.assert_allclose(DONE["spread_weight"].sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(np.sqrt(DONE["spread_error2"].sum(-1)), DONE["rmse"], rtol=1e-12)


def test_intervals_do_not_depend_on_the_scores_beside_them():
    alone = finalise(gather(range(CASES), names=("crps_fair",)), ("crps_fair",), members=MEMBERS, replicates=60, seed=1)
    for name in ("crps_fair", "crps_fair_low", "crps_fair_high", "block_length"):
        np.testing.assert_array_equal(alone[name], DONE[name])


def test_one_case_has_values_and_no_interval():
    out = finalise(gather([2]), NAMES, members=MEMBERS)
    assert np.isfinite(out["crps_fair"]).all()
    assert np.isnan(out["crps_fair_low"]).all()
    assert np.isnan(out["pit_band"]).all()


def test_deterministic_forecast_is_an_ensemble_of_one():
    sums = Accumulator(("rmse", "acc"), WEIGHTS, 1)
    y = np.nan_to_num(Y, nan=5500.0)
    sums.add(EnsembleView(y[None] + 3, y, climatology=np.full(y.shape, 5500.0)), range(CASES))
    out = finalise(sums.result(), ("rmse", "acc"), members=1)
    np.testing.assert_allclose(out["rmse"], 3.0, rtol=1e-6)  # float32 fields near 5500: spacing 5e-4
    assert "coverage_map" not in out


def test_refusals_say_what_is_wrong():
    sums = Accumulator(("crps_fair",), WEIGHTS, MEMBERS)
    with pytest.raises(ScoreError, match="3 members"):
        sums.add(EnsembleView(X[:3], Y), range(CASES))
    x = X.copy()
    x[1, 2, 3, 4] = np.inf
    with pytest.raises(ScoreError, match="infinite"):
        sums.add(EnsembleView(x, Y), range(CASES))
    with pytest.raises(ScoreError, match="no climatology"):
        Accumulator(("acc",), WEIGHTS, MEMBERS).add(EnsembleView(X, Y), range(CASES))
    with pytest.raises(ScoreError, match="at least 2"):
        Accumulator(("crps_fair",), WEIGHTS, 1).add(EnsembleView(X[:1], Y), range(CASES))
    with pytest.raises(ScoreError, match="no case"):
        sums.result()
    with pytest.raises(ScoreError, match="gridpoint sums"):
        sums.add(EnsembleView(X[..., None], Y[..., None]), range(CASES))


def test_memory_is_the_statistics():
    small = sum(a.nbytes for a in gather(range(5), names=("crps_fair", "rmse")).statistics.values())
    large = sum(a.nbytes for a in gather(range(30), names=("crps_fair", "rmse")).statistics.values())
    assert large == 6 * small == 30 * 2 * 3 * 8  # crps_fair, error2 and pit_mean of two regions
