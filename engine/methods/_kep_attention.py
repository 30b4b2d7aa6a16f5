"""KEP-SVGP attention as a module (the maths: `engine.kernels.kep`)."""

import torch
from torch import Tensor, nn

from engine.kernels import kep
from engine.methods._gp_attention import GpAttention, Noise, lower


class KepAttention(GpAttention):
    """Two branches (left e, right r) of `rank` output functions a head, each with a full q(u) = N(m, S) of its own [paper].

    Branches are added, or laid side by side along the functions (the paper lays them along the tokens; our choice, which frees the number
    of tokens). The map from s functions to the head's channels and the output projection follow each other without anything between, so
    they are one matrix here. Start: Λ = 1, m ~ N(0, 1), S = 0.01 I (our choice).
    """

    def __init__(self, width: int, num_heads: int, dropout: float, *, rank: int, concatenate: bool = False) -> None:
        super().__init__(num_heads, dropout)
        self.rank, self.concatenate = rank, concatenate
        self.qk = nn.Linear(width, 2 * width)
        self.dual = nn.Linear(width, 2 * num_heads * rank)
        self.log_singular = nn.Parameter(torch.zeros(num_heads, rank))
        self.centre = nn.Parameter(torch.randn(2, num_heads, rank, rank))
        self.raw_root = nn.Parameter(torch.eye(rank).mul(-2.3).repeat(2, num_heads, rank, 1, 1))
        self.proj = nn.Linear(num_heads * rank * (2 if concatenate else 1), width)

    def _eigenpairs(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """E and R `(case, branch, head, token, s)`, and J `(case, head)`."""
        phi_q, phi_k = kep.cosine(self.qk(x).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4))
        h_e, h_r = self.dual(x).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        tokens = kep.share(mask, phi_q)
        w_e, w_r = kep.weights(phi_q, phi_k, h_e, h_r, tokens)
        e, r = phi_q @ w_e, phi_k @ w_r
        return torch.stack([e, r], 1), kep.ksvd_objective(e, r, w_e, w_r, self.log_singular.exp(), tokens)

    def _merge(self, branches: Tensor) -> Tensor:
        """`(case, branch, head, token, out)` to `(case, token, latent)`; means and variances alike, since branches are independent."""
        merged = torch.cat(list(branches.unbind(1)), -1) if self.concatenate else branches.sum(1)
        return merged.transpose(1, 2).flatten(2)

    def latent(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance."""
        features, _ = self._eigenpairs(x, mask)
        mean, variance = kep.posterior(features, self.log_singular.exp(), self.centre, lower(self.raw_root))
        return self._merge(mean), self._merge(variance)

    def latent_draw(self, x: Tensor, mask: Tensor | None, noise: Noise) -> Tensor:
        """One function a case; penalties `ksvd` (mean J² over cases and heads) and `kl`."""
        features, objective = self._eigenpairs(x, mask)
        singular, root = self.log_singular.exp(), lower(self.raw_root)
        if self.training:
            self.penalties = {"ksvd": objective.square().mean(), "kl": kep.kl(self.centre, root, singular)}
        eps = noise.normal(2, self.num_heads, self.rank, self.rank)
        return self._merge(kep.draw(features, singular, self.centre, root, eps))
