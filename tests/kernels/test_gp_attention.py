"""The maths of the two Gaussian-process attentions: exact variances against draws, limits, divergences, the kernel SVD."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from engine.errors import RunError
from engine.kernels import kep, sgpa
from engine.methods._gp_attention import GpAttention, Noise, lower
from engine.methods._kep_attention import KepAttention
from engine.methods._sgpa_attention import SgpaAttention

WIDTH, HEADS, DRAWS = 8, 2, 400_000
MASK = torch.tensor([[True, True, False, True]])
KINDS = {
    "kep": lambda: KepAttention(WIDTH, HEADS, 0.0, rank=3),
    "kep side by side": lambda: KepAttention(WIDTH, HEADS, 0.0, rank=3, concatenate=True),
    "sgpa": lambda: SgpaAttention(WIDTH, HEADS, 0.0, inducing=3),
}


@pytest.fixture(params=KINDS)
def attention(request) -> GpAttention:
    """With roots that are no multiple of the identity, and singular values that differ."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = KINDS[request.param]().eval().requires_grad_(False)
        made.raw_root += 0.4 * torch.randn_like(made.raw_root)
        if isinstance(made, KepAttention):
            made.log_singular += 0.3 * torch.randn_like(made.log_singular)
        else:
            made.log_sd += 1.5
            made.centre += torch.randn_like(made.centre)
        return made


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_moments_are_those_of_draws(attention):
    """Sampling error of a variance from 400 000 draws is 0.2 %."""
    x = drawn(1, 4, WIDTH, seed=1)
    mean, variance = (part[0, MASK[0]].double() for part in attention.moments(x, MASK))
    total = square = torch.zeros_like(mean)
    rows, masks = x.expand(20_000, -1, -1), MASK.expand(20_000, -1)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for _ in range(DRAWS // len(rows)):
            out = attention.proj(attention.latent_draw(rows, masks, Noise(len(rows), rows)))[:, MASK[0]].double() - mean
            total, square = total + out.sum(0), square + out.square().sum(0)
    shift = total / DRAWS
    assert off(square / DRAWS - shift**2, variance) < 0.01
    assert (shift.abs() < 6 * (variance / DRAWS).sqrt()).all()
    assert (variance > 0).all()


def test_output_variance_is_the_diagonal_of_the_dense_covariance(attention):
    x, weight = drawn(2, 4, WIDTH), attention.proj.weight
    _, latent = attention.latent(x, None)
    dense = weight @ torch.diag_embed(latent) @ weight.T
    assert torch.allclose(attention.moments(x)[1], dense.diagonal(dim1=-2, dim2=-1), rtol=1e-5, atol=1e-8)


def test_padding_changes_nothing(attention):
    x = drawn(2, 4, WIDTH)
    far = torch.cat([x[:, :2], 50 * drawn(2, 3, WIDTH, seed=9), x[:, 2:]], 1)
    mask = torch.tensor([True, True, False, False, False, True, True]).expand(2, -1)
    for plain, padded in zip(attention.moments(x), attention.moments(far, mask), strict=True):
        assert torch.allclose(padded[mask].view_as(plain), plain, atol=1e-6)
    keyed = [torch.Generator().manual_seed(i) for i in (0, 1, 0, 1)]
    one = attention.latent_draw(x, None, Noise(2, x, keyed[:2]))
    other = attention.latent_draw(far, mask, Noise(2, far, keyed[2:]))
    assert torch.allclose(other[mask].view_as(one), one, atol=1e-5)


# --- KEP-SVGP ---------------------------------------------------------------------------------------------------------


def test_cosine_kernel():
    q, k = drawn(1, 1, 5, 4), drawn(1, 1, 6, 4, seed=1)
    expected = torch.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)
    assert torch.allclose(kep.cosine(q) @ kep.cosine(k).mT, expected, atol=1e-6)
    assert torch.equal(kep.cosine(torch.zeros(2, 3)), torch.zeros(2, 3))


def singular_system(tokens: int, rank: int):
    phi_q, phi_k = kep.cosine(drawn(1, 1, tokens, 6).double()), kep.cosine(drawn(1, 1, tokens, 6, seed=2).double())
    u, s, vt = torch.linalg.svd((phi_q @ phi_k.mT)[0, 0] / tokens)
    left, right = (h[None, None, :, :rank] * tokens**0.5 for h in (u, vt.T))
    return phi_q, phi_k, left, right, s[None, :rank]


def objective(phi_q, phi_k, h_e, h_r, singular):
    share = kep.share(None, phi_q)
    w_e, w_r = kep.weights(phi_q, phi_k, h_e, h_r, share)
    e, r = phi_q @ w_e, phi_k @ w_r
    return e, r, kep.ksvd_objective(e, r, w_e, w_r, singular, share)


def test_the_singular_system_is_a_zero_of_the_loss():
    phi_q, phi_k, left, right, s = singular_system(9, 3)
    e, r, j = objective(phi_q, phi_k, left, right, s)
    assert torch.allclose(e, left * s[0]) and torch.allclose(r, right * s[0])  # E = H_e Λ, R = H_r Λ
    assert float(j.square()) < 1e-20
    others = [objective(phi_q, phi_k, drawn(1, 1, 9, 3, seed=i).double(), drawn(1, 1, 9, 3, seed=i + 50).double(), s)[2] for i in range(20)]
    assert float(torch.cat(others).square().min()) > 1e-6
    assert float(objective(phi_q, phi_k, left, right, 2 * s)[2].square()) > 1e-4  # right vectors, wrong singular values


