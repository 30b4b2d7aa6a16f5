"""Fair and ECDF CRPS: hand-computed tables, the O(M²) twin, two independent packages, missing members, float32."""

import numpy as np
import pytest
import scoringrules
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scores.probability import crps_for_ensemble

from engine.kernels import crps as module
from engine.kernels.crps import crps, crps_and_ranks


def brute(members, observed, fair):
    """The definition, pair by pair, at one point; missing members left out."""
    x = np.asarray(members, dtype=np.float64)
    x = x[~np.isnan(x)]
    m = len(x)
    scale = 2 * m * (m - 1) if fair else 2 * m * m
    if scale == 0 or np.isnan(observed):
        return np.nan
    return np.abs(x - observed).mean() - np.abs(x[:, None] - x[None, :]).sum() / scale


@pytest.mark.parametrize(
    ("members", "observed", "fair", "ecdf"),
    [
        ([0.0, 2.0], 1.0, 0.0, 0.5),  # mean|x−y| = 1; pairs sum 4: 4/4 fair, 4/8 ecdf
        ([0.0, 0.0, 3.0], 0.0, 0.0, 1 / 3),  # mean 1; pairs sum 12: 12/12 and 12/18
        ([1.0, 1.0], 4.0, 3.0, 3.0),
        ([5.0], 2.0, np.nan, 3.0),  # one member: no fair form, absolute error
        ([0.0, 1.0, 2.0, 3.0], 10.0, 8.5 - 20 / 24, 8.5 - 20 / 32),
    ],
)
def test_table(members, observed, fair, ecdf):
    x, y = np.array(members)[:, None], np.array([observed])
    np.testing.assert_allclose(crps(x, y), fair, atol=1e-15)  # a handful of exact operations
    np.testing.assert_allclose(crps(x, y, fair=False), ecdf, atol=1e-15)


@pytest.mark.parametrize("fair", [True, False])
@pytest.mark.parametrize("members", [2, 3, 20, 51])
def test_agrees_with_packages_ties_included(members, fair):
    rng = np.random.default_rng(members)
    x = np.round(rng.normal(size=(members, 500)), 1)  # one decimal: many ties, also with the observation
    y = np.round(rng.normal(size=500), 1)
    ours = crps(x, y, fair=fair)
    theirs = crps_for_ensemble(
        xr.DataArray(x, dims=("m", "p")), xr.DataArray(y, dims="p"), "m", method="fair" if fair else "ecdf", preserve_dims="all"
    )
    np.testing.assert_allclose(ours, theirs.values, atol=1e-12)  # float64 sums of at most 51² terms of order one
    rules = scoringrules.crps_ensemble(y, x, m_axis=0, estimator="fair" if fair else "nrg")
    np.testing.assert_allclose(ours, rules, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(0, 10**6), st.booleans(), st.floats(0, 0.6))
def test_twin_with_missing_members(members, seed, fair, share):
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, size=(members, 9)).astype(float)
    x[rng.random(x.shape) < share] = np.nan
    y = rng.integers(-3, 4, size=9).astype(float)
    y[0] = np.nan
    expected = [brute(x[:, p], y[p], fair) for p in range(9)]
    np.testing.assert_allclose(crps(x, y, fair=fair), expected, atol=1e-13)


def test_float32_of_large_mean_keeps_its_digits():
    rng = np.random.default_rng(0)
    x = (56_000 + 30 * rng.standard_normal((20, 400))).astype(np.float32)
    y = (56_000 + 30 * rng.standard_normal(400)).astype(np.float32)
    exact = crps(x.astype(np.float64), y.astype(np.float64))
    # differences of float32 numbers within a factor 2 are exact, so only float64 rounding is left (a float32 sum would miss by 1e-2)
    np.testing.assert_allclose(crps(x, y), exact, atol=1e-10)


def test_ranks_come_with_it_and_chunks_do_not_show(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 9, size=(300, 4, 25)).astype(np.float32), rng.integers(0, 9, size=(4, 25)).astype(np.float32)
    whole = crps_and_ranks(x, y)
    monkeypatch.setattr(module, "CHUNK", 7)
    for a, b in zip(whole, crps_and_ranks(x, y), strict=True):
        np.testing.assert_array_equal(a, b)  # bit for bit: a point's number does not depend on its neighbours
    np.testing.assert_array_equal(whole[1], (x < y).sum(0))
    np.testing.assert_array_equal(whole[2], (x == y).sum(0))
    assert whole[1].max() <= 300
    assert (x < y).sum(0).max() > 255  # more than a byte counts


def test_inputs_are_left_alone():
    x = np.array([[3.0], [1.0], [2.0]])
    crps(x, np.array([1.5]))
    np.testing.assert_array_equal(x.ravel(), [3.0, 1.0, 2.0])


def test_fair_is_unbiased_in_the_number_of_members():
    # E fair CRPS of a standard normal against itself is E|X−Y| − ½E|X−X'| = 1/√π at any M; the ECDF form is larger by 1/(M√π)
    rng = np.random.default_rng(3)
    n = 200_000
    y = rng.standard_normal(n)
    for members in (2, 5):
        x = rng.standard_normal((members, n))
        tolerance = 4 * 0.9 / np.sqrt(n)  # four standard errors; the score's standard deviation is below 0.9
        assert abs(crps(x, y).mean() - 1 / np.sqrt(np.pi)) < tolerance
        assert abs(crps(x, y, fair=False).mean() - (1 + 1 / members) / np.sqrt(np.pi)) < tolerance
