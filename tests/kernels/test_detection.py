"""Detection measures against scikit-learn, FPR at 95 % TPR by hand, and the risk-coverage curve from its definition."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from engine.kernels.detection import aurc, detection, risk_coverage


@pytest.mark.parametrize("digits", [1, 3, 15])
def test_against_sklearn_with_weights_and_ties(digits):
    rng = np.random.default_rng(digits)
    up, down = rng.normal(1, 1, 80).round(digits), rng.normal(0, 1, 50).round(digits)
    w_up, w_down = rng.integers(0, 4, size=(6, 80)).astype(float), rng.integers(0, 4, size=(6, 50)).astype(float)
    found = detection(up, down, w_up, w_down)
    truth, score = np.r_[np.ones(80), np.zeros(50)], np.r_[up, down]
    for r in range(6):
        w = np.r_[w_up[r], w_down[r]]
        assert found.auroc[r] == pytest.approx(roc_auc_score(truth, score, sample_weight=w), abs=1e-12)
        assert found.aupr[r] == pytest.approx(average_precision_score(truth, score, sample_weight=w), abs=1e-12)
        fpr, tpr, _ = roc_curve(truth, score, sample_weight=w, drop_intermediate=False)
        assert found.fpr95[r] == pytest.approx(fpr[tpr >= 0.95 - 1e-12][0], abs=1e-12)


@pytest.mark.parametrize("positives", [20, 40, 60, 100])
def test_fpr95_keeps_exactly_19_of_20_where_it_can(positives):
    """One negative below each positive: after k positives k − 1 negatives have been let in."""
    up = np.arange(positives, 0, -1.0)
    found = detection(up, up - 0.5, np.ones(positives), np.ones(positives))
    assert found.fpr95 == pytest.approx((positives * 0.95 - 1) / positives, abs=1e-12)


def test_a_tie_is_one_step():
    found = detection([1.0, 1.0], [1.0, 1.0], np.ones(2), np.ones(2))
    assert (found.auroc, found.aupr, found.fpr95) == (0.5, 0.5, 1.0)


def test_one_side_without_weight_is_nan():
    for up, down in ((np.zeros(3), np.ones(2)), (np.ones(3), np.zeros(2))):
        assert np.isnan(detection([1.0, 2, 3], [0.0, 1], up, down)).all()
    assert np.isnan(detection([1.0], [], np.ones((4, 1)), np.ones((4, 0))).auroc).tolist() == [True] * 4
    assert np.isnan(detection([], [], np.ones((4, 0)), np.ones((4, 0))).fpr95).tolist() == [True] * 4


def area_by_definition(confidence, correct):
    """Mean over i of the risk among the i most confident, averaged over orders of tied cases."""
    areas = []
    for seed in range(4000 if len(np.unique(confidence)) < len(confidence) else 1):
        order = np.lexsort((np.random.default_rng(seed).random(len(confidence)), -confidence))
        areas.append(np.mean(np.cumsum(~correct[order]) / np.arange(1, len(order) + 1)))
    return np.mean(areas)


def test_area_under_risk_coverage():
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(60), rng.random(60) < 0.7
    assert aurc(confidence, correct, np.ones(60)) == pytest.approx(area_by_definition(confidence, correct), abs=1e-12)
    tied = confidence.round(1)
    assert aurc(tied, correct, np.ones(60)) == pytest.approx(area_by_definition(tied, correct), abs=3e-3)  # mean of 4000 orders
    # right at 0.9, then one right and one wrong tied: risks 0, (1/4), 1/3 on average
    assert aurc(np.array([0.5, 0.9, 0.5]), np.array([True, True, False]), np.ones(3)) == pytest.approx((0 + 1 / 4 + 1 / 3) / 3, abs=1e-14)
    assert aurc(confidence, np.zeros(60, bool), np.ones(60)) == pytest.approx(1, abs=1e-12)
    assert aurc(confidence, np.ones(60, bool), np.ones(60)) == 0
    assert np.isnan(aurc(confidence, correct, np.zeros(60)))


def test_area_counts_weights():
    rng = np.random.default_rng(1)
    confidence, correct = rng.random(30).round(1), rng.random(30) < 0.7
    weights = rng.integers(0, 4, size=(5, 30))
    again = [aurc(np.repeat(confidence, w), np.repeat(correct, w), np.ones(w.sum())) for w in weights]
    np.testing.assert_allclose(aurc(confidence, correct, weights.astype(float)), again, atol=1e-12)


def test_risk_coverage_curve():
    confidence, correct = np.array([0.9, 0.5, 0.5, 0.8, 0.1]), np.array([True, True, False, False, True])
    found = risk_coverage(confidence, correct)
    np.testing.assert_allclose(found.coverage, [0.2, 0.4, 0.8, 1.0])
    np.testing.assert_allclose(found.risk, [0, 0.5, 0.5, 0.4])
    weighted = risk_coverage(confidence, correct, np.array([2.0, 1, 0, 0, 1]))
    np.testing.assert_allclose(weighted.coverage, [0.5, 0.75, 1.0])
    np.testing.assert_allclose(weighted.risk, [0, 0, 0])
    rng = np.random.default_rng(2)
    confidence, correct = rng.random(200), rng.random(200) < 0.6
    assert risk_coverage(confidence, correct).risk.mean() == pytest.approx(float(aurc(confidence, correct, np.ones(200))), abs=1e-12)
