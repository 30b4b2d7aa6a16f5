"""Sparse-GP attention as a module (the maths: `engine.kernels.sgpa`)."""

import math

import torch
from torch import Tensor, nn

from engine.kernels import sgpa
from engine.methods._gp_attention import GpAttention, Noise, lower


class SgpaAttention(GpAttention):
    """One projection for queries and keys [paper], values, `inducing` global keys a head with S of each value channel [paper].

    The amortised values are W_v x/(√n σ²), n the tokens that count (our choice; amortisation is free): the mean then keeps about the size
    of a value whatever the length, and σ sets the spread alone. Start: ℓ² = d/4, σ = 0.1, m = 0, S = 0.01 K, and global keys that lie
    further out than queries do, since what they explain of the kernel is lost to the mixing of tokens (our choice).
    """

    def __init__(self, width: int, num_heads: int, dropout: float, *, inducing: int) -> None:
        super().__init__(num_heads, dropout)
        d = width // num_heads
        self.query, self.value, self.proj = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.global_keys = nn.Parameter(torch.randn(num_heads, inducing, d))
        self.log_lengthscale = nn.Parameter(torch.full((num_heads, d), 0.5 * math.log(d / 4)))
        self.log_sd = nn.Parameter(torch.full((num_heads,), math.log(0.1)))
        self.centre = nn.Parameter(torch.zeros(num_heads, inducing, d))
        self.raw_root = nn.Parameter(torch.eye(inducing).mul(-2.3).repeat(num_heads, d, 1, 1))

    def _parts(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """R, B, values over √n, and σ `(head, 1, 1)`, in float64."""
        q, v = (part(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2).double() for part in (self.query, self.value))
        lengthscale = self.log_lengthscale.double().exp()
        b = sgpa.basis(q, self.global_keys.double(), lengthscale)
        tokens = (
            q.new_full((1, 1, 1, 1), x.shape[1] ** -0.5) if mask is None else (mask / mask.sum(-1, keepdim=True).sqrt())[:, None, :, None]
        )
        return sgpa.residual(q, lengthscale, b, mask), b, v * tokens, self.log_sd.double().exp()[:, None, None]

    def _merge(self, heads: Tensor, like: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2).to(like.dtype)

    def _mean(self, r: Tensor, b: Tensor, v: Tensor, sd: Tensor) -> Tensor:
        return sgpa.mean(r, b, v, sd * self.centre.double())  # σ²R · v/σ² + σB · m

    def latent(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        r, b, v, sd = self._parts(x, mask)
        variance = sd.square() * sgpa.variance(b, lower(self.raw_root.double()))
        return self._merge(self._mean(r, b, v, sd), x), self._merge(variance, x)

    def latent_draw(self, x: Tensor, mask: Tensor | None, noise: Noise) -> Tensor:
        """One function a case; penalty `kl`, its amortised part averaged over the cases."""
        r, b, v, sd = self._parts(x, mask)
        root = lower(self.raw_root.double())
        if self.training:
            self.penalties = {"kl": sgpa.kl_global(self.centre.double(), root) + sgpa.kl_amortised(r, v / sd).mean()}
        heads, inducing, d = self.global_keys.shape
        shared = noise.normal(heads, d, inducing).double()
        own = noise.by_token(mask, x.shape[1], heads * d).unflatten(-1, (heads, d)).transpose(1, 2).double()
        return self._merge(self._mean(r, b, v, sd) + sd * sgpa.spread(r, b, root, own, shared), x)
