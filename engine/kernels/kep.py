"""Self-attention as a pair of sparse Gaussian processes on the singular vectors of its asymmetric kernel (KEP-SVGP).

    κ(xᵢ, xⱼ) = ⟨φ_q(xᵢ), φ_k(xⱼ)⟩, φ of unit length                          cosine of query and key [paper]
    e(x) = W_eᵀ φ_q(x),  r(x) = W_rᵀ φ_k(x)                                    left and right features of rank s [paper]
    W_e = meanⱼ φ_k(xⱼ) h_r(xⱼ)ᵀ,  W_r = meanᵢ φ_q(xᵢ) h_e(xᵢ)ᵀ                 weights that depend on the data
    J = ½ mean eᵀΛ⁻¹e + ½ mean rᵀΛ⁻¹r − tr W_eᵀW_r,  loss J²                    zero at every singular system of κ [paper]
    p(u) = N(0, Λ²),  f = H u with H = E Λ⁻¹                                    eigenvectors as inducing features [paper]
    q(u) = N(m, S):  mean E Λ⁻¹ m,  covariance E Λ⁻¹ S Λ⁻¹ Eᵀ                   and the same with R for the right branch [paper]

The part of the prior beyond rank s is left out of the posterior [paper]. The weights are written as the stationarity conditions have
them, W = Σ φ h with dual variables h that are a function of the token, in place of a learned vector for each position (our choice: then
the length of a text is free). Sums over tokens are means over those that count (our choice: κ is an operator on the
empirical measure, mean h hᵀ = I, and Λ does not grow with the number of tokens).

Source: Chen, Tao, Tonin and Suykens (2024), arXiv 2402.01476; the loss: Chen, Tao, Tonin and Suykens (2023), arXiv 2305.19798.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cosine(x: Tensor) -> Tensor:
    """Features of unit length `(..., d)`; a zero vector stays zero."""
    return F.normalize(x, dim=-1)


def share(mask: Tensor | None, like: Tensor) -> Tensor:
    """Weight of each token in a mean over those that count, `(case, 1, token, 1)`; `like` is `(case, head, token, d)`."""
    if mask is None:
        return like.new_full((len(like), 1, like.shape[-2], 1), 1 / like.shape[-2])
    counts = mask.to(like.dtype)
    return (counts / counts.sum(-1, keepdim=True))[:, None, :, None]


def weights(phi_q: Tensor, phi_k: Tensor, h_e: Tensor, h_r: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """W_e and W_r `(case, head, d, s)` from features `(case, head, token, d)`, dual variables `(case, head, token, s)` and `share`."""
    return phi_k.mT @ (h_r * tokens), phi_q.mT @ (h_e * tokens)


def ksvd_objective(e: Tensor, r: Tensor, w_e: Tensor, w_r: Tensor, singular: Tensor, tokens: Tensor) -> Tensor:
    """J `(case, head)`, of either sign; `e` and `r` `(case, head, token, s)`, `singular` the diagonal of Λ `(head, s)`, positive."""
    along = ((e.square() + r.square()) * tokens / singular[:, None]).sum((-1, -2)) / 2
    return along - (w_e * w_r).sum((-1, -2))


def posterior(features: Tensor, singular: Tensor, mean: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each output function at each token, both `(..., token, out)`; outputs are independent of each other.

    `features` `(..., token, s)` is E or R, `singular` `(..., s)`, `mean` `(..., s, out)`, `root` `(..., out, s, s)` with S = root rootᵀ.
    """
    h = features / singular[..., None, :]
    return h @ mean, torch.einsum("...ti,...oij->...toj", h, root).square().sum(-1)


def draw(features: Tensor, singular: Tensor, mean: Tensor, root: Tensor, eps: Tensor) -> Tensor:
    """One function a case at each token, `(..., token, out)`: u = m + root ε is shared by the tokens; `eps` `(..., out, s)`."""
    u = mean + torch.einsum("...oij,...oj->...io", root, eps)
    return features / singular[..., None, :] @ u


def kl(mean: Tensor, root: Tensor, singular: Tensor) -> Tensor:
    """Sum of KL(N(m, S) ‖ N(0, Λ²)) over all output functions; `root` lower triangular with a positive diagonal."""
    scaled = (root / singular[..., None, :, None]).square().sum((-1, -2))
    centre = (mean / singular[..., None]).square().sum(-2)
    logs = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 2 * singular.log().sum(-1)[..., None]
    return (scaled + centre - singular.shape[-1] - logs).sum() / 2
