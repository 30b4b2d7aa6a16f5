"""Self-attention as a sparse Gaussian process (SGPA): tokens carry the mean, a few global keys the covariance.

    k(a, b) = σ² exp(−½ Σᵢ (aᵢ − bᵢ)²/ℓᵢ²)                                     ARD kernel; queries and keys are the same [paper]
    mean = (K_qq − Q_qq) v + K_qg v_g,   Q = K_qg K_gg⁻¹ K_gq                   decoupled: amortised values v, global values v_g [paper]
    cov  = K_qq + K_qg K_gg⁻¹ (S − K_gg) K_gg⁻¹ K_gq                            S of each value channel [paper]

Whitened (our choice, the same family): K_gg = L Lᵀ, B = K_qg L⁻ᵀ, S = L A Aᵀ Lᵀ, v_g = L⁻ᵀ m, so that

    mean = R v + B m,   cov = R + B A Aᵀ Bᵀ,   R = K_qq − B Bᵀ,   KL = KL(N(m, A Aᵀ) ‖ N(0, I)) + ½ vᵀ R v

Functions below work with the correlation (σ = 1): R and B here are the paper's over σ² and σ. In float64: R has eigenvalues near
zero, and float32 would lose them. Value channels and heads are independent of each other.

Source: Chen and Li (2023), arXiv 2303.02444; the decoupling: Salimbeni, Cheng, Boots and Deisenroth (2018), arXiv 1809.08820.
"""

import torch
from torch import Tensor

from engine.errors import RunError

JITTER, MOST_JITTER = 1e-6, 1e-2


def correlation(a: Tensor, b: Tensor, lengthscale: Tensor) -> Tensor:
    """ARD correlation `(..., i, j)` in [0, 1] of `a` `(..., i, d)` and `b` `(..., j, d)`; `lengthscale` `(..., d)`, positive."""
    a, b = a / lengthscale[..., None, :], b / lengthscale[..., None, :]
    square = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :] - 2 * a @ b.mT
    return torch.exp(-0.5 * square.clamp_min(0.0))


def cholesky(matrix: Tensor) -> Tensor:
    """Lower factor of `matrix` `(..., n, n)` plus jitter · I: 1e-6, tenfold for those that fail, at most 1e-2.

    Each matrix has a jitter of its own, so that none depends on its neighbours in the batch. Raises RunError where 1e-2 is not enough.
    """
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    jitter = torch.full(matrix.shape[:-2], JITTER, dtype=matrix.dtype, device=matrix.device)
    while True:
        factor, info = torch.linalg.cholesky_ex(matrix + jitter[..., None, None] * eye)
        failed = info > 0
        if not bool(failed.any()):
            return factor
        jitter = torch.where(failed, jitter * 10, jitter)
        if float(jitter.max()) > MOST_JITTER * 1.5:
            raise RunError(
                "sparse-GP attention",
                found="a kernel matrix that is not positive definite",
                expected=f"a Cholesky factor with a jitter of at most {MOST_JITTER:g}",
                remedy="Lower the learning rate or the number of inducing keys; look for inputs that are not finite.",
            )


def basis(q: Tensor, keys: Tensor, lengthscale: Tensor) -> Tensor:
    """B `(case, head, token, inducing)` of queries `(case, head, token, d)` and global keys `(head, inducing, d)`."""
    factor = cholesky(correlation(keys, keys, lengthscale))
    return torch.linalg.solve_triangular(factor, correlation(keys, q, lengthscale), upper=False).mT


def residual(q: Tensor, lengthscale: Tensor, b: Tensor, mask: Tensor | None = None) -> Tensor:
    """R `(case, head, token, token)`: what the global keys leave of the prior; zero where a token does not count."""
    r = correlation(q, q, lengthscale) - b @ b.mT
    return r if mask is None else r * (mask[:, None, :, None] & mask[:, None, None, :])


def mean(r: Tensor, b: Tensor, values: Tensor, centre: Tensor) -> Tensor:
    """Posterior mean `(case, head, token, d)`; amortised `values` likewise, `centre` (m) `(head, inducing, d)`."""
    return r @ values + b @ centre


def variance(b: Tensor, root: Tensor) -> Tensor:
    """Posterior variance over σ², `(case, head, token, d)`, at tokens that count; `root` (A) `(head, d, inducing, inducing)`."""
    inside = torch.einsum("chti,hdij->chtdj", b, root).square().sum(-1)
    return (1 - b.square().sum(-1)).clamp_min(0.0)[..., None] + inside


def spread(r: Tensor, b: Tensor, root: Tensor, by_token: Tensor, inducing: Tensor) -> Tensor:
    """A draw of the process about its mean over σ, jointly over the tokens of a case, `(case, head, token, d)`.

    Standard normal `by_token` `(case, head, token, d)` and `inducing` `(case, head, d, inducing)`.
    """
    return cholesky(r) @ by_token + b @ torch.einsum("hdij,chdj->chid", root, inducing)


def kl_global(centre: Tensor, root: Tensor) -> Tensor:
    """Sum of KL(N(m, A Aᵀ) ‖ N(0, I)) over heads and value channels; `root` lower triangular with a positive diagonal."""
    logs = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return (root.square().sum((-1, -2)) + centre.square().sum(-2) - centre.shape[-2] - logs).sum() / 2


def kl_amortised(r: Tensor, values: Tensor) -> Tensor:
    """½ vᵀ R v of each case, summed over heads and value channels, `(case,)`."""
    return (values * (r @ values)).sum((1, 2, 3)) / 2
