"""A covariance for plain softmax attention, read as kernel regression: how far a query lies from all keys.

    e^{q·k/c} = e^{|q|²/2c} · e^{|k|²/2c} · κ(q, k),   κ(q, k) = e^{−|q − k|²/2c},   c = √d
    r_i² = 1 − κ_i (κ_kk + λI)⁻¹ κ_iᵀ          posterior variance of a unit Gaussian process at q_i, given the keys; in [0, 1]
    Σ_i = τ² Σ_h r²_{ih} · W_O,h² v_h           v_h: training variance of head h's values, by channel; W_O² element by element

Sources: the RBF part of the softmax kernel is textbook; the covariance, its scale τ and λ are our choice (methods.md §2).
"""

import torch
from torch import Tensor

LAMBDA = 1e-2
"""Noise of the regression, in units of the kernel's unit variance."""


def distance_from_keys(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """r², `(case, head, query)` in [0, 1], of q and k `(case, head, token, d)`; `mask` `(case, token)` True where a key counts."""
    q, k = q.double(), k.double()  # κ_kk is nearly singular where keys nearly coincide
    c = q.shape[-1] ** 0.5
    cross = torch.exp(-(torch.cdist(q, k) ** 2) / (2 * c))
    among = torch.exp(-(torch.cdist(k, k) ** 2) / (2 * c))
    if mask is not None:
        counts = mask[:, None, None, :].double()
        cross, among = cross * counts, among * counts * counts.transpose(-1, -2)
    eye = torch.eye(k.shape[-2], dtype=q.dtype, device=q.device)
    factor = torch.linalg.cholesky(among + LAMBDA * eye)
    solved = torch.linalg.solve_triangular(factor, cross.transpose(-1, -2), upper=False)
    return (1 - solved.square().sum(-2)).clamp(0.0, 1.0).float()


def attention_variance(r2: Tensor, value_variance: Tensor, out_weight: Tensor) -> Tensor:
    """Diagonal of Σ for τ = 1, `(case, token, width)`.

    r² `(case, head, token)`, value_variance `(head, d)`, out_weight `(width, head · d)`.
    """
    heads, d = value_variance.shape
    by_head = torch.einsum("whd,hd->wh", out_weight.unflatten(1, (heads, d)).square(), value_variance)
    return torch.einsum("bhl,wh->blw", r2, by_head)
