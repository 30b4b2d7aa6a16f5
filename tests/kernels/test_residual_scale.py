"""The literal loss and its identity, distances of classifiers by hand, and the dispersion that the loss leads to."""

import numpy as np
import pytest
from scipy import optimize, stats

from engine.errors import CalibrationError
from engine.kernels.residual_scale import classification_distances, dispersion_of_literal_loss, loss, nll


def test_the_parts_add_up_exactly():
    rng = np.random.default_rng(0)
    r, z = rng.gamma(3, size=(4, 7, 5)), rng.gamma(3, size=5)
    got = loss(r, z)
    np.testing.assert_allclose(got.by_case, got.variance + got.mismatch, rtol=1e-12)
    twin = np.array([[np.mean([(r[n, k, i] - z[i]) ** 2 for k in range(7)]) for i in range(5)] for n in range(4)])
    np.testing.assert_allclose(got.by_case, twin, rtol=1e-12)
    np.testing.assert_allclose(got.value, twin.mean(1), rtol=1e-12)
    assert got.value.shape == (4,)
    assert loss(r[0], z).value == pytest.approx(got.value[0])


@pytest.mark.parametrize("count", [1, 2, 10])
def test_one_pass_is_enough_for_an_unbiased_estimate(count):
    """Mean of L̂ over 40 000 records of few passes against Var R + (E R − Z)² of the known law of R: 5 standard errors."""
    law, z = stats.gamma(3, scale=0.5), np.array([0.4, 1.5, 3.0])
    exact = law.var() + (law.mean() - z) ** 2
    r = law.rvs(size=(40_000, count, 3), random_state=np.random.default_rng(count))
    got = loss(r, z)
    error = got.by_case.std(0) / len(r) ** 0.5
    assert (np.abs(got.by_case.mean(0) - exact) < 5 * error).all()
    if count < 10:  # each part alone is biased, by Var R / passes
        assert (np.abs(got.variance.mean(0) - law.var()) > 10 * got.variance.std(0) / len(r) ** 0.5).all()
        np.testing.assert_allclose(got.variance.mean(0), law.var() * (1 - 1 / count), atol=0.02)


@pytest.mark.parametrize(("dimensions", "ratio"), [(1, 0.637), (2, 0.785), (7, 0.931), (96, 0.995)])
def test_table_of_dispersion(dimensions, ratio):
    assert dispersion_of_literal_loss(dimensions) == pytest.approx(ratio, abs=5e-4)


@pytest.mark.parametrize("dimensions", [1, 2, 7])
def test_dispersion_is_what_minimising_the_loss_gives(dimensions):
    """Spread over error at the minimum of L̂ over s, R = s χ and Z = χ′ simulated: the ratio's standard error is below 0.002."""
    rng = np.random.default_rng(dimensions)
    r = np.sqrt(rng.chisquare(dimensions, (1, 400_000)))
    z = np.sqrt(rng.chisquare(dimensions, 400_000))
    found = optimize.minimize_scalar(lambda s: float(loss(s * r, z).value), bounds=(0.1, 2), method="bounded").x
    assert dispersion_of_literal_loss(dimensions) == pytest.approx(found, abs=8e-3)


def test_dispersion_of_many_dimensions_does_not_overflow():
    assert 1 - 1e-6 < dispersion_of_literal_loss(1e6) < 1
    many = dispersion_of_literal_loss(np.arange(1, 50))
    assert (np.diff(many) > 0).all()


def test_distances_of_probabilities_by_hand():
    still = np.log([[0.8, 0.2], [0.5, 0.5]])
    moved = np.log([[[0.6, 0.4], [0.5, 0.5]], [[0.8, 0.2], [0.1, 0.9]]]) + 3.0  # a constant that softmax does not see
    r, z = classification_distances(moved, still, [0, 1], "probabilities")
    np.testing.assert_allclose(r, np.sqrt([[2 * 0.2**2, 0], [0, 2 * 0.4**2]]), atol=1e-12)
    np.testing.assert_allclose(z, np.sqrt([2 * 0.2**2, 2 * 0.5**2]), atol=1e-12)


def test_distances_of_logits_by_hand():
    still, moved = np.array([[3.0, 1.0, 2.0]]), np.array([[[5.0, 1.0, 0.0]]])
    r, z = classification_distances(moved, still, [2], "logits")
    assert r[0, 0] == pytest.approx(np.linalg.norm([2, 0, -2]))  # centred: (3, −1, −2) against (1, −1, 0)
    smoothed = np.log([0.05 / 3, 0.05 / 3, 0.95 + 0.05 / 3])
    assert z[0] == pytest.approx(np.linalg.norm(smoothed - smoothed.mean() - [1, -1, 0]))
    shifted = classification_distances(moved + 7, still - 4, [2], "logits")
    np.testing.assert_allclose(shifted[0], r)
    np.testing.assert_allclose(shifted[1], z)


def test_nll_is_of_the_mean_probability():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(6, 9, 4)), rng.integers(0, 4, 9)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(nll(logits, labels), -np.log(p.mean(0)[np.arange(9), labels]), rtol=1e-12)
    assert nll(np.array([[[0.0, 2000.0]], [[2000.0, 0.0]]]), [0])[0] == pytest.approx(np.log(2))  # one member alone: 2000
    assert nll(np.array([[[0.0, 2000.0]]]), [0])[0] == pytest.approx(2000)


def test_refusals():
    logits = np.zeros((2, 3, 4))
    with pytest.raises(ValueError, match="pass, case"):
        loss(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="pass, case"):
        loss(np.ones((2, 3)), np.ones(4))
    with pytest.raises(CalibrationError, match=r"residual at \(1,\)"):
        loss(np.ones((2, 3)), [1.0, np.nan, 1.0])
    for label in (4, -1, 0.5):
        with pytest.raises(CalibrationError, match="label of case 1"):
            nll(logits, [0, label, 0])
        with pytest.raises(CalibrationError, match="label of case 1"):
            classification_distances(logits, logits[0], [0, label, 0], "logits")
    with pytest.raises(ValueError, match="space"):
        classification_distances(logits, logits[0], [0, 1, 2], "odds")
    with pytest.raises(ValueError, match="case, class"):
        classification_distances(logits, logits, [0, 1, 2], "logits")
    with pytest.raises(ValueError, match="labels"):
        nll(logits, [0, 1])
