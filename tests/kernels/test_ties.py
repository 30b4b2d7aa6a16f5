"""Probabilities that differ by rounding alone are ties, whatever sorts them."""

import numpy as np
import pytest

from engine.kernels.binning import consistency_band, equal_count_gaps, tie_starts
from engine.kernels.corp_classes import decompose_classes
from engine.kernels.detection import aurc, detection


@pytest.fixture(params=[np.float64, np.float32])
def rounded(request):
    """Few distinct probabilities `(case, class)`, the same a unit or two in the last place off, and labels."""
    rng = np.random.default_rng(0)
    p = rng.choice([0.2, 0.4, 0.6, 0.9], 400).astype(request.param)
    off = p.copy()
    for _ in range(2):
        off = np.where(rng.random(400) < 0.5, np.nextafter(off, request.param(1)), off)
    labels = (rng.random(400) < 0.7 * p + 0.1).astype(np.int64)
    return p, off, labels


def test_no_score_sees_the_last_digits(rounded):
    p, off, labels = rounded
    correct, ones = labels == 1, np.ones((1, 400))
    for what in (
        lambda q: decompose_classes(np.stack([1 - q, q], -1), labels, ones)["mcb"],
        lambda q: equal_count_gaps(q, correct, ones),
        lambda q: np.r_[detection(q[correct], q[~correct], ones[:, correct], ones[:, ~correct])],
        lambda q: aurc(q, correct, ones),
        lambda q: consistency_band(q, correct, replicates=5).frequency,
    ):
        np.testing.assert_allclose(what(off), what(p), rtol=1e-5, atol=1e-6)


def test_what_differs_by_more_is_not_tied():
    for kind in (np.float32, np.float64):
        eps = np.finfo(kind).eps
        apart = np.array([0.5, 0.5 + 20 * eps, 0.5 + 40 * eps], dtype=kind)
        assert tie_starts(apart).tolist() == [0, 1, 2]
        assert tie_starts(apart[::-1]).tolist() == [0, 1, 2]


def test_a_chain_of_neighbours_is_no_single_tie():
    chain = [np.float64(0.5)]
    for _ in range(100):
        chain.append(np.nextafter(chain[-1], 1.0))
    found = tie_starts(np.array(chain))
    assert 100 / 8 - 1 <= len(found) <= 100 / 4 + 1  # an ulp at 0.5 is eps / 2
    assert tie_starts(np.array([0.1, 0.1, 0.3])).tolist() == [0, 2]
    assert tie_starts(np.array([0.1])).tolist() == [0]
