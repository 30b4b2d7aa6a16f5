"""Stacks of Hugging Face classifiers: ViT (pre-norm), BERT, RoBERTa and ELECTRA (post-norm), Qwen2 and Llama (causal decoders).

Inputs are the module's own keyword arguments. The context is a dictionary: `mask` `(case, token)` True where a token counts (None:
all), `attention` the mask as the library made it, and `rotary` the tables of a decoder.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from engine.backbones._cut import Cut, pre_norm
from engine.errors import AttentionError
from engine.stack import Stack, Step

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def _split(x: "Tensor", size: int) -> "Tensor":
    """`(case, token, head · d)` to `(case, head, token, d)`."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def _context(config: Any, x: "Tensor", inputs: Mapping[str, Any]) -> dict[str, Any]:
    from transformers.masking_utils import create_bidirectional_mask

    given = inputs.get("attention_mask")
    mask = create_bidirectional_mask(config=config, inputs_embeds=x, attention_mask=given)
    return {"mask": None if given is None else given.bool(), "attention": mask}


def vit_stack(net: Any) -> Stack:
    """ViTForImageClassification: the class token's row of the last norm is classified."""
    base = net.vit

    def cut(layer: Any) -> Cut:
        attention = layer.attention
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)

        def heads(z: "Tensor", _: Any) -> "tuple[Tensor, Tensor, Tensor]":
            normed = layer.layernorm_before(z)
            q, k, v = (_split(p(normed), attention.head_dim) for p in projections)
            return q, k, v

        return Cut(
            attend=lambda z, context: layer.dropout(attention(layer.layernorm_before(z), context["attention"])[0]),
            mlp=lambda x, _: layer.dropout(layer.mlp(layer.layernorm_after(x))),
            heads=heads,
            out_weight=attention.o_proj.weight,
        )

    def embed(inputs: Mapping[str, Any]) -> "tuple[Tensor, dict[str, Any]]":
        x = base.embeddings(inputs["pixel_values"])
        return x, _context(base.config, x, {})

    last = f"vit.layers.{len(base.layers) - 1}."
    return pre_norm(
        embed,
        [cut(layer) for layer in base.layers],
        lambda x, _: net.classifier(base.layernorm(x)[:, 0]),
        width=base.config.hidden_size,
        num_heads=base.config.num_attention_heads,
        embedding=("vit.embeddings.",),
        ending=(f"{last}layernorm_after.", f"{last}mlp.", "vit.layernorm.", "classifier."),
    )


def bert_stack(net: Any) -> Stack:
    """Post-norm layers: x_t is the sum before an attention's norm, z_t what that norm, the MLP and its norm make of it."""
    name = net.base_model_prefix
    base = getattr(net, name)
    if base.config.is_decoder:
        raise AttentionError(
            f"stack of {type(net).__name__}",
            found="is_decoder in its config",
            expected="a model that attends both ways",
            remedy="Use a method that does not cut the stack.",
        )
    layers, pooler = list(base.encoder.layer), getattr(base, "pooler", None)

    def close(layer: Any, x: "Tensor") -> "Tensor":
        h = layer.attention.output.LayerNorm(x)
        return layer.output(layer.intermediate(h), h)

    def step(t: int) -> Step:
        own, out = layers[t].attention.self, layers[t].attention.output

        def heads(z: "Tensor", _: Any) -> "tuple[Tensor, Tensor, Tensor]":
            q, k, v = (_split(p(z), own.attention_head_size) for p in (own.query, own.key, own.value))
            return q, k, v

        return Step(
            (lambda x, _: x) if t == 0 else (lambda x, _: close(layers[t - 1], x)),
            lambda z, context: out.dropout(out.dense(own(z, attention_mask=context["attention"])[0])),
            heads=heads,
            out_weight=out.dense.weight,
        )

    def embed(inputs: Mapping[str, Any]) -> "tuple[Tensor, dict[str, Any]]":
        x = base.embeddings(input_ids=inputs["input_ids"], token_type_ids=inputs.get("token_type_ids"))
        if hasattr(base, "embeddings_project"):
            x = base.embeddings_project(x)
        return x, _context(base.config, x, inputs)

    def tail(x: "Tensor", _: Any) -> "Tensor":
        x = close(layers[-1], x)
        return net.classifier(x) if pooler is None else net.classifier(net.dropout(pooler(x)))

    last = f"{name}.encoder.layer.{len(layers) - 1}."
    return Stack(
        embed=embed,
        steps=tuple(step(t) for t in range(len(layers))),
        tail=tail,
        width=base.config.hidden_size,
        num_heads=base.config.num_attention_heads,
        embedding=(f"{name}.embeddings.", f"{name}.embeddings_project."),
        ending=(f"{last}attention.output.LayerNorm.", f"{last}intermediate.", f"{last}output.", f"{name}.pooler.", "classifier."),
    )


