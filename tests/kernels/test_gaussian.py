"""Distances between Gaussians, the kernel covariance and the fair losses, against sampling and other implementations."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from engine.kernels.fair_losses import fair_crps, fair_energy
from engine.kernels.gaussian import FLOOR, kl_diagonal, w2_parts
from engine.kernels.kernel_covariance import LAMBDA, attention_variance, distance_from_keys


def draws(seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    m, mu = torch.randn(4, 5, generator=g), torch.randn(4, 5, generator=g)
    s, sigma = torch.rand(4, 5, generator=g) + 0.2, torch.rand(4, 5, generator=g) + 0.3
    return m, s, mu, sigma


def test_the_kl_agrees_with_a_monte_carlo_estimate() -> None:
    m, s, mu, sigma = (x.double() for x in draws())
    z = torch.randn(200_000, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x = m + s * z
    log_ratio = torch.distributions.Normal(m, s).log_prob(x) - torch.distributions.Normal(mu, sigma).log_prob(x)
    estimate = log_ratio.mean((1, 2))
    error = float(estimate.std() / math.sqrt(len(estimate)))
    assert abs(float(kl_diagonal(m, s**2, mu, sigma**2)) - float(estimate.mean())) < 4 * error
    assert error < 0.01


def test_the_kl_agrees_with_torch_and_is_zero_for_equals() -> None:
    m, s, mu, sigma = draws(2)
    both = torch.distributions.Normal(m, s), torch.distributions.Normal(mu, sigma)
    torch.testing.assert_close(kl_diagonal(m, s**2, mu, sigma**2), torch.distributions.kl_divergence(*both).mean())
    assert float(kl_diagonal(m, s**2, m, s**2)) == 0.0


def test_a_teacher_without_noise_counts_as_the_floor() -> None:
    m, _, mu, sigma = draws(3)
    zero = torch.zeros_like(m)
    assert kl_diagonal(m, zero, mu, sigma**2) == kl_diagonal(m, zero + FLOOR, mu, sigma**2)
    assert float(kl_diagonal(m, zero, m, zero)) == 0.0


def test_w2_agrees_with_the_distance_of_sorted_samples() -> None:
    """In one dimension the optimal coupling sorts both samples."""
    m, s, mu, sigma = (float(x[0, 0]) for x in draws(4))
    level = (np.arange(400_000) + 0.5) / 400_000
    q = stats.norm.ppf(level)
    coupled = np.mean(((m + s * q) - (mu + sigma * q)) ** 2)
    one = torch.tensor
    means, sds = w2_parts(one([m]), one([s]), one([mu]), one([sigma]))
    assert float(means + sds) == pytest.approx(coupled, rel=1e-4)
    rng = np.random.default_rng(0)
    sampled = np.mean((np.sort(rng.normal(m, s, 400_000)) - np.sort(rng.normal(mu, sigma, 400_000))) ** 2)
    assert float(means + sds) == pytest.approx(sampled, rel=0.02)


def test_a_query_on_a_key_is_nearly_certain_and_a_distant_one_is_not() -> None:
    g = torch.Generator().manual_seed(0)
    k = 3 * torch.randn(1, 2, 6, 4, generator=g)
    at_key = distance_from_keys(k, k)
    assert float(at_key.max()) < 2 * LAMBDA
    far = distance_from_keys(k + 100, k)
    torch.testing.assert_close(far, torch.ones_like(far))


def test_the_kernel_variance_is_that_of_a_gaussian_process() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    g = torch.Generator().manual_seed(1)
    q, k = torch.randn(1, 1, 5, 3, generator=g), torch.randn(1, 1, 7, 3, generator=g)
    process = GaussianProcessRegressor(RBF(math.sqrt(math.sqrt(3)), "fixed"), alpha=LAMBDA, optimizer=None)
    process.fit(k[0, 0].numpy(), np.zeros(7))
    sd = process.predict(q[0, 0].numpy(), return_std=True)[1]
    np.testing.assert_allclose(distance_from_keys(q, k)[0, 0].numpy(), sd**2, atol=1e-5)


def test_padding_changes_nothing() -> None:
    g = torch.Generator().manual_seed(2)
    q, k = torch.randn(1, 2, 4, 3, generator=g), torch.randn(1, 2, 6, 3, generator=g)
    mask = torch.tensor([[True, True, True, True, False, False]])
    torch.testing.assert_close(distance_from_keys(q, k, mask), distance_from_keys(q, k[:, :, :4]))


def test_the_attention_variance_is_the_diagonal_after_the_projection() -> None:
    g = torch.Generator().manual_seed(3)
    r2, v, w = torch.rand(1, 2, 3, generator=g), torch.rand(2, 4, generator=g), torch.randn(8, 8, generator=g)
    found = attention_variance(r2, v, w)
    for token in range(3):
        full = torch.diag(torch.cat([r2[0, h, token] * v[h] for h in range(2)]))
        torch.testing.assert_close(found[0, token], torch.diag(w @ full @ w.T))


def test_the_fair_losses_are_the_scores() -> None:
    import scoringrules

    g = torch.Generator().manual_seed(5)
    x, y = torch.randn(4, 3, 2, 5, 6, generator=g), torch.randn(3, 2, 5, 6, generator=g)
    theirs = scoringrules.crps_ensemble(y.numpy(), np.moveaxis(x.numpy(), 0, -1), estimator="fair")
    np.testing.assert_allclose(fair_crps(x, y).numpy(), theirs, rtol=2e-5, atol=1e-6)
    flat_x, flat_y = x.flatten(3).numpy() / math.sqrt(30), y.flatten(2).numpy() / math.sqrt(30)
    energy = scoringrules.es_ensemble(flat_y, np.moveaxis(flat_x, 0, -2), estimator="fair")
    np.testing.assert_allclose(fair_energy(x, y, torch.ones(5, 1)).numpy(), energy, rtol=1e-4)
