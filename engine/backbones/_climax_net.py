"""The ClimaX network (Nguyen et al. 2023, arXiv 2301.10343), written anew with the published key names and shapes.

    tokens    one patch embedding per variable, plus that variable's embedding
    var_agg   at every place, one learned query attends to the variables: (B, V, L, D) -> (B, L, D)
    encoder   position and lead-time embeddings, then pre-norm transformer blocks
    head      MLP per token, unfolded to (B, variables, H, W)

The forward is cut in two so that a caller with many members computes the deterministic part once:
`forward(x, ...) == decode(run_blocks(encode(x, ...)), out_variables)`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchEmbedding(nn.Module):
    """One variable's patches to tokens: `(B, 1, H, W) -> (B, L, D)`, places row by row."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(1, width, kernel_size=patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """Embed one variable."""
        return self.proj(x).flatten(2).transpose(1, 2)


class ParallelPatchEmbedding(nn.Module):
    """All variables' patch embeddings as one grouped convolution (upstream's "parallel patch embedding")."""

    def __init__(self, variables: int, patch: int, width: int) -> None:
        super().__init__()
        self.proj_weights = nn.Parameter(torch.empty(variables, width, 1, patch, patch))
        self.proj_biases = nn.Parameter(torch.zeros(variables, width))
        nn.init.normal_(self.proj_weights, std=patch**-1.0)

    def forward(self, x: Tensor, ids: Sequence[int]) -> Tensor:
        """`(B, V, H, W) -> (B, V, L, D)` for the variables numbered `ids`."""
        weights, biases = self.proj_weights[list(ids)].flatten(0, 1), self.proj_biases[list(ids)].flatten()
        patch = weights.shape[-1]
        out = F.conv2d(x, weights, biases, stride=patch, groups=len(ids))
        return out.flatten(2).unflatten(1, (len(ids), -1)).transpose(2, 3)


class Attention(nn.Module):
    """Multi-head self-attention with one fused `qkv` projection, `(B, L, D) -> (B, L, D)`."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each `(case, head, place, d)`."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        q, k, v = self.heads(x)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear maps with an exact GELU between."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.drop = nn.Dropout(dropout)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to each token."""
        return self.fc2(self.drop(F.gelu(self.fc1(x))))


class Block(nn.Module):
    """Pre-norm transformer block; `drop_path` skips a branch for a whole example while training only."""

    def __init__(self, width: int, num_heads: int, mlp_ratio: float, dropout: float, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, num_heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio), dropout)
        self.drop_path = drop_path

    def _branch(self, y: Tensor) -> Tensor:
        if not self.training or self.drop_path == 0:
            return y
        keep = 1 - self.drop_path
        return y * (torch.rand(y.shape[0], 1, 1, device=y.device) < keep) / keep

    def forward(self, x: Tensor) -> Tensor:
        """`(B, L, D) -> (B, L, D)`."""
        x = x + self._branch(self.attn(self.norm1(x)))
        return x + self._branch(self.mlp(self.norm2(x)))


class ClimaXNet(nn.Module):
    """ClimaX: normalised fields of named variables to normalised fields of named variables at a lead time.

    Arguments: `variables`, the checkpoint's own list, in its order; `grid` (H, W), each a multiple of `patch`;
    `num_heads`, which no checkpoint records (a wrong count loads without complaint and gives other numbers).
    """

    def __init__(
        self,
        variables: Sequence[str],
        grid: tuple[int, int],
        *,
        patch: int = 2,
        width: int = 1024,
        depth: int = 8,
        decoder_depth: int = 2,
        num_heads: int = 16,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        parallel_patch_embedding: bool = False,
    ) -> None:
        super().__init__()
        self.variables, self.grid, self.patch = tuple(variables), tuple(grid), patch
        self._ids = {name: i for i, name in enumerate(self.variables)}
        places = (grid[0] // patch) * (grid[1] // patch)
        self.token_embeds = (
            ParallelPatchEmbedding(len(variables), patch, width)
            if parallel_patch_embedding
            else nn.ModuleList(PatchEmbedding(patch, width) for _ in variables)
        )
        self.var_embed = nn.Parameter(torch.randn(1, len(variables), width) * 0.02)
        self.var_query = nn.Parameter(torch.zeros(1, 1, width))
        self.var_agg = nn.MultiheadAttention(width, num_heads, batch_first=True)
        self.pos_embed = nn.Parameter(torch.randn(1, places, width) * 0.02)
        self.lead_time_embed = nn.Linear(1, width)
        rates = [drop_path * i / max(1, depth - 1) for i in range(depth)]
        self.blocks = nn.ModuleList(Block(width, num_heads, mlp_ratio, dropout, rate) for rate in rates)
        self.norm = nn.LayerNorm(width)
        layers: list[nn.Module] = []
        for _ in range(decoder_depth):
            layers += [nn.Linear(width, width), nn.GELU()]
        self.head = nn.Sequential(*layers, nn.Linear(width, len(variables) * patch**2))

    def embed(self, x: Tensor, in_variables: Sequence[str]) -> Tensor:
        """`(B, V_in, H, W)` to tokens per variable `(B, V_in, L, D)`: everything before the first attention."""
        ids = [self._ids[name] for name in in_variables]
        if isinstance(self.token_embeds, ParallelPatchEmbedding):
            tokens = self.token_embeds(x, ids)
        else:
            tokens = torch.stack([self.token_embeds[i](x[:, j : j + 1]) for j, i in enumerate(ids)], dim=1)
        return tokens + self.var_embed[:, ids, None]

    def aggregate(self, tokens: Tensor, lead_times: Tensor) -> Tensor:
        """Variables to one token a place, `(B, V_in, L, D) -> (rows, L, D)`, position and lead time added.

        `rows` is B, or the number of members where an interception turned the one case into a row per member: the shape
        is taken from what `var_agg` returned, and the rest broadcasts.
        """
        _, _, places, width = tokens.shape
        keys = tokens.transpose(1, 2).flatten(0, 1)
        query = self.var_query.expand(keys.shape[0], -1, -1)
        x, _ = self.var_agg(query, keys, keys)
        x = x.reshape(-1, places, width) + self.pos_embed
        return x + self.lead_time_embed(lead_times[:, None])[:, None]

    def run_blocks(self, x: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Blocks `start` to `stop`, `(B, L, D) -> (B, L, D)`."""
        for block in self.blocks[start:stop]:
            x = block(x)
        return x

    def decode(self, x: Tensor, out_variables: Sequence[str]) -> Tensor:
        """Tokens to fields, `(B, L, D) -> (B, V_out, H, W)`."""
        x = self.head(self.norm(x))
        rows, columns, p = self.grid[0] // self.patch, self.grid[1] // self.patch, self.patch
        x = x.reshape(-1, rows, columns, p, p, len(self.variables)).permute(0, 5, 1, 3, 2, 4)
        return x.flatten(4, 5).flatten(2, 3)[:, [self._ids[name] for name in out_variables]]

    def forward(self, x: Tensor, lead_times: Tensor, in_variables: Sequence[str], out_variables: Sequence[str]) -> Tensor:
        """Normalised `(B, V_in, H, W)` and `lead_times` `(B,)` in hours/100 to normalised `(B, V_out, H, W)`."""
        return self.decode(self.run_blocks(self.aggregate(self.embed(x, in_variables), lead_times)), out_variables)
