"""Every stack is the network it was cut from, names the parameters of its ends, and says what its attention computes with."""

from dataclasses import dataclass
from typing import Any

import pytest
import rtdl_revisiting_models as rtdl
import torch
import transformers

from engine.backbones import new_text_encoder, new_vit, stack_of
from engine.backbones._climax_net import ClimaXNet
from engine.backbones._climax_stack import climax_stack
from engine.errors import AttentionError
from engine.stack import Stack

CASES, TOKENS = 3, 7
SMALL: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
LABELS: dict[str, Any] = {"num_labels": 3}
TEXT: dict[str, Any] = {"vocab_size": 30, "max_position_embeddings": 16, "num_labels": 3}
DECODER: dict[str, Any] = {"vocab_size": 30, "num_labels": 3, "num_key_value_heads": 2, "pad_token_id": 0}


@dataclass
class Subject:
    """A network, its stack, its inputs, and its own answer to them."""

    module: torch.nn.Module
    stack: Stack
    inputs: dict[str, Any]
    expected: torch.Tensor
    causal: bool = False


def scrambled(module: torch.nn.Module) -> Any:
    """Weights of which none is zero or one: a norm that is forgotten shows."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.15)
    return module.eval()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def words(low: int = 3) -> dict[str, torch.Tensor]:
    """Texts of seven, four and one words."""
    ids = torch.randint(low, 30, (CASES, TOKENS), generator=torch.Generator().manual_seed(3))
    mask = torch.arange(TOKENS)[None] < torch.tensor([TOKENS, 4, 1])[:, None]
    return {"input_ids": torch.where(mask, ids, 0), "attention_mask": mask.long()}


def of_transformers(name: str, config: Any, inputs: dict[str, Any], causal: bool = False) -> Subject:
    module = scrambled(getattr(transformers, name)(config))
    return Subject(module, stack_of(module), inputs, module(**inputs).logits, causal)


def vit() -> Subject:
    c = new_vit("abc", (8, 8, 3), patch=4, width=24, depth=3, num_heads=4, hidden=40, dropout=0.1, mean=[0.5] * 3, sd=[0.2] * 3, seed=0)
    scrambled(c.module)
    inputs = {"pixels": draw(CASES, 3, 8, 8)}
    return Subject(c.module, c.stack(), inputs, c.logits(inputs))


def text_encoder() -> Subject:
    vocabulary = [f"w{i}" for i in range(28)]
    c = new_text_encoder("ab", vocabulary, length=9, width=24, depth=3, num_heads=4, hidden=40, dropout=0.1, seed=0)
    scrambled(c.module)
    inputs = {"tokens": torch.cat([words()["input_ids"], torch.zeros(1, TOKENS, dtype=torch.long)])}
    return Subject(c.module, c.stack(), inputs, c.logits(inputs))


def climax() -> Subject:
    net = scrambled(ClimaXNet("abcd", (8, 16), width=24, depth=3, num_heads=4))
    inputs = {"x": draw(CASES, 3, 8, 16), "lead_times": torch.tensor([0.24, 0.72, 1.2])}
    stack = climax_stack(net, "abd", "ca")
    return Subject(net, stack, inputs, net(inputs["x"], inputs["lead_times"], "abd", "ca"))


def ft_transformer(n_blocks: int = 3, heads: int = 4, activation: str = "ReGLU") -> Subject:
    net = scrambled(
        rtdl.FTTransformer(
            n_cont_features=4,
            cat_cardinalities=[3, 5],
            d_out=2,
            n_blocks=n_blocks,
            d_block=24,
            attention_n_heads=heads,
            attention_dropout=0.2,
            ffn_d_hidden=None,
            ffn_d_hidden_multiplier=4 / 3,
            ffn_dropout=0.1,
            ffn_activation=activation,
            residual_dropout=0.1,
        )
    )
    inputs = {"x_cont": draw(CASES, 4), "x_cat": torch.tensor([[0, 4], [2, 1], [1, 0]])}
    return Subject(net, stack_of(net), inputs, net(**inputs))


SUBJECTS = {
    "vit": vit,
    "text_encoder": text_encoder,
    "climax": climax,
    "ft_transformer": ft_transformer,
    "ft_transformer, one head and ReLU": lambda: ft_transformer(2, 1, "ReLU"),
    "hf vit": lambda: of_transformers(
        "ViTForImageClassification",
        transformers.ViTConfig(**SMALL, **LABELS, image_size=8, patch_size=4),
        {"pixel_values": draw(CASES, 3, 8, 8)},
    ),
    "bert": lambda: of_transformers("BertForSequenceClassification", transformers.BertConfig(**SMALL, **TEXT), words()),
    "bert without padding": lambda: of_transformers(
        "BertForSequenceClassification",
        transformers.BertConfig(**SMALL, **TEXT),
        {"input_ids": words()["input_ids"][:1], "token_type_ids": torch.tensor([[0, 0, 0, 1, 1, 1, 1]])},
    ),
    "roberta": lambda: of_transformers(
        "RobertaForSequenceClassification", transformers.RobertaConfig(**SMALL, **TEXT, pad_token_id=0), words()
    ),
    "electra": lambda: of_transformers(
        "ElectraForSequenceClassification", transformers.ElectraConfig(**SMALL, **TEXT, embedding_size=16), words()
    ),
    "qwen2": lambda: of_transformers("Qwen2ForSequenceClassification", transformers.Qwen2Config(**SMALL, **DECODER), words(), causal=True),
    "llama": lambda: of_transformers("LlamaForSequenceClassification", transformers.LlamaConfig(**SMALL, **DECODER), words(), causal=True),
}


@pytest.fixture(params=SUBJECTS.values(), ids=list(SUBJECTS))
def subject(request) -> Subject:
    return request.param()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to 1e-5 of the largest number."""
    assert found.shape == expected.shape
    assert float((found - expected).detach().abs().max()) <= 1e-5 * float(expected.detach().abs().max())


