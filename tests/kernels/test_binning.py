"""Bins of confidence by hand and against netcal, equal-count bins with ties, the CORP curve and its consistency band."""

import numpy as np
import pytest
from netcal.metrics import ECE
from sklearn.isotonic import IsotonicRegression

from engine.kernels.binning import bins, consistency_band, equal_count_gaps, equal_width


def calibrated(rng, cases, classes=5, sharp=2.0):
    logits = sharp * rng.normal(size=(cases, classes))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = (p.cumsum(-1) > rng.random(cases)[:, None]).argmax(-1)
    return p, labels


def test_edges_are_the_numbers_people_write():
    edges = equal_width(15)
    assert (edges[3], edges[6], edges[9], edges[12]) == (0.2, 0.4, 0.6, 0.8)
    assert (edges[0], edges[-1], len(edges)) == (0.0, 1.0, 16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_outer_bins_take_0_and_1_and_an_edge_belongs_below(dtype):
    confidence = np.array([0.0, 0.2, np.nextafter(dtype(0.2), dtype(1)), 0.6, 1.0, 1.0], dtype=dtype)
    correct = np.array([1, 0, 1, 0, 1, 0])
    found = bins(confidence, correct, None, equal_width(15))
    assert found.counts.tolist() == [1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2]
    assert found.accuracy[[0, 2, 3, 8, 14]].tolist() == [1, 0, 1, 0, 0.5]
    np.testing.assert_allclose(found.confidence[[0, 2, 3, 8, 14]], [0, 0.2, 0.2, 0.6, 1], atol=1e-7)
    assert np.isnan(found.accuracy[1])
    assert np.isnan(found.confidence[1])


def test_weights_of_any_leading_shape_are_repetitions():
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(40).round(1), rng.random(40) < 0.5
    weights = rng.integers(0, 4, size=(2, 3, 40))
    found, gaps = bins(confidence, correct, weights, equal_width(5)), equal_count_gaps(confidence, correct, weights, 7)
    assert found.counts.shape == (2, 3, 5)
    assert gaps.shape == (2, 3, 7)
    for place in np.ndindex(2, 3):
        again = np.repeat(confidence, weights[place]), np.repeat(correct, weights[place])
        for one, other in zip(found, bins(*again, None, equal_width(5)), strict=True):
            np.testing.assert_allclose(one[place], other, atol=1e-14)
        np.testing.assert_allclose(gaps[place], equal_count_gaps(*again, np.ones(len(again[0])), 7), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_equal_width_against_netcal(seed):
    p, labels = calibrated(np.random.default_rng(seed), 700)
    confidence, correct = p.max(-1), p.argmax(-1) == labels
    found = bins(confidence, correct, None, equal_width(15))
    held = found.counts > 0
    ours = (found.counts[held] * np.abs(found.accuracy - found.confidence)[held]).sum() / 700
    assert ours == pytest.approx(ECE(15).measure(p, labels), abs=1e-12)


def test_equal_count_is_the_sorted_list_cut_evenly():
    rng = np.random.default_rng(1)
    confidence, correct = rng.random(150), rng.random(150) < 0.4
    order = np.argsort(confidence)
    by_hand = [float((correct[part] - confidence[part]).sum()) for part in np.split(order, 15)]
    np.testing.assert_allclose(equal_count_gaps(confidence, correct, np.ones(150)), by_hand, atol=1e-12)


def test_ties_are_shared_whatever_their_order():
    confidence = np.full(6, 0.5)
    correct = np.array([1, 1, 1, 0, 0, 0])
    np.testing.assert_allclose(equal_count_gaps(confidence, correct, np.ones(6), 2), [0, 0], atol=1e-15)
    # three cases at 0.25 (one right), one at 0.75 (right): halves hold two thirds of the first three, and the rest with the last
    gaps = equal_count_gaps([0.75, 0.25, 0.25, 0.25], [1, 0, 1, 0], np.ones(4), 2)
    np.testing.assert_allclose(gaps, [2 / 3 * 0.25, 1 / 3 * 0.25 + 0.25], atol=1e-15)


def test_curve_is_sklearns_isotonic_regression_with_ties_pooled():
    rng = np.random.default_rng(2)
    confidence = rng.random(300).round(2)
    correct = rng.random(300) < confidence**2
    found = consistency_band(confidence, correct, replicates=10)
    np.testing.assert_array_equal(found.probability, np.unique(confidence))
    expected = IsotonicRegression().fit(confidence, correct).predict(found.probability)
    np.testing.assert_allclose(found.frequency, expected, atol=1e-12)


def test_band_holds_calibrated_curves_and_not_overconfident_ones():
    rng = np.random.default_rng(3)
    inside = {}
    for name, power in (("calibrated", 1.0), ("overconfident", 2.0)):
        shares = []
        for _ in range(20):
            confidence = rng.uniform(0.3, 1.0, 400)
            found = consistency_band(confidence, rng.random(400) < confidence**power, replicates=200)
            shares.append(np.mean((found.low <= found.frequency) & (found.frequency <= found.high)))
        inside[name] = np.mean(shares)
    assert inside["calibrated"] > 0.9  # pointwise 95 %
    assert inside["overconfident"] < 0.5


def test_band_is_keyed_by_its_seed():
    rng = np.random.default_rng(4)
    confidence = rng.random(50)
    one, same, other = (consistency_band(confidence, confidence > 0.5, replicates=30, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.low, same.low)
    assert not np.array_equal(one.low, other.low)
    assert (one.low <= one.high).all()
    assert (np.diff(one.low) >= 0).all()
