"""Whole scores against independent packages and hand-written formulas, through the public function."""

import operator

import numpy as np
import pytest
import scoringrules
import xarray as xr
from scipy import stats
from scores.continuous import rmse as scores_rmse
from scores.probability import brier_score_for_ensemble, crps_for_ensemble

from engine.runs.score import score

RNG = np.random.default_rng(0)
X = RNG.normal(1.0, 1.0, size=(12, 7, 4, 5)).astype(np.float32)
Y = RNG.normal(1.0, 1.5, size=(7, 4, 5)).astype(np.float32)
W = RNG.random((4, 5))
TOLERANCE = 1e-6
"""Where the other package computes in float32."""


def average(values):
    """Cases equally, points by W."""
    return float((np.asarray(values, dtype=np.float64) * W).sum((-2, -1)).mean() / W.sum())


@pytest.mark.parametrize(("name", "method"), [("crps_fair", "fair"), ("crps_ecdf", "ecdf")])
def test_crps(name, method):
    theirs = crps_for_ensemble(
        xr.DataArray(X, dims=("m", "c", "a", "b")), xr.DataArray(Y, dims=("c", "a", "b")), "m", method=method, preserve_dims="all"
    )
    assert score(name, X, Y, weights=W) == pytest.approx(average(theirs), rel=TOLERANCE)
    assert score(name, X, Y) == pytest.approx(float(theirs.mean()), rel=TOLERANCE)


def test_rmse_pooled_and_case_mean_differ_and_agree():
    mean = X.astype(np.float64).mean(0)
    pooled = score("rmse", X, Y)
    assert pooled == score("rmse_pooled", X, Y)
    assert pooled == pytest.approx(float(scores_rmse(xr.DataArray(mean), xr.DataArray(Y.astype(np.float64)))), rel=1e-12)
    by_case = np.sqrt(((mean - Y) ** 2).mean((1, 2))).mean()
    assert score("rmse_case_mean", X, Y) == pytest.approx(by_case, rel=1e-12)
    assert abs(pooled - by_case) > 1e-3


def test_acc():
    climatology = RNG.normal(size=(4, 5))
    f, o = X.astype(np.float64).mean(0) - climatology, Y - climatology
    pooled = average(f * o) / np.sqrt(average(f * f) * average(o * o))
    assert score("acc", X, Y, weights=W, climatology=climatology) == pytest.approx(pooled, rel=1e-12)
    each = (f * o * W).sum((1, 2)) / np.sqrt((f * f * W).sum((1, 2)) * (o * o * W).sum((1, 2)))
    assert score("acc_case_mean", X, Y, weights=W, climatology=climatology) == pytest.approx(each.mean(), rel=1e-12)


def test_nll_is_scipys_density():
    mean, sd = X.astype(np.float64).mean(0), X.astype(np.float64).std(0, ddof=1)
    assert score("nll_gaussian", X, Y, weights=W) == pytest.approx(average(-stats.norm.logpdf(Y, mean, sd)), rel=1e-10)


def test_nll_floor_holds_a_collapsed_point_and_total_collapse_is_infinite():
    x, y = X.copy(), Y.copy()
    x[:, :, 0, 0] = 1.0
    assert np.isfinite(score("nll_gaussian", x, y))
    assert score("nll_gaussian", np.ones((4, 2, 3)), np.zeros((2, 3))) == float("inf")


def test_brier():
    theirs = brier_score_for_ensemble(
        xr.DataArray(X, dims=("m", "c", "a", "b")),
        xr.DataArray(Y, dims=("c", "a", "b")),
        "m",
        1.0,
        event_threshold_operator=operator.gt,
        fair_correction=False,
    )
    assert score("brier", X, Y, thresholds=1.0) == pytest.approx(float(np.squeeze(theirs.mean().values)), rel=1e-9)
    parts = score("brier_decomposition", X, Y, thresholds=1.0)
    assert parts["mcb"] - parts["dsc"] + parts["unc"] == pytest.approx(score("brier", X, Y, thresholds=1.0), rel=1e-12)


def test_brier_threshold_is_on_the_anomaly():
    climatology = np.broadcast_to(np.arange(5.0), (4, 5))
    assert score("brier", X + climatology, Y + climatology, thresholds=0.7, climatology=climatology) == pytest.approx(
        score("brier", X, Y, thresholds=0.7), abs=2e-3
    )


