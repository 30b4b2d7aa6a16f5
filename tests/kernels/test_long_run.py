"""Intervals over dependent cases: what they cover, what they leave alone, and the numbers that can be checked by hand."""

import numpy as np
import pytest
from scipy import stats

from engine.kernels import long_run


def series(records, cases, rho, seed=0):
    """Autoregressions of variance 1 and mean 0, `(case, record)`."""
    noise = np.random.default_rng(seed).standard_normal((cases, records))
    for t in range(1, cases):
        noise[t] = rho * noise[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return noise


@pytest.mark.parametrize("cases", [18, 42, 100])
@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.94), (0.5, 0.94), (0.8, 0.92)])
def test_the_interval_covers_the_mean(cases, rho, least):
    found = series(2000, cases, rho)
    held = np.abs(found.mean(0)) <= long_run.error_of_mean(found).half
    assert least <= held.mean() <= 0.995  # two standard errors of 2,000 records: 0.01


def test_slow_dependence_beneath_noise_is_seen():
    """Half white noise, half an autoregression of 0.9: the first-order model alone covers some 85 %."""
    found = np.sqrt(0.5) * series(1000, 365, 0.9) + np.sqrt(0.5) * series(1000, 365, 0.0, seed=1)
    assert (np.abs(found.mean(0)) <= long_run.error_of_mean(found).half).mean() >= 0.91


def test_independent_cases_are_not_widened_without_need():
    for cases, most in ((42, 1.45), (365, 1.2), (2000, 1.1)):
        half = long_run.error_of_mean(series(300, cases, 0.0)).half.mean()
        assert half * np.sqrt(cases) / 1.96 < most


def test_independent_cases_are_counted():
    for rho in (0.0, 0.5, 0.8):
        true = 365 * (1 - rho) / (1 + rho)
        assert np.median(long_run.error_of_mean(series(300, 365, rho)).independent) == pytest.approx(true, rel=0.25)
    few = long_run.error_of_mean(series(300, 42, 0.9)).independent
    assert (few < long_run.FEW).mean() > 0.7
    assert (long_run.error_of_mean(series(300, 42, 0.0)).independent < long_run.FEW).mean() < 0.01
    assert long_run.said_few(42, 40.0) == [] and "42 cases" in long_run.said_few(42, 3.0)[0]


def test_two_and_three_cases_have_students_interval():
    found = series(5, 3, 0.0)  # too few for the autoregression: the waves are all there are
    want = stats.t(2).ppf(0.975) * found.std(0, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(long_run.error_of_mean(found).half, want, rtol=1e-12)
    assert np.isnan(long_run.error_of_mean(found[:1]).half).all()


def test_scale_shift_and_missing_cases():
    found = series(4, 40, 0.5)
    half = long_run.error_of_mean(found).half
    np.testing.assert_allclose(long_run.error_of_mean(5600 + 1e-3 * found).half, 1e-3 * half, rtol=1e-6)
    holed = np.insert(found, 7, np.nan, axis=0)
    np.testing.assert_array_equal(long_run.error_of_mean(holed).half, half)
    assert (long_run.error_of_mean(np.full((9, 2), 0.1)).half == 0).all()
    np.testing.assert_array_equal(long_run.error_of_mean(found.reshape(40, 2, 2)).half.ravel(), half)


def test_influence_of_a_mean_is_its_departure():
    found, weight = series(3, 12, 0.0)[:, None, :], np.ones((12, 1))
    mean, rest = long_run.leave_one_out(found, weight)
    np.testing.assert_allclose(mean, found.mean(0))
    np.testing.assert_allclose(long_run.influence(rest, weight > 0), found - found.mean(0), atol=1e-12)
    weight[4] = 0
    mean, rest = long_run.leave_one_out(found, weight)
    np.testing.assert_allclose(mean, np.delete(found, 4, 0).mean(0))
    assert np.isnan(long_run.influence(rest, weight > 0)[4]).all()


def test_ends_stay_in_range_and_hold_the_value():
    low, high = long_run.interval(np.array([0.9, 1.0, 0.5]), np.array([0.2, 0.1, 0.1]), (0.0, 1.0))
    assert 0 < low[0] < 0.9 < high[0] < 1 and high[1] == 1 and low[2] == pytest.approx(1 - high[2])
    low, high = long_run.interval(np.array([20.0, 1.0, -0.1]), np.array([2.0, 3.0, 0.1]), (0.0, np.inf))
    assert low[0] * high[0] == pytest.approx(400) and low[1] == 0 and high[1] == 4
    assert long_run.interval(3.0, 1.0) == (2.0, 4.0)


def test_the_floor_of_independent_values_is_the_known_one():
    u = np.linspace(0, 1, 201)
    assert float(long_run.w1_floor(np.sqrt(u * (1 - u) / 400))) == pytest.approx(0.3133 / 20, rel=0.01)
