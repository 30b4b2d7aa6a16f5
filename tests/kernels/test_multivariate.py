"""Energy and variogram scores against their definitions and an independent package; holes and regions."""

import numpy as np
import pytest
import scoringrules

from engine.errors import ScoreError
from engine.kernels.crps import crps
from engine.kernels.multivariate import energy_fair, over_regions, variogram
from engine.types import EnsembleView


def test_agree_with_scoringrules_at_equal_weights():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 5, 6)), rng.normal(size=(5, 6))
    view, ones = EnsembleView(x, y), np.ones((1, 6))
    energy = scoringrules.es_ensemble(y, np.moveaxis(x, 0, 1), estimator="fair")
    np.testing.assert_allclose(over_regions(view, ones, energy_fair)[:, 0], energy, atol=1e-7)  # roots of float64 differences
    both = scoringrules.vs_ensemble(y, np.moveaxis(x, 0, 1), p=0.5)
    np.testing.assert_allclose(over_regions(view, ones, variogram)[:, 0], both, atol=1e-10)


def test_one_point_is_the_fair_crps():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(9, 12, 1)), rng.normal(size=(12, 1))
    np.testing.assert_allclose(over_regions(EnsembleView(x, y), np.ones((1, 1)), energy_fair)[:, 0], crps(x, y)[:, 0], atol=1e-7)


def test_twin_with_weights_regions_and_holes():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(5, 2, 7)), rng.normal(size=(2, 7))
    x[3, 0, 2], y[1, 4] = np.nan, np.nan
    weights = rng.random((2, 7))
    weights[1, :3] = 0
    got = over_regions(EnsembleView(x, y), weights, energy_fair)
    for c in range(2):
        for r in range(2):
            points = np.flatnonzero((weights[r] > 0) & ~np.isnan(y[c]))
            w = weights[r, points] / weights[r, points].mean()
            e = x[:, c, points]
            e = e[~np.isnan(e).any(1)]
            m = len(e)
            to_observed, between = (np.sqrt((w * d * d).sum(-1)) for d in (e - y[c, points], e[:, None] - e[None]))
            expected = to_observed.mean() - between.sum() / (2 * m * (m - 1))
            assert got[c, r] == pytest.approx(expected, abs=1e-7)
    assert len(x[:, 0][~np.isnan(x[:, 0]).any(1)]) == 4  # the member with the hole is left out whole


def test_variogram_is_blind_to_a_shift():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(5, 1, 7)), rng.normal(size=(1, 7))
    one = np.ones((1, 7))
    assert over_regions(EnsembleView(x + 9, y), one, variogram) == pytest.approx(over_regions(EnsembleView(x, y), one, variogram), rel=1e-9)


def test_variogram_refuses_what_would_take_hours():
    with pytest.raises(ScoreError, match="8193 points"):
        variogram(np.zeros((2, 8193)), np.zeros(8193), np.ones(8193))