def test_multivariate():
    flat = X.reshape(12, 7, 20).astype(np.float64)
    ours = score("energy_score_fair", X, Y)
    assert ours == pytest.approx(
        scoringrules.es_ensemble(Y.reshape(7, 20).astype(np.float64), np.moveaxis(flat, 0, 1), estimator="fair").mean(), rel=1e-7
    )
    ours = score("variogram_score", X, Y)
    assert ours == pytest.approx(
        scoringrules.vs_ensemble(Y.reshape(7, 20).astype(np.float64), np.moveaxis(flat, 0, 1), p=0.5).mean(), rel=1e-9
    )


@pytest.mark.parametrize("level", [50, 80, 90, 95])
def test_coverage_and_width_are_numpys_quantiles(level):
    low, high = np.quantile(X.astype(np.float64), [(1 - level / 100) / 2, (1 + level / 100) / 2], axis=0)
    assert score(f"coverage_{level}", X, Y, weights=W) == pytest.approx(average((low <= Y) & (high >= Y)), abs=1e-12)
    assert score(f"width_{level}", X, Y, weights=W) == pytest.approx(average(high - low), rel=1e-12)


def test_spread_skill_ratio():
    x = X.astype(np.float64)
    expected = np.sqrt(13 / 12 * average(x.var(0, ddof=1)) / average((x.mean(0) - Y) ** 2))
    assert score("spread_skill_ratio", X, Y, weights=W) == pytest.approx(expected, rel=1e-12)


def test_pit_moments_and_rank_histogram():
    below = (X < Y).sum(0)
    moments = score("pit", X, Y)
    assert moments["mean"] == pytest.approx(((below + 0.5) / 13).mean(), rel=1e-12)
    shares = score("rank_histogram", X, Y)
    np.testing.assert_allclose(shares, np.bincount(below.ravel(), minlength=13) / below.size, atol=1e-14)
    assert score("coverage_rank_50", X, Y) == pytest.approx(((below >= 3) & (below < 10)).mean(), abs=1e-12)  # ranks 3 and 10: 7/13


def test_spread_skill_bins_and_exceedance_sum_up():
    bins = score("spread_skill_bins", X, Y, spread_edges=(0.8, 1.0, 1.2))
    x = X.astype(np.float64)
    assert bins["weight"].sum() == pytest.approx(1, abs=1e-12)
    assert bins["error2"].sum() == pytest.approx(((x.mean(0) - Y) ** 2).mean(), rel=1e-12)
    spread = np.sqrt(13 / 12 * x.var(0, ddof=1))
    assert bins["weight"][1] == pytest.approx(((spread >= 0.8) & (spread < 1.0)).mean(), abs=1e-12)
    exceeded = score("exceedance", X, Y, thresholds=[0.0, 1.0])
    k = (X > 1.0).sum(0)
    np.testing.assert_allclose(exceeded["weight"][1], np.bincount(k.ravel(), minlength=13) / k.size, atol=1e-14)
    np.testing.assert_allclose(exceeded["event"][1], np.bincount(k.ravel(), weights=(Y > 1.0).ravel(), minlength=13) / k.size, atol=1e-14)


def test_exceedance_of_missing_members_keeps_its_mean():
    x, y = X.copy(), Y
    x[RNG.random(x.shape) < 0.3] = np.nan
    exceeded = score("exceedance", x, y, thresholds=[1.0])
    mean = (np.nansum(x > 1.0, axis=0) / (~np.isnan(x)).sum(0)).mean()
    assert (exceeded["weight"][0] * np.arange(13) / 12).sum() == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("level", [50, 95])
def test_intervals_agree_with_arviz_stats(level):
    from arviz_stats.base import array_stats

    ends = np.asarray(array_stats.eti(X.reshape(12, -1).astype(np.float64), prob=level / 100, axis=0))
    low, high = np.moveaxis(ends, -1, 0)
    y = Y.reshape(-1)
    assert score(f"width_{level}", X, Y) == pytest.approx((high - low).mean(), rel=1e-9)
    assert score(f"coverage_{level}", X, Y) == pytest.approx(((low <= y) & (high >= y)).mean(), abs=1e-12)