def test_the_stack_is_the_network(subject: Subject) -> None:
    close(subject.stack.forward(subject.inputs), subject.expected)


def test_a_perturbed_state_reaches_the_output(subject: Subject) -> None:
    """A stack whose tail went back to the inputs would pass the test above."""
    states, _, context = subject.stack.path(subject.inputs)
    assert all(x.shape == (*states[0].shape[:2], subject.stack.width) for x in states)
    assert len(states) == len(subject.stack.steps) + 1
    assert not torch.allclose(subject.stack.tail(states[-1] + draw(subject.stack.width), context), subject.expected)


def test_heads_are_those_of_the_attention(subject: Subject) -> None:
    _, middles, context = subject.stack.path(subject.inputs)
    for step, z in zip(subject.stack.steps, middles, strict=True):
        assert step.heads is not None
        q, k, v = step.heads(z, context)
        assert q.shape[:3] == k.shape[:3] == v.shape[:3] == (len(z), subject.stack.num_heads, z.shape[1])
        assert step.out_weight is not None
        assert step.out_weight.shape == (subject.stack.width, q.shape[1] * v.shape[3])
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = context["mask"] if isinstance(context, dict) else context
        counts = torch.ones(z.shape[:2], dtype=torch.bool) if mask is None else mask
        allowed = counts[:, None, None, :]
        if subject.causal:
            allowed = allowed & torch.ones(z.shape[1], z.shape[1], dtype=torch.bool).tril()
        merged = (scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2) @ step.out_weight.T
        attended = step.attend(z, context)[counts]
        bias = attended[0] - merged[counts][0]  # the projection's, where it has one: the same at every token
        close(merged[counts] + bias, attended)


def test_the_ends_name_their_parameters(subject: Subject) -> None:
    """Gradients of embed and of tail reach exactly what `embedding` and `ending` name; those of the steps nothing of these ends."""
    stack, module = subject.stack, subject.module.requires_grad_(True)
    named = dict(module.named_parameters())

    def used(output: torch.Tensor) -> set[str]:
        found = torch.autograd.grad(output.square().sum(), list(named.values()), allow_unused=True)
        return {name for name, g in zip(named, found, strict=True) if g is not None}

    x, context = stack.embed(subject.inputs)
    embedding, ending = ({n for n in named if n.startswith(prefixes)} for prefixes in (stack.embedding, stack.ending))
    assert used(x) == embedding
    free = draw(*x.shape)
    assert used(stack.tail(free, context)) == ending
    for step in stack.steps:
        z = step.between(free, context)
        free = z + step.attend(z, context)
    assert used(free).isdisjoint(embedding | ending)


def test_left_padding_and_sliding_windows_of_a_decoder() -> None:
    config = transformers.Qwen2Config(
        **SMALL,
        **DECODER,
        use_sliding_window=True,
        sliding_window=3,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
    )
    inputs = {name: value.flip(1) for name, value in words().items()}
    subject = of_transformers("Qwen2ForSequenceClassification", config, inputs)
    close(subject.stack.forward(subject.inputs), subject.expected)


def test_a_climax_with_one_patch_embedding_for_all() -> None:
    net = scrambled(ClimaXNet("abcd", (8, 16), width=24, depth=2, num_heads=4, parallel_patch_embedding=True))
    inputs = {"x": draw(CASES, 4, 8, 16), "lead_times": torch.tensor([0.24, 0.72, 1.2])}
    close(stack_of(net).forward(inputs), net(inputs["x"], inputs["lead_times"], "abcd", "abcd"))
    assert {n.split(".")[0] for n, _ in net.named_parameters() if n.startswith(stack_of(net).embedding)} >= {"token_embeds", "var_agg"}


def test_an_encoders_other_module_is_cut() -> None:
    c = new_vit("abc", (8, 8, 3), patch=4, width=24, depth=2, num_heads=4, hidden=40, dropout=0.1, mean=[0.5] * 3, sd=[0.2] * 3, seed=0)
    other = c.fresh(7).eval()
    inputs = {"pixels": draw(CASES, 3, 8, 8)}
    assert not torch.equal(c.logits(inputs), other(inputs["pixels"]))
    close(c.stack(other).forward(inputs), other(inputs["pixels"]))


def test_what_cannot_be_cut_says_so() -> None:
    with pytest.raises(AttentionError, match="Linear"):
        stack_of(torch.nn.Linear(2, 2))
    config = transformers.BertConfig(**SMALL, **TEXT, is_decoder=True)
    with pytest.raises(AttentionError, match="is_decoder"):
        stack_of(transformers.BertForSequenceClassification(config))


def test_a_kind_is_named_for_a_module_built_like_it() -> None:
    class Mine(torch.nn.Module):
        """Forwards to an FT-Transformer's parts under its own name."""

        def __init__(self, net: Any) -> None:
            super().__init__()
            self.cls_embedding, self.cont_embeddings = net.cls_embedding, net.cont_embeddings
            self.cat_embeddings, self.backbone = net.cat_embeddings, net.backbone

    subject = ft_transformer()
    close(stack_of(Mine(subject.module), "FTTransformer").forward(subject.inputs), subject.expected)
