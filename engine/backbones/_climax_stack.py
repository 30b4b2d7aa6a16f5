"""ClimaX's blocks as transitions: x₀ are the tokens after aggregation over variables, position and lead time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.backbones._cut import Cut, pre_norm
from engine.stack import Stack

if TYPE_CHECKING:
    from torch import Tensor

    from engine.backbones._climax_net import Block, ClimaXNet


def climax_stack(net: "ClimaXNet", in_variables: Sequence[str], out_variables: Sequence[str]) -> Stack:
    """inputs `{"x": (case, V_in, H, W) normalised, "lead_times": (case,) hours/100}` to `(case, V_out, H, W)` normalised.

    The aggregation over variables is an attention too, but no transition: it maps variables to places and has no residual (our
    choice); it is part of embed.
    """

    def cut(block: "Block") -> Cut:
        return Cut(
            attend=lambda x, _: block.attn(block.norm1(x)),
            mlp=lambda x, _: block.mlp(block.norm2(x)),
            heads=lambda z, _: block.attn.heads(block.norm1(z)),
            out_weight=block.attn.proj.weight,
        )

    def embed(inputs: Any) -> "tuple[Tensor, None]":
        return net.aggregate(net.embed(inputs["x"], in_variables), inputs["lead_times"]), None

    blocks: Any = list(net.blocks)
    of_each = (f"token_embeds.{net.variables.index(name)}." for name in in_variables)
    patches = ("token_embeds.",) if hasattr(net.token_embeds, "proj_weights") else tuple(of_each)
    last = f"blocks.{len(blocks) - 1}."
    return pre_norm(
        embed,
        [cut(block) for block in blocks],
        lambda x, _: net.decode(x, out_variables),
        width=net.norm.normalized_shape[0],
        num_heads=blocks[0].attn.num_heads,
        embedding=(*patches, "var_embed", "var_query", "var_agg.", "pos_embed", "lead_time_embed."),
        ending=(f"{last}norm2.", f"{last}mlp.", "norm.", "head."),
    )
