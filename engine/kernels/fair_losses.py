"""Proper scores of few members as training losses: differentiable, unbiased in the number of members.

    fair CRPS     mean_i |x_i − y| − Σ_i Σ_j |x_i − x_j| / (2 S (S − 1))        by point
    fair energy   the same with the norm over the points of a field in place of |·|

Sources: Ferro 2014 (fair scores); Lang et al. 2024 (a fair CRPS as the loss of a weather ensemble).
"""

import torch
from torch import Tensor


def fair_crps(members: Tensor, observed: Tensor) -> Tensor:
    """By point: members `(member, …)`, observed `(…)`; at least two members."""
    size = len(members)
    spread = torch.zeros_like(observed)
    for i in range(size):
        for j in range(i):
            spread = spread + (members[i] - members[j]).abs()
    return (members - observed).abs().mean(0) - spread / (size * (size - 1))


def fair_energy(members: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """By field: members `(member, …, H, W)`, observed `(…, H, W)`, weights `(H, W)` or `(H, 1)` with mean 1; norm √(mean w x²), so that it
    has the unit of the field and does not grow with the number of points.
    """

    def norm(x: Tensor) -> Tensor:
        return ((weights * x * x).mean((-2, -1)) + 1e-12).sqrt()

    size = len(members)
    spread = torch.zeros(observed.shape[:-2], device=observed.device)
    for i in range(size):
        for j in range(i):
            spread = spread + norm(members[i] - members[j])
    return norm(members - observed).mean(0) - spread / (size * (size - 1))
