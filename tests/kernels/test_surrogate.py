"""The surrogate against independent regressions, its posterior by simulation, its closed forms against numeric minimisation."""

import numpy as np
import pytest
from scipy import optimize, stats

from engine.errors import CalibrationError
from engine.kernels.surrogate import LogLinear, fit, log_optimum


def passes(n=40, slope=-0.5, log_b=0.7, sigma=0.2, seed=0):
    rng = np.random.default_rng(seed)
    nu = np.rint(np.geomspace(1, 200, n))
    return nu, np.exp(slope * np.log(nu) + log_b + sigma * rng.standard_normal(n))


def plain_loss(nu, a, log_b, sigma, target):
    """f as the specification has it."""
    b = np.exp(log_b)
    return b**2 * (np.exp(2 * sigma**2) - np.exp(sigma**2)) * nu ** (2 * a) + (b * np.exp(sigma**2 / 2) * nu**a - target) ** 2


def test_fit_is_least_squares():
    nu, scale = passes()
    line = fit(nu, scale)
    design = np.stack([np.ones(len(nu)), np.log(nu)], 1)
    coefficients, rss, *_ = np.linalg.lstsq(design, np.log(scale))
    assert (line.intercept, line.slope) == pytest.approx(tuple(coefficients), rel=1e-10)
    assert line.sigma == pytest.approx(np.sqrt(rss[0] / (len(nu) - 2)), rel=1e-10)
    other = stats.linregress(np.log(nu), np.log(scale))
    assert line.slope_error == pytest.approx(other.stderr, rel=1e-10)
    half = stats.t.ppf(0.975, len(nu) - 2) * other.stderr
    assert line.slope_interval() == pytest.approx((other.slope - half, other.slope + half), rel=1e-8)
    assert line.count == 40


def test_posterior_is_normal_inverse_chi_square():
    """Moments of 200 000 draws, each within 5 standard errors; the slope's marginal is Student's t."""
    line = fit(*passes(n=14))
    freedom, n = 12, 200_000
    draws = line.draw(n, np.random.default_rng(1))
    inflated = line.sigma**2 * freedom / (freedom - 2)
    variance = draws.sigma**2
    assert variance.mean() == pytest.approx(inflated, abs=5 * variance.std() / n**0.5)
    x = np.log(passes(n=14)[0])
    design = np.stack([np.ones(14), x], 1)
    expected = inflated * np.linalg.inv(design.T @ design)
    both = np.stack([draws.intercept, draws.slope])
    away = both - np.array([[line.intercept], [line.slope]])
    assert (np.abs(away.mean(1)) < 5 * away.std(1) / n**0.5).all()
    products = away[:, None] * away[None, :]
    assert (np.abs(products.mean(-1) - expected) < 5 * products.std(-1) / n**0.5).all()
    assert stats.kstest((draws.slope - line.slope) / line.slope_error, stats.t(freedom).cdf).pvalue > 1e-3
    assert stats.kstest(freedom * line.sigma**2 / variance, stats.chi2(freedom).cdf).pvalue > 1e-3


@pytest.mark.parametrize("sigma", [0.01, 0.2, 0.9])
@pytest.mark.parametrize("slope", [-0.2, -0.5, -1.3])
@pytest.mark.parametrize("target", [0.05, 1.0])
def test_closed_forms(slope, sigma, target):
    line = LogLinear(slope, 0.7, sigma, 20, 2.0, 9.0)
    nu = np.geomspace(0.1, 1000, 40)
    # the plain form loses digits where f is a small difference of s0²-sized terms: relative to those
    np.testing.assert_allclose(line.loss(nu, target), plain_loss(nu, slope, 0.7, sigma, target), rtol=1e-9, atol=1e-12 * target**2)
    best = line.log_optimum(target)
    found = optimize.minimize_scalar(
        lambda x: plain_loss(np.exp(x), slope, 0.7, sigma, target), bounds=(best - 3, best + 4), method="bounded", options={"xatol": 1e-9}
    )
    assert best == pytest.approx(found.x, abs=1e-5)  # a minimum is found to the root of the rounding of f only
    assert line.loss(line.optimum(target), target) == pytest.approx(target**2 * -np.expm1(-(sigma**2)), rel=1e-9)


