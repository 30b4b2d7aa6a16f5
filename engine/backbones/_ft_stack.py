"""The stack of an FT-Transformer (Gorishniy et al. 2021, arXiv 2106.11959) as the package rtdl_revisiting_models builds it.

Pre-norm, but the first attention has no norm; hand-written softmax; ReGLU or ReLU. In the package the last block asks for the class
token's attention alone: here every token has it, and the class token's, which alone is read, is the same.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.backbones._cut import Cut, pre_norm
from engine.stack import Stack

if TYPE_CHECKING:
    from torch import Tensor


def ft_stack(net: Any) -> Stack:
    """inputs `{"x_cont": (case, column), "x_cat": (case, column) whole numbers}`, either absent or None where the model has none."""
    import torch

    width = len(net.cls_embedding.weight)

    def cut(block: Any) -> Cut:
        attention, size = block["attention"], width // block["attention"]._n_heads

        def normed(z: "Tensor") -> "Tensor":
            return block["attention_normalization"](z) if "attention_normalization" in block else z

        def attend(z: "Tensor", _: Any) -> "Tensor":
            x = normed(z)
            return block["attention_residual_dropout"](attention(x, x))

        def heads(z: "Tensor", _: Any) -> "tuple[Tensor, Tensor, Tensor]":
            x = normed(z)
            q, k, v = (p(x).unflatten(-1, (-1, size)).transpose(1, 2) for p in (attention.W_q, attention.W_k, attention.W_v))
            return q, k, v

        plain = attention.key_compression is None  # compressed keys are no tokens
        own = torch.eye(width, device=net.cls_embedding.weight.device) if attention.W_out is None else attention.W_out.weight
        return Cut(
            attend,
            lambda x, _: block["ffn_residual_dropout"](block["ffn"](block["ffn_normalization"](x))),
            heads=heads if plain else None,
            out_weight=own if plain else None,
        )

    def embed(inputs: Mapping[str, Any]) -> "tuple[Tensor, None]":
        parts = [(net.cont_embeddings, inputs.get("x_cont")), (net.cat_embeddings, inputs.get("x_cat"))]
        if any((module is None) != (given is None) for module, given in parts):
            raise ValueError("x_cont and x_cat must be given exactly where the model embeds them")
        tokens = [module(given) for module, given in parts if module is not None]
        return torch.cat([net.cls_embedding(tokens[0].shape[:1]), *tokens], 1), None

    def finish(x: "Tensor", _: Any) -> "Tensor":
        row = x[:, 0]
        return row if net.backbone.output is None else net.backbone.output(row)

    blocks = list(net.backbone.blocks)
    last = f"backbone.blocks.{len(blocks) - 1}."
    return pre_norm(
        embed,
        [cut(block) for block in blocks],
        finish,
        width=width,
        num_heads=blocks[0]["attention"]._n_heads,
        embedding=("cls_embedding.", "cont_embeddings.", "cat_embeddings."),
        ending=(f"{last}ffn_normalization.", f"{last}ffn.", "backbone.output."),
    )
