"""The exact W1 of the PIT against a fine grid, against scipy on a large sample, and at its landmarks."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from engine.kernels.wasserstein import integral_abs, pit_cdf, sampling_scale, w1_uniform


@pytest.mark.parametrize(
    ("counts", "value"),
    [
        ([1, 1, 1, 1], 0.0),
        ([1, 0], 0.25),  # F = 2u then 1: ∫ min(u, 1 − u) = 1/4 = M/(2(M + 1))
        ([1, 0, 1], 1 / 12),  # F − u: up to 1/6 at 1/3, −1/6 at 2/3: four triangles
        ([5] + [0] * 999, 999 / 2000),
        ([5] + [0] * 998 + [5], 998 / 4000),
    ],
)
def test_table(counts, value):
    assert w1_uniform(counts) == pytest.approx(value, abs=1e-12)


def test_no_counts_no_value():
    assert np.isnan(w1_uniform([0, 0, 0]))


def test_twin_on_a_fine_grid():
    rng = np.random.default_rng(0)
    counts = rng.random((5, 21)) ** 3
    u = (np.arange(210_000) + 0.5) / 210_000  # a multiple of the bins, so that kinks fall between points
    for row, value in zip(counts, w1_uniform(counts), strict=True):
        F = np.interp(u, np.linspace(0, 1, 22), pit_cdf(row))
        assert value == pytest.approx(np.abs(F - u).mean(), abs=1e-9)  # midpoint rule errs at sign changes only, by (1/n)²


def test_agrees_with_scipy_on_the_randomised_pit():
    rng = np.random.default_rng(1)
    share = np.array([0.3, 0.05, 0.1, 0.15, 0.4])
    n = 400_000
    u = (rng.choice(5, size=n, p=share) + rng.random(n)) / 5
    uniform = (np.arange(n) + 0.5) / n
    # the sample's W1 scatters by about ½/√n = 8e-4 around the exact one
    assert w1_uniform(share) == pytest.approx(wasserstein_distance(u, uniform), abs=4 * 8e-4)


def test_integral_abs_of_a_crossing_line():
    assert integral_abs([-1.0, 3.0]) == pytest.approx((1 + 9) / 8)


def test_floor_of_the_uniform():
    # √(2/π) · π/8 = 0.31333; eight midpoints a segment miss by the root's infinite slope at the ends: below 0.3 % from 11 ranks on
    assert sampling_scale(np.linspace(0, 1, 12)) == pytest.approx(np.sqrt(2 / np.pi) * np.pi / 8, rel=3e-3)