def test_loss_and_mean_are_those_of_a_lognormal_scale():
    line = LogLinear(-0.5, 0.3, 0.4, 20, 2.0, 9.0)
    s = np.exp(line.slope * np.log(5) + line.intercept + line.sigma * np.random.default_rng(0).standard_normal(400_000))
    squares = (s - 0.8) ** 2
    assert line.loss(5, 0.8) == pytest.approx(squares.mean(), abs=5 * squares.std() / len(s) ** 0.5)
    assert line.mean(5) == pytest.approx(s.mean(), abs=5 * s.std() / len(s) ** 0.5)


def test_extremes_overflow_nowhere():
    """Warnings are errors in this suite."""
    line = LogLinear(-2.0, 400.0, 30.0, 3, 1.0, 1.0)
    assert np.isfinite(line.log_loss(np.linspace(-1e4, 1e4, 9), 1e-200)).all()
    assert line.loss(1.0, 1e-3) >= 0
    assert LogLinear(-2.0, 900.0, 0.1, 3, 1.0, 1.0).loss(1.0, 1.0) == np.inf
    assert LogLinear(-1e-300, 5.0, 0.1, 3, 1.0, 1.0).optimum(1.0) == np.inf
    assert LogLinear(-1e-3, -5.0, 0.1, 3, 1.0, 1.0).optimum(1.0) == 0.0
    three = fit([1, 2, 4], [1.0, 0.4, 0.5])
    posterior = three.draw(10_000, np.random.default_rng(0))  # one degree of freedom: σ of some draws is enormous
    assert not np.isnan(log_optimum(*posterior, 0.5)[posterior.slope < 0]).any()
    assert all(np.isfinite(part).all() for part in three.band([1, 10, 100], np.random.default_rng(0))[:1])


def test_a_scale_that_rises_has_no_optimum():
    for slope in (0.0, 0.3, np.nan):
        assert np.isnan(LogLinear(slope, 0.0, 0.1, 9, 1.0, 1.0).optimum(0.5))
    mixed = log_optimum([-0.5, 0.5], [0.0, 0.0], [0.0, 0.0], 0.5)
    assert mixed[0] == pytest.approx(np.log(4))
    assert np.isnan(mixed[1])


def test_an_exact_fit_has_no_noise():
    line = fit([1, 4, 16], [8.0, 4.0, 2.0])
    assert (line.slope, np.exp(line.intercept)) == pytest.approx((-0.5, 8.0))
    assert line.sigma == pytest.approx(0, abs=1e-12)
    assert LogLinear(-0.5, np.log(8), 0.0, 3, 1.0, 1.0).log_loss(np.log(16), 2.0) < -60
    assert line.optimum(1.0) == pytest.approx(64)


def test_band_covers_the_mean_curve():
    """The true mean scale at three ν, in 400 records of 12 passes; 95 % has a standard error of 1.1 %."""
    nu, hits = np.array([1.0, 20.0, 200.0]), np.zeros(3)
    truth = np.exp(0.7 + 0.02 - 0.5 * np.log(nu))
    for seed in range(400):
        mean, low, high = fit(*passes(n=12, seed=seed)).band(nu, np.random.default_rng(seed), 1000)
        assert ((low < mean) & (mean < high)).all()
        hits += (low <= truth) & (truth <= high)
    assert (np.abs(hits / 400 - 0.95) < 0.045).all()


@pytest.mark.parametrize(
    ("nu", "scale", "says"),
    [
        ([1, 2], [1.0, 0.5], "2 points"),
        ([7, 7, 7, 7], [1.0, 0.5, 0.6, 0.7], "ν = 7"),
        ([1, 2, 37, 4], [1.0, 0.5, 0.0, 0.2], "ν = 37"),
        ([1, 2, 37, 4], [1.0, 0.5, -1.0, 0.2], "ν = 37"),
        ([1, 2, 37, 4], [1.0, 0.5, np.nan, 0.2], "ν = 37"),
        ([1, 2, 37, 4], [1.0, 0.5, np.inf, 0.2], "ν = 37"),
        ([1, 2, -3, 4], [1.0, 0.5, 0.3, 0.2], "ν = -3"),
        ([], [], "0 points"),
    ],
)
def test_what_has_no_line_is_refused_by_name(nu, scale, says):
    with pytest.raises(CalibrationError, match=says):
        fit(nu, scale)


def test_shapes_must_fit():
    with pytest.raises(ValueError, match="point"):
        fit([1, 2, 3], [1.0, 2.0])
