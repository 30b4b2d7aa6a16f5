"""A problem whose right ν is known, solvable exactly: for tests of the calibration, and for teaching it.

A stack of residual attention layers in which queries and keys come from fixed positions, so that the softmax weights π do
not depend on the input and every layer is linear in it:

    x′ = x + [softmax(Q_h K_hᵀ / √d) (x W)_h  for each head h]        x (token, channel)

Under stochastic attention each query and head averages the values of ν keys drawn from its π, so the mean over draws is
exactly the deterministic output for any depth, and means and covariances follow a recursion over layers. Observations
are members of the same ensemble at a ν of one's choice, which is then the ν that calibration must find.

One layer: E‖R‖² = c/ν exactly, so that the surrogate's slope is −½. Deeper stacks add terms in ν⁻², ν⁻³, …: a bend at small ν.
Source of the law of one layer: arXiv 2604.19530. The problem and its recursion are this project's.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.kernels.intercept import stochastic_attention

OBSERVED = -1
"""Member whose noise makes observations: members of ensembles and passes count from 0, so no pass ever shares it."""


class KnownTruth(nn.Module):
    """The exactly solvable stack; weights are drawn from `seed` and frozen.

    `tokens`, `width`, `heads` (which divide the width) and `layers` are the sizes; `gain` scales the values (0.7 keeps the
    output's scale near the input's for a few layers).
    """

    def __init__(self, *, tokens: int = 16, width: int = 8, heads: int = 2, layers: int = 2, gain: float = 0.7, seed: int = 0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} and {heads} heads; expected heads that divide the width")
        self.heads, self.layers = heads, layers
        source = torch.Generator().manual_seed(seed)
        positions = torch.randn(tokens, width, generator=source)
        project = torch.randn(2, layers, heads, width, width // heads, generator=source) / width**0.5
        queries, keys = positions @ project  # (layer, head, token, width / heads)
        self.register_buffer("queries", queries)
        self.register_buffer("keys", keys)
        self.register_buffer("values", gain * torch.randn(layers, width, width, generator=source) / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Output `(case, token, width)` for input of the same shape; dimensionless."""
        queries, keys, values = self._weights()
        for q, k, w in zip(queries, keys, values, strict=True):
            v = (x @ w).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            out = F.scaled_dot_product_attention(q.expand(len(x), -1, -1, -1), k.expand(len(x), -1, -1, -1), v)
            x = x + out.transpose(1, 2).flatten(2)
        return x

    def observe(self, x: Tensor, nu: int, seed: int) -> Tensor:
        """Observations `(case, token, width)`: an independent stochastic member at the true `nu`, keyed by (seed, case).

        Its noise is that of member −1: independent of every member and pass 0, 1, … of the same seed.
        """
        with torch.no_grad(), stochastic_attention(self, nu, seed=seed, member=OBSERVED):
            return self(x)

    def variance(self, x: Tensor, nu: int) -> Tensor:
        """Exact variance of each output of one member, `(case, token, width)` in float64, 0 or more; summed, it is E‖R‖².

        Law of total covariance, layer by layer. With μ, Σ the mean and covariance of the layer's input and A its linear map,
        Σ′ = A Σ Aᵀ + E[Cov(drawn | input)]. Given the values v, draws of different queries or heads are independent, and one
        draw serves all channels of its head: for query i and channels c, e of one head,

            ν Cov(o_ic, o_ie | v) = Σ_k π_ik v_kc v_ke − (Σ_k π_ik v_kc)(Σ_k π_ik v_ke)

        whose expectation needs the second moments E[v_kc v_le], not the variances alone: hence full covariances, of
        (tokens · width)² entries a case.
        """
        queries, keys, values = (part.double() for part in self._weights())
        mean = x.double()
        cases, tokens, width = mean.shape
        covariance = torch.zeros(cases, tokens, width, tokens, width, dtype=torch.float64)
        one_head = torch.block_diag(*[torch.ones(width // self.heads, width // self.heads)] * self.heads).double()
        eye = torch.eye(tokens).double()[:, None, :, None]
        for q, k, w in zip(queries, keys, values, strict=True):
            pi = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1).repeat_interleave(width // self.heads, 0)  # (channel, i, k)
            v = mean @ w
            moment = torch.einsum("nkalb,ac,be->nkcle", covariance, w, w) + torch.einsum("nkc,nle->nkcle", v, v)
            drawn = torch.einsum("cik,nkcke->nice", pi, moment) - torch.einsum("cik,eil,nkcle->nice", pi, pi, moment)
            step = torch.einsum("cik,ac->icka", pi, w) + eye * torch.eye(width).double()[:, None, :]
            covariance = torch.einsum("icka,nkalb,jelb->nicje", step, covariance, step)
            covariance = covariance + torch.einsum("nice,ij->nicje", drawn * one_head / nu, eye[:, 0, :, 0])
            mean = torch.einsum("icka,nka->nic", step, mean)
        return torch.einsum("nicic->nic", covariance)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys `(layer, head, token, width / heads)`, values `(layer, width, width)`."""
        return cast("tuple[Tensor, Tensor, Tensor]", (self.queries, self.keys, self.values))
