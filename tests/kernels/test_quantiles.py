"""Quantiles against NumPy, intervals between order statistics, and what a perfect ensemble covers."""

import numpy as np
import pytest

from engine.kernels.quantiles import central, linear_quantiles, perfect_coverage, rank_interval


@pytest.mark.parametrize("members", [1, 2, 3, 20, 50])
def test_linear_quantiles_are_numpys(members):
    rng = np.random.default_rng(members)
    x = rng.normal(size=(members, 40))
    for p in (0.0, 0.025, 0.1, 0.5, 0.975, 1.0):
        np.testing.assert_allclose(linear_quantiles(np.sort(x, axis=0), p), np.quantile(x, p, axis=0), atol=1e-14)


def test_missing_members():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 60))
    x[rng.random(x.shape) < 0.4] = np.nan
    x[:, 0] = np.nan
    count = np.count_nonzero(~np.isnan(x), axis=0)
    got = linear_quantiles(np.sort(x, axis=0), 0.1, count)
    assert np.isnan(got[0])
    np.testing.assert_allclose(got[1:], np.nanquantile(x[:, 1:], 0.1, axis=0), atol=1e-14)


@pytest.mark.parametrize(
    ("members", "level", "low", "high", "nominal"),
    [
        (19, 90, 1, 19, 18 / 20),
        (99, 95, 2, 98, 96 / 100),
        (50, 95, 1, 50, 49 / 51),
        (10, 95, 1, 10, 9 / 11),
        (3, 50, 1, 3, 0.5),
        (1, 95, 1, 1, 0.0),
    ],
)
def test_rank_interval(members, level, low, high, nominal):
    assert rank_interval(members, level) == (low, high, pytest.approx(nominal))


@pytest.mark.parametrize("members", [2, 5, 10, 20, 37, 50, 100, 200])
@pytest.mark.parametrize("level", [50, 80, 90, 95])
def test_rank_interval_is_the_nearest_symmetric_one(members, level):
    chosen = rank_interval(members, level)
    assert chosen.low + chosen.high == members + 1
    gaps = [abs((members + 1 - 2 * k) / (members + 1) - level / 100) for k in range(1, members // 2 + 1)]
    assert abs(chosen.nominal - level / 100) == pytest.approx(min(gaps))


@pytest.mark.parametrize(("members", "published"), [(10, 0.793), (20, 0.872), (50, 0.913), (100, 0.933), (200, 0.940)])
def test_perfect_coverage_is_what_a_perfect_ensemble_covers(members, published):
    assert perfect_coverage(members, 95) == pytest.approx(published, abs=2.5e-3)  # the published figures come from one simulation each
    rng = np.random.default_rng(members)
    n = 6_000_000 // members
    x = np.sort(rng.standard_normal((n, members)), axis=-1).T
    low, high = (linear_quantiles(x, p) for p in central(95))
    from scipy.special import ndtr

    inside = ndtr(high) - ndtr(low)  # the observation integrated out: less noise than drawing it
    assert perfect_coverage(members, 95) == pytest.approx(inside.mean(), abs=4.5 * inside.std() / np.sqrt(n))