def decoder_stack(net: Any) -> Stack:
    """Qwen2 and Llama: causal, rotary, grouped heads; the last token that is no padding is classified."""
    import torch
    from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
    from transformers.models.qwen2.modeling_qwen2 import apply_rotary_pos_emb

    base, config = net.model, net.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * len(base.layers)

    def cut(layer: Any, kind: str) -> Cut:
        attention = layer.self_attn

        def heads(z: "Tensor", context: Any) -> "tuple[Tensor, Tensor, Tensor]":
            normed = layer.input_layernorm(z)
            q, k, v = (_split(p(normed), attention.head_dim) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
            q, k = apply_rotary_pos_emb(q, k, *context["rotary"])
            groups = attention.num_key_value_groups
            return q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)

        def attend(z: "Tensor", context: Any) -> "Tensor":
            masks = context["attention"]
            return attention(layer.input_layernorm(z), position_embeddings=context["rotary"], attention_mask=masks[kind])[0]

        mlp = lambda x, _: layer.mlp(layer.post_attention_layernorm(x))  # noqa: E731 -- as its siblings above
        return Cut(attend, mlp, heads=heads, out_weight=attention.o_proj.weight)

    def embed(inputs: Mapping[str, Any]) -> "tuple[Tensor, dict[str, Any]]":
        ids, given = inputs["input_ids"], inputs.get("attention_mask")
        x = base.embed_tokens(ids)
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        asked = {"config": config, "inputs_embeds": x, "attention_mask": given, "cache": None, "position_ids": places}
        masks = {"full_attention": create_causal_mask(**asked)}
        if "sliding_attention" in kinds:
            masks["sliding_attention"] = create_sliding_window_causal_mask(**asked)
        if config.pad_token_id is None:
            last = torch.full((len(ids),), ids.shape[1] - 1, device=ids.device)
        else:  # the rightmost that is not padding, also where padding stands on the left
            last = (torch.arange(ids.shape[1], device=ids.device) * (ids != config.pad_token_id)).argmax(-1)
        mask = None if given is None else given.bool()
        return x, {"mask": mask, "attention": masks, "rotary": base.rotary_emb(x, places), "last": last}

    def finish(x: "Tensor", context: Any) -> "Tensor":
        rows = torch.arange(len(x), device=x.device)
        return net.score(base.norm(x)[rows, context["last"]])

    last = f"model.layers.{len(base.layers) - 1}."
    return pre_norm(
        embed,
        [cut(layer, kind) for layer, kind in zip(base.layers, kinds, strict=True)],
        finish,
        width=config.hidden_size,
        num_heads=config.num_attention_heads,
        embedding=("model.embed_tokens.",),
        ending=(f"{last}post_attention_layernorm.", f"{last}mlp.", "model.norm.", "score."),
    )


STACKS: "dict[str, Callable[[torch.nn.Module], Stack]]" = {
    "ViTForImageClassification": vit_stack,
    "BertForSequenceClassification": bert_stack,
    "RobertaForSequenceClassification": bert_stack,
    "ElectraForSequenceClassification": bert_stack,
    "Qwen2ForSequenceClassification": decoder_stack,
    "LlamaForSequenceClassification": decoder_stack,
}
"""By the name of the module's class."""
