"""An attention whose output is a Gaussian process: what its kinds have in common, and how it takes the place of a softmax.

In train mode a forward draws from the global generator (reparameterised). In eval mode it gives the mean, unless noise is switched on by
`sampled`: then each row of the batch draws from the stream of its (seed, member, case, site).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import AttentionError, SpecError
from engine.kernels.noise import RowKeys, key64

STREAM = 0x69
"""Keeps these streams apart from those of other methods at a site of the same number."""


@dataclass(frozen=True)
class Noise:
    """Standard normal numbers for `count` cases: one generator each, or the global one."""

    count: int
    like: Tensor
    generators: list[torch.Generator] | None = None

    def normal(self, *shape: int) -> Tensor:
        """`(case, *shape)`."""
        if self.generators is None:
            return torch.randn(self.count, *shape, dtype=self.like.dtype, device=self.like.device)
        return torch.stack([self._of(g, shape) for g in self.generators])

    def by_token(self, mask: Tensor | None, tokens: int, width: int) -> Tensor:
        """`(case, token, width)`; a keyed draw is made of the tokens that count, so that padding moves nothing."""
        if self.generators is None or mask is None:
            return self.normal(tokens, width)
        out = self.like.new_zeros(self.count, tokens, width)
        for row, which, g in zip(out, mask, self.generators, strict=True):
            row[which] = self._of(g, (int(which.sum()), width))
        return out

    def _of(self, generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=self.like.dtype, device=self.like.device)


class GpAttention(nn.Module):
    """Latent functions, independent of each other within a token, and a linear map `proj` from them to the output.

    A kind gives `latent` and `latent_draw`. `penalties` holds the regularisers of the last forward in train mode.
    """

    proj: nn.Linear

    def __init__(self, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.drop = nn.Dropout(dropout)
        self.keys: RowKeys | None = None
        self.penalties: dict[str, Tensor] = {}

    def latent(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance of the latent functions, both `(case, token, latent)`."""
        raise NotImplementedError

    def latent_draw(self, x: Tensor, mask: Tensor | None, noise: Noise) -> Tensor:
        """One draw `(case, token, latent)`, joint over the tokens of a case; fills `penalties` in train mode."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`(case, token, width)`: a draw in train mode or under `sampled`, else the mean."""
        if self.training:
            latent = self.latent_draw(x, mask, Noise(len(x), x))
        elif self.keys is not None:
            latent = self.latent_draw(x, mask, Noise(len(x), x, self.keys.generators(x.device, STREAM)))
        else:
            latent = self.latent(x, mask)[0]
        return self.drop(self.proj(latent))

    def moments(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and exact variance of the output, both `(case, token, width)`: the diagonal of W_O Cov W_Oᵀ."""
        mean, variance = self.latent(x, mask)
        return self.proj(mean), variance @ self.proj.weight.square().T


def lower(raw: Tensor) -> Tensor:
    """Lower triangular factor with a positive diagonal, which `raw` `(..., n, n)` holds as its logarithm."""
    return raw.tril(-1) + torch.diag_embed(raw.diagonal(dim1=-2, dim2=-1).exp())


def replace_attention(module: nn.Module, last: int, seed: int, make: Callable[[int, int, float], GpAttention]) -> nn.Module:
    """Put `make(width, num_heads, dropout)` in place of the last `last` attentions (0: all), drawn from `seed`; gives `module` back.

    Raises AttentionError for a module that has no `blocks[i].attn` with `num_heads` and `proj`, SpecError for more than there are.
    """
    blocks = list(getattr(module, "blocks", ()))
    old = [getattr(block, "attn", None) for block in blocks]
    known: list[Any] = [
        a for a in old if isinstance(a, nn.Module) and hasattr(a, "num_heads") and isinstance(getattr(a, "proj", None), nn.Linear)
    ]
    if not blocks or len(known) < len(blocks):
        raise AttentionError(
            f"{type(module).__name__} network",
            found=f"{len(known)} attentions of known width and heads in {len(blocks)} blocks",
            expected="a stack `blocks`, each with a self-attention `attn` that can be replaced",
            remedy="Choose the ViT or the text encoder, or a method that leaves the attention in place.",
        )
    if last > len(blocks):
        raise SpecError(
            "parameter last", found=str(last), expected=f"0 (all) to {len(blocks)}", remedy=f"This network has {len(blocks)} attentions."
        )
    first = len(blocks) - (last or len(blocks))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key64(seed, stream=3))
        for block, attn in list(zip(blocks, known, strict=True))[first:]:
            width, heads = attn.proj.out_features, attn.num_heads
            block.attn = make(width, heads, float(getattr(getattr(attn, "drop", None), "p", 0.0)))
    return module


def gp_attentions(module: nn.Module) -> Iterator[tuple[int, GpAttention]]:
    """The replaced attentions and their sites: each one's place in the stack."""
    blocks = module.get_submodule("blocks")
    yield from ((i, b.attn) for i, b in enumerate(blocks.children()) if isinstance(b.attn, GpAttention))


@contextmanager
def sampled(module: nn.Module, seed: int, members: Sequence[int], ids: Sequence[int]) -> Iterator[None]:
    """Forwards in eval mode draw: row i of the batch for member `members[i]` of case `ids[i]`; put back on leaving."""
    replaced = list(gp_attentions(module))
    try:
        for site, attn in replaced:
            attn.keys = RowKeys(seed, tuple(members), tuple(ids), site)
        yield
    finally:
        for _, attn in replaced:
            attn.keys = None
