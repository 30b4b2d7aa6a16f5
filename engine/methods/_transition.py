"""The student of DIRECTOR: one DiT block with a time input, shared by all steps of the path.

    c = MLP(sinusoids(t));  six modulations of c (adaLN-Zero: all zero at the start)
    h = x + gate₁ · attn(scale₁ LN x + shift₁);  h = h + gate₂ · mlp(scale₂ LN h + shift₂)
    μ = x + W_μ LN h,   σ = softplus(W_σ LN h + b) + 10⁻³

Sources: arXiv 2602.08920 (one block, adaLN-Zero, MLP ratio 1, 256 sinusoids of t, heads μ and σ); Peebles and Xie 2023 (adaLN-Zero). Our
choices: μ is a step from x, as the teacher's transitions are; W_μ and W_σ start at zero; σ starts at .1.

Noise: "learned" is the σ above, per token and channel; "constant" one learned number a step; "none" leaves σ = 0. A low-rank step has in
place of independent noise a few modes that all tokens share: Σ_r z_r B_r(x), B = W_B LN h, whose diagonal variance is Σ_r B_r²:
independent noise by token is patchy where tokens are patches of a field.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SINUSOIDS = 256
SMALLEST = 1e-3
FIRST_SIGMA = 0.1


def sinusoids(t: Tensor) -> Tensor:
    """`(n,)` step numbers to `(n, 256)`: cosines, then sines, at wavelengths up to 10⁴."""
    half = SINUSOIDS // 2
    angle = t.float()[:, None] * torch.exp(-math.log(1e4) * torch.arange(half, device=t.device) / half)
    return torch.cat([angle.cos(), angle.sin()], 1)


class Transition(nn.Module):
    """x_t to the mean and the noise of x_{t+1}; all shapes `(case, token, width)`.

    `low_rank`: steps (0 … steps − 1) whose noise is `rank` shared modes; `silent`: steps that are matched with a σ and drawn without.
    """

    def __init__(
        self, width: int, num_heads: int, steps: int, *, noise: str = "learned", mlp_ratio: float = 1.0, rank: int = 0,
        low_rank: tuple[int, ...] = (), silent: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.steps, self.num_heads, self.noise, self.silent = steps, num_heads, noise, silent
        self.low_rank = low_rank if noise != "none" else ()
        self.time = nn.Sequential(nn.Linear(SINUSOIDS, width), nn.SiLU(), nn.Linear(width, width))
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        hidden = round(width * mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width))
        self.mean = nn.Linear(width, width)
        for zero in (self.modulation, self.mean):
            nn.init.zeros_(zero.weight)
            nn.init.zeros_(zero.bias)
        start = math.log(math.expm1(FIRST_SIGMA - SMALLEST))
        if noise == "learned":
            self.sigma = nn.Linear(width, width)
            nn.init.zeros_(self.sigma.weight)
            nn.init.constant_(self.sigma.bias, start)
        elif noise == "constant":
            self.sigma_of_step = nn.Parameter(torch.full((steps,), start))
        if self.low_rank:
            self.rank = rank
            self.modes = nn.Linear(width, rank * width) if noise == "learned" else None
            if self.modes is not None:
                nn.init.normal_(self.modes.weight, std=1 / math.sqrt(rank * width))
                nn.init.zeros_(self.modes.bias)
            else:
                self.fixed_modes = nn.Parameter(torch.randn(rank, width) / math.sqrt(rank))

    def forward(self, x: Tensor, t: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """μ and the features LN h from which `spread` and `modes_of` read the noise; t `(case,)` int, mask `(case, token)` True where a
        token counts.
        """
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(self.time(sinusoids(t))))[:, None].chunk(6, -1)
        width = x.shape[-1:]
        q, k, v = self.qkv(F.layer_norm(x, width) * (1 + scale1) + shift1).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else mask[:, None, None, :])
        h = x + gate1 * self.proj(attended.transpose(1, 2).flatten(2))
        h = h + gate2 * self.mlp(F.layer_norm(h, width) * (1 + scale2) + shift2)
        features = F.layer_norm(h, width)
        return x + self.mean(features), features

    def spread(self, features: Tensor, t: Tensor) -> Tensor:
        """σ of each token and channel, the root of the diagonal variance; zero where there is no noise. t `(case,)` int."""
        if self.noise == "none":
            return torch.zeros_like(features)
        if self.noise == "learned":
            sigma = F.softplus(self.sigma(features)) + SMALLEST
        else:
            sigma = (F.softplus(self.sigma_of_step[t]) + SMALLEST)[:, None, None].expand_as(features)
        if not self.low_rank:
            return sigma
        shared = torch.zeros(self.steps, dtype=torch.bool, device=t.device)
        shared[list(self.low_rank)] = True
        rows = shared[t]
        if not bool(rows.any()):
            return sigma
        return torch.where(rows[:, None, None], (self.modes_of(features).square().sum(1) + SMALLEST**2).sqrt(), sigma)

    def modes_of(self, features: Tensor) -> Tensor:
        """B, `(case, rank, token, width)`.

        The first σ is a factor here and not in the weights: Adam moves weights by the same step whatever their size, and the noise of
        weights that begin small would grow tenfold within some steps.
        """
        if self.modes is not None:
            return FIRST_SIGMA * self.modes(features).unflatten(-1, (self.rank, -1)).transpose(1, 2)
        return FIRST_SIGMA * self.fixed_modes[None, :, None].expand(len(features), -1, features.shape[1], -1)

    def draw(self, x: Tensor, step: int, eps: Tensor | None, mask: Tensor | None = None) -> Tensor:
        """x_{t+1} of one path. `eps` standard normal, `(case, token, width)`, its first `(case, rank)` numbers used by a low-rank step."""
        t = torch.full((len(x),), step, device=x.device)
        mean, features = self(x, t, mask)
        if self.noise == "none" or eps is None or step in self.silent:
            return mean
        if step in self.low_rank:
            z = eps.flatten(1)[:, : self.rank]
            return mean + torch.einsum("br,brlw->blw", z, self.modes_of(features))
        return mean + self.spread(features, t) * eps