def test_at_the_singular_system_the_prior_is_the_kernel_of_rank_s():
    """S = Λ²: the covariance is H Λ² Hᵀ, the best approximation of rank s to κκᵀ."""
    phi_q, phi_k, left, right, s = singular_system(9, 6)
    e, _, _ = objective(phi_q, phi_k, left, right, s)
    _, variance = kep.posterior(e[0, 0], s[0], torch.zeros(6, 1).double(), torch.diag(s[0])[None])
    kernel = (phi_q @ phi_k.mT)[0, 0] / 9
    assert torch.allclose(variance[:, 0], 9 * (kernel @ kernel.T).diagonal())


def test_kep_divergence_is_that_of_the_distributions():
    mean, root, singular = drawn(2, 2, 3, 4), lower(0.3 * drawn(2, 2, 4, 3, 3)), drawn(2, 3).exp()
    q = MultivariateNormal(mean.mT, scale_tril=root)
    p = MultivariateNormal(torch.zeros(3), scale_tril=torch.diag_embed(singular)[None, :, None].expand(2, 2, 4, 3, 3))
    assert torch.allclose(kep.kl(mean, root, singular), kl_divergence(q, p).sum(), rtol=1e-5)


# --- SGPA -------------------------------------------------------------------------------------------------------------


def sparse(tokens: int = 5, inducing: int = 3):
    q, keys = drawn(1, 1, tokens, 4).double(), drawn(1, inducing, 4, seed=1).double()
    lengthscale = torch.tensor([[1.0, 2.0, 0.7, 1.5]]).double()
    return q, keys, lengthscale, sgpa.basis(q, keys, lengthscale)


def test_ard_kernel():
    a, b, lengthscale = drawn(3, 4), drawn(2, 4, seed=1), torch.tensor([1.0, 2.0, 0.5, 3.0])
    expected = torch.exp(-0.5 * (((a[:, None] - b) / lengthscale) ** 2).sum(-1))
    assert torch.allclose(sgpa.correlation(a, b, lengthscale), expected, atol=1e-6)


def test_limits_of_the_inducing_covariance():
    """S = K is the prior, S = 0 what the inducing values leave; at an inducing key nothing is left."""
    q, keys, lengthscale, b = sparse()
    eye = torch.eye(3).double().expand(1, 4, 3, 3)
    assert torch.allclose(sgpa.variance(b, eye), torch.ones(1, 1, 5, 4).double(), atol=1e-12)
    r = sgpa.residual(q, lengthscale, b)
    assert torch.allclose(sgpa.variance(b, 0 * eye)[..., 0], r.diagonal(dim1=-2, dim2=-1), atol=1e-12)
    assert float(sgpa.variance(sgpa.basis(keys[None], keys, lengthscale), 0 * eye).max()) < 1e-5  # the jitter


def test_the_whitened_form_is_the_papers():
    q, keys, lengthscale, b = sparse()
    root, values, m = lower(0.3 * drawn(1, 4, 3, 3)).double(), drawn(1, 1, 5, 4, seed=4).double(), drawn(1, 3, 4, seed=5).double()
    k_gg = sgpa.correlation(keys, keys, lengthscale)[0] + sgpa.JITTER * torch.eye(3).double()
    k_qg, k_qq = sgpa.correlation(q[0, 0], keys[0], lengthscale[0]), sgpa.correlation(q, q, lengthscale)[0, 0]
    factor, inverse = torch.linalg.cholesky(k_gg), torch.linalg.inv(k_gg)
    for channel in range(4):
        s = factor @ root[0, channel] @ root[0, channel].T @ factor.T
        covariance = k_qq + k_qg @ inverse @ (s - k_gg) @ inverse @ k_qg.T
        assert torch.allclose(sgpa.variance(b, root)[0, 0, :, channel], covariance.diagonal())
    v_g = torch.linalg.inv(factor).T @ m[0]
    expected = (k_qq - k_qg @ inverse @ k_qg.T) @ values[0, 0] + k_qg @ v_g
    assert torch.allclose(sgpa.mean(sgpa.residual(q, lengthscale, b), b, values, m)[0, 0], expected)


def test_sgpa_divergence_is_that_of_the_distributions():
    """Global: N(m, AAᵀ) from N(0, I). Amortised: the shift R v of a process with covariance R."""
    m, root = drawn(2, 3, 4), lower(0.3 * drawn(2, 4, 3, 3))
    expected = kl_divergence(MultivariateNormal(m.mT, scale_tril=root), MultivariateNormal(torch.zeros(3), torch.eye(3)))
    assert torch.allclose(sgpa.kl_global(m, root), expected.sum(), rtol=1e-5)
    q, _, lengthscale, b = sparse()
    r, values = sgpa.residual(q, lengthscale, b), drawn(1, 1, 5, 1).double()
    shifted, prior = MultivariateNormal((r @ values)[0, 0, :, 0], r[0, 0]), MultivariateNormal(torch.zeros(5).double(), r[0, 0])
    assert torch.allclose(sgpa.kl_amortised(r, values), kl_divergence(shifted, prior), rtol=1e-6)


def test_jitter_is_raised_for_those_that_fail_and_no_further_than_a_hundredth():
    good, poor = torch.eye(3), torch.eye(3) - 2.001e-1 * torch.ones(3, 3) / 0.6  # least eigenvalue −5e-4
    both = sgpa.cholesky(torch.stack([good, poor]))
    assert torch.equal(both[0], sgpa.cholesky(good))
    added = both[1] @ both[1].T - poor
    assert torch.allclose(added, 1e-3 * torch.eye(3), atol=1e-6)
    with pytest.raises(RunError, match="not positive definite"):
        sgpa.cholesky(-torch.eye(3))
