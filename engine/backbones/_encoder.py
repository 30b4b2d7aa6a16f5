"""Our own pre-norm encoder for classification, shared by images and texts.

    x = embedding(inputs) + position;   h = x + attn(norm1 x);   x' = h + mlp(norm2 h);   logits = head(mean over tokens of norm x)

Sizes of arXiv 2602.08920's reference ViT: 8×8 patches, 7 layers, width 384, 12 heads, MLP 384, mean pooling. Positions are fixed
sinusoids, which give its 6.24 million parameters (our reading: learned ones would give 6.27). Dropout follows the attention's projection
and the MLP.

An attention module maps `(case, token, width)` to the same; one that is replaced by a Gaussian process also has
`moments(x, mask) -> (mean, variance)`, both `(case, token, width)`.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.backbones._cut import Cut, pre_norm
from engine.stack import Stack


def sinusoids(places: int, width: int) -> Tensor:
    """Fixed positions `(1, places, width)`: sines, then cosines, of geometrically spaced wavelengths up to 10⁴."""
    frequency = torch.exp(-math.log(1e4) * torch.arange((width + 1) // 2) / max(1, (width + 1) // 2))
    angle = torch.arange(places)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], 1)[None, :, :width]


class Attention(nn.Module):
    """Multi-head self-attention; `mask` `(case, token)` is True where a token counts."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each `(case, head, token, d)`."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend over the tokens that count."""
        q, k, v = self.heads(x)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=None if mask is None else mask[:, None, None, :])
        return self.drop(self.proj(attended.transpose(1, 2).flatten(2)))


class Mlp(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1, self.fc2, self.drop = nn.Linear(width, hidden), nn.Linear(hidden, width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each token."""
        return self.drop(self.fc2(F.gelu(self.fc1(x))))


class Block(nn.Module):
    """Pre-norm transformer block; `attn` may be replaced."""

    def __init__(self, width: int, num_heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, num_heads, dropout)
        self.norm2, self.mlp = nn.LayerNorm(width), Mlp(width, hidden, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`(case, token, width)` to the same."""
        x = x + self.attn(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    """Images `(case, channel, H, W)` to tokens; no mask."""

    def __init__(self, size: tuple[int, int, int], patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(size[2], width, kernel_size=patch, stride=patch)
        self.places = (size[0] // patch) * (size[1] // patch)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens row by row."""
        return self.proj(pixels).flatten(2).transpose(1, 2), None


class Words(nn.Module):
    """Word numbers `(case, token)` to tokens; 0 is padding and is masked out."""

    def __init__(self, vocabulary: int, places: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = places

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens and their mask; the first place always counts, so that an empty text has something to attend to."""
        mask = tokens != 0
        mask[:, 0] = True
        return self.embed(tokens), mask


class Encoder(nn.Module):
    """Embedding, position, pre-norm blocks, norm, mean pooling, linear head: one tensor of inputs to logits `(case, class)`."""

    def __init__(
        self, embedding: "Patches | Words", width: int, depth: int, num_heads: int, hidden: int, classes: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.position: Tensor
        self.register_buffer("position", sinusoids(embedding.places, width), persistent=False)
        self.blocks = nn.ModuleList(Block(width, num_heads, hidden, dropout) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02 if isinstance(module, nn.Linear) else 0.1)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Tokens with their position, and the mask."""
        tokens, mask = self.embedding(x)
        return tokens + self.position[:, : tokens.shape[1]], mask

    def pool(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Logits from the last block's output."""
        x = self.norm(x)
        if mask is None:
            return self.head(x.mean(1))
        weight = mask[..., None].to(x.dtype)
        return self.head((x * weight).sum(1) / weight.sum(1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(case, class)`."""
        x, mask = self.embed(x)
        for block in self.blocks:
            x = block(x, mask)
        return self.pool(x, mask)


def encoder_stack(net: Any, take: Any) -> Stack:
    """The encoder as transitions; `take(inputs)` picks its one input tensor; the context is the mask `(case, token)`, or None."""

    def cut(block: Any) -> Cut:
        plain = isinstance(block.attn, Attention)
        return Cut(
            attend=lambda x, mask: block.attn(block.norm1(x), mask),
            mlp=lambda x, mask: block.mlp(block.norm2(x)),
            heads=(lambda z, mask: block.attn.heads(block.norm1(z))) if plain else None,
            out_weight=block.attn.proj.weight if plain else None,
            moments=(lambda z, mask: block.attn.moments(block.norm1(z), mask)) if hasattr(block.attn, "moments") else None,
        )

    last = f"blocks.{len(net.blocks) - 1}."
    return pre_norm(
        lambda inputs: net.embed(take(inputs)),
        [cut(block) for block in net.blocks],
        net.pool,
        width=net.norm.normalized_shape[0],
        num_heads=getattr(net.blocks[0].attn, "num_heads", 1),
        embedding=("embedding.", "position"),  # the position is a buffer: fixed here, trained on by a student
        ending=(f"{last}norm2.", f"{last}mlp.", "norm.", "head."),
    )
