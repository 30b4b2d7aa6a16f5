"""PIT and rank shares: ties shared, missing members by interval mass, uniform under exchangeability, independent of batches."""

from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scores.probability import rank_histogram

from engine.kernels.pit import bins_that_divide, pit_interval, randomised_pit, rank_share
from engine.types import EnsembleView


def brute(members, observed, bins):
    """Share of each of the M + 1 bins at one point, by overlap of the owned interval with each bin."""
    x = members[~np.isnan(members)]
    low, high = np.sum(x < observed) / (len(x) + 1), (np.sum(x < observed) + np.sum(x == observed) + 1) / (len(x) + 1)
    edges = np.arange(bins + 1) / bins
    return np.array([max(0.0, min(high, b) - max(low, a)) for a, b in pairwise(edges)]) / (high - low)


@pytest.mark.parametrize(
    ("members", "observed", "share"),
    [
        ([1.0, 2.0, 3.0], 0.0, [1, 0, 0, 0]),
        ([1.0, 2.0, 3.0], 2.5, [0, 0, 1, 0]),
        ([1.0, 2.0, 2.0], 2.0, [0, 1 / 3, 1 / 3, 1 / 3]),
        ([2.0, 2.0, 2.0], 2.0, [1 / 4, 1 / 4, 1 / 4, 1 / 4]),
        ([1.0, np.nan, np.nan], 2.0, None),  # fewer than two members: not scored
        ([1.0, 3.0, np.nan], 2.0, [0, 1 / 2, 1 / 2, 0]),  # middle third laid over quarters
    ],
)
def test_table(members, observed, share):
    view = EnsembleView(np.array(members)[:, None, None], np.array([[observed]]))
    got = rank_share(view, np.ones((1, 1)))[0, 0]
    np.testing.assert_allclose(got, np.full(4, np.nan) if share is None else share, atol=1e-15)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_twin(missing):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, size=(7, 3, 40)).astype(np.float32)
    x[rng.random(x.shape) < missing] = np.nan
    y = rng.integers(0, 6, size=(3, 40)).astype(np.float32)
    y[1, 5] = np.nan
    weights = rng.random((2, 40))
    weights[1, :20] = 0
    view = EnsembleView(x, y)
    expected = np.zeros((3, 2, 8))
    for c in range(3):
        valid = view.valid[c]
        for r in range(2):
            for p in np.flatnonzero(valid):
                expected[c, r] += weights[r, p] * brute(x[:, c, p], y[c, p], 8)
            expected[c, r] /= weights[r, valid].sum()
    np.testing.assert_allclose(rank_share(view, weights), expected, atol=1e-14)  # cumulative sums of at most 40 terms


def test_agrees_with_scores():
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 5, size=(9, 60)).astype(float), rng.integers(0, 5, size=60).astype(float)
    theirs = rank_histogram(xr.DataArray(x, dims=("m", "p")), xr.DataArray(y, dims="p"), "m")
    np.testing.assert_allclose(rank_share(EnsembleView(x[:, None], y[None]), np.ones((1, 60)))[0, 0], theirs.values, atol=1e-14)


def test_batch_does_not_show():
    rng = np.random.default_rng(1)
    x, y = np.round(rng.normal(size=(20, 6, 30)), 1), np.round(rng.normal(size=(6, 30)), 1)
    weights = rng.random((3, 30))
    together = rank_share(EnsembleView(x, y), weights)
    apart = np.concatenate([rank_share(EnsembleView(x[:, c : c + 1], y[c : c + 1]), weights) for c in range(6)])
    np.testing.assert_array_equal(together, apart)


def test_randomised_pit_is_uniform_with_ties_and_holes_and_keyed_by_case():
    rng = np.random.default_rng(2)
    pool = rng.integers(0, 4, size=(9, 200, 100)).astype(float)  # four values among eight members: ties everywhere
    x, y = pool[:8], pool[8]
    x[7, :, ::2] = np.nan  # a member missing at half of the points, independent of its value
    u = randomised_pit(EnsembleView(x, y), seed=5, case_ids=range(200))
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    part = randomised_pit(EnsembleView(x[:, 50:60], y[50:60]), seed=5, case_ids=range(50, 60))
    np.testing.assert_array_equal(u[50:60], part)
    assert not np.array_equal(part, randomised_pit(EnsembleView(x[:, 50:60], y[50:60]), seed=6, case_ids=range(50, 60)))


def test_pit_interval_holds_the_observation_without_ties():
    view = EnsembleView(np.array([1.0, 2.0, 3.0])[:, None], np.array([2.5]))
    low, high = pit_interval(view)
    assert (low[0], high[0]) == (0.5, 0.75)


@pytest.mark.parametrize(
    ("members", "points", "bins"), [(20, 2048, 21), (20, 10**6, 7), (50, 10**6, 17), (100, 10**6, 101), (99, 10**6, 20)]
)
def test_rank_bins_divide_the_ranks(members, points, bins):
    assert bins_that_divide(members, points) == bins
    assert (members + 1) % bins == 0
