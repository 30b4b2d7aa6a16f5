"""Block bootstrap: counts, keys, the twin that resamples cases themselves, and intervals that cover."""

import numpy as np
import pytest
from arch.bootstrap import optimal_block_length

from engine.kernels.bootstrap import block_length, interval, resample, weighted_means


def red(rng, cases, rho, shape=()):
    """A first-order autoregressive series of unit variance."""
    out = np.empty((cases, *shape))
    out[0] = rng.standard_normal(shape)
    for t in range(1, cases):
        out[t] = rho * out[t - 1] + np.sqrt(1 - rho**2) * rng.standard_normal(shape)
    return out


@pytest.mark.parametrize(("cases", "block"), [(10, 1), (10, 3), (7, 7), (1, 1), (23, 5)])
def test_rows_are_resamples(cases, block):
    counts = resample(cases, block, 50, seed=1)
    assert counts.shape == (50, cases)
    assert (counts.sum(1) == cases).all()
    assert counts.min() >= 0
    np.testing.assert_array_equal(counts, resample(cases, block, 50, seed=1))
    if cases > 1 and block < cases:
        assert not np.array_equal(counts, resample(cases, block, 50, seed=2))


def test_blocks_are_whole_and_wrap_around():
    counts = resample(12, 4, 400, seed=0)
    # three uncut blocks of four neighbours: the case after a chosen one is chosen at least 3/4 as often
    together = (np.minimum(counts, np.roll(counts, -1, axis=1))).sum() / counts.sum()
    assert together > 0.74
    assert counts.mean(0) == pytest.approx(np.ones(12), abs=0.25)  # four standard errors: each case has the same chance


def test_weighted_means_twin():
    rng = np.random.default_rng(0)
    statistic, weight = rng.normal(size=(9, 2, 3)), rng.random((9, 2))
    statistic[4, 1] = np.nan
    weight[3] = 0
    counts = resample(9, 2, 20, seed=3)
    got = weighted_means(counts, statistic, weight)
    for b in range(20):
        picked = np.repeat(np.arange(9), counts[b].astype(int))
        for r in range(2):
            kept = [i for i in picked if not np.isnan(statistic[i, r]).any()]
            expected = np.average(statistic[kept, r], axis=0, weights=weight[kept, r])
            np.testing.assert_allclose(got[b, r], expected, atol=1e-12)


def test_nothing_left_is_nan():
    assert np.isnan(weighted_means(np.ones((1, 2)), np.array([[1.0], [2.0]]), np.zeros((2, 1)))).all()


def test_block_length_is_archs_and_guarded():
    rng = np.random.default_rng(0)
    series = red(rng, 400, 0.8)
    assert block_length(series) == int(np.ceil(optimal_block_length(series)["circular"].iloc[0]))
    assert block_length(series) > 5
    assert block_length(rng.standard_normal(400)) <= 5
    assert block_length(np.ones(100)) == 1
    assert block_length(np.full(100, np.nan)) == 1
    assert block_length(series[:8]) == 1
    assert block_length(np.cumsum(series[:40])) <= 10
    both = np.stack([np.ones(400), series], axis=-1)
    assert block_length(both) == block_length(series)


def test_interval_holds_the_value_and_takes_out_the_bias():
    replicates = np.random.default_rng(0).normal(5.0, 1.0, size=(4000, 1))
    low, high = interval(np.array([2.0]), replicates)
    assert low[0] == pytest.approx(2 - 1.96, abs=0.15)  # quantiles of 4000 normal draws: standard error 0.04
    assert high[0] == pytest.approx(2 + 1.96, abs=0.15)
    assert np.isnan(interval(np.array([2.0]), np.empty((0, 1)))).all()


def test_intervals_of_a_dependent_mean_cover_and_naive_ones_do_not():
    rng = np.random.default_rng(7)
    records, cases = 300, 300
    data = red(rng, cases, 0.7, (records,))
    hits = {}
    for block in (1, 12):
        replicates = weighted_means(resample(cases, block, 300, seed=0), data, np.ones((cases, records)))
        low, high = interval(data.mean(0), replicates)
        hits[block] = np.mean((low <= 0) & (high >= 0))
    assert hits[12] > 0.86  # nominal 0.95; blocks of finite length are known to fall a little short
    assert hits[1] < 0.70  # the standard error is too small by √((1 + ρ)/(1 − ρ)) = 2.4: coverage 0.59
