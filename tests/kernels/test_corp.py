"""Isotonic recalibration against scipy and scikit-learn, and the decomposition's identities."""

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from scores.probability import isotonic_fit
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss

from engine.kernels.corp import decompose, recalibrate


def test_table():
    # frequencies 0, 1, 0, 1 with equal weight: the fall from 1 to 0 is pooled to ½
    np.testing.assert_allclose(recalibrate([1, 1, 1, 1], [0, 1, 0, 1]), [0, 0.5, 0.5, 1])
    np.testing.assert_allclose(recalibrate([3, 0, 1], [3, 0, 0]), [0.75, np.nan, 0.75])
    assert np.isnan(recalibrate([0, 0], [0, 0])).all()


@pytest.mark.parametrize("knots", [2, 11, 51])
def test_agrees_with_scipy_whatever_is_empty(knots):
    rng = np.random.default_rng(knots)
    weight = rng.random((40, 3, knots)) * (rng.random((40, 3, knots)) < 0.7)
    event = weight * rng.integers(0, 4, weight.shape) / 3  # thirds: equal neighbours happen
    got = recalibrate(weight, event)
    for place in np.ndindex(40, 3):
        held = weight[place] > 0
        assert np.isnan(got[place][~held]).all()
        if held.any():
            expected = isotonic_regression(event[place][held] / weight[place][held], weights=weight[place][held]).x
            np.testing.assert_allclose(got[place][held], expected, atol=1e-12)


def test_agrees_with_sklearn_and_scores_case_by_case():
    rng = np.random.default_rng(0)
    members = 10
    k = rng.integers(0, members + 1, size=400)
    outcome = rng.random(400) < (k / members) ** 2
    weight, event = np.bincount(k, minlength=11), np.bincount(k, weights=outcome, minlength=11)
    got = recalibrate(weight, event)
    np.testing.assert_allclose(got, IsotonicRegression().fit(k / members, outcome).predict(np.arange(11) / 10), atol=1e-12)
    theirs = isotonic_fit(k / members, outcome.astype(float))
    np.testing.assert_allclose(got, np.interp(np.arange(11) / 10, theirs["fcst_sorted"], theirs["regression_values"]), atol=1e-12)
    parts = decompose(weight, event, np.arange(11) / 10)
    assert parts["brier"] == pytest.approx(brier_score_loss(outcome, k / members), abs=1e-12)
    assert parts["mcb"] - parts["dsc"] + parts["unc"] == pytest.approx(parts["brier"], abs=1e-14)
    base = outcome.mean()
    assert parts["unc"] == pytest.approx(base * (1 - base), abs=1e-12)
    assert parts["mcb"] > 0.01  # squared probabilities are far from calibrated


def test_parts_are_never_negative():
    rng = np.random.default_rng(1)
    weight = rng.random((200, 6))
    parts = decompose(weight, weight * rng.random((200, 6)), np.arange(6) / 5)
    assert parts["mcb"].min() > -1e-14  # rounding only
    assert parts["dsc"].min() > -1e-14


def test_calibrated_frequencies_are_left_alone():
    stated = np.arange(21) / 20
    np.testing.assert_allclose(recalibrate(np.ones(21), stated), stated, atol=1e-15)
