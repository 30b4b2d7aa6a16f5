"""Every way a torch model computes attention is reached, replayed exactly, made stochastic, and put back."""

import importlib.util
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.backbones._climax_net import ClimaXNet
from engine.errors import AttentionError
from engine.kernels.intercept import stochastic_attention

TOLERANCE = 1e-5  # float32 rounding of another order of the same sums is near 1e-6; a wrong mask or scale exceeds 1e-2


class Fused(nn.Module):
    """One fused attention, options passed on."""

    def __init__(self, **options):
        super().__init__()
        self.project, self.options = nn.Linear(16, 48), options

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, **self.options).transpose(1, 2).flatten(2)


class ByHand(nn.Module):
    """Softmax written by hand; `product` is how it meets the values."""

    def __init__(self, product, cast=None):
        super().__init__()
        self.project, self.product, self.cast, self.drop = nn.Linear(16, 48), product, cast, nn.Dropout(0.5)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        weights = self.drop((q @ k.transpose(-1, -2) / 2).softmax(-1))
        if self.cast:
            weights, v = weights.to(self.cast), v.to(self.cast)
        return self.product(weights, v).float()


PRODUCTS = {
    "matmul": torch.matmul,
    "operator": lambda w, v: w @ v,
    "bmm": lambda w, v: torch.bmm(w.reshape(-1, *w.shape[-2:]), v.reshape(-1, *v.shape[-2:])),
    "baddbmm": lambda w, v: torch.baddbmm(v.flatten(0, 1), w.flatten(0, 1), v.flatten(0, 1)),
    "einsum": lambda w, v: torch.einsum("bhij,bhjd->bihd", w, v),
    "einsum list": lambda w, v: torch.einsum("b h i j, b h j d -> b h i d", [w, v]),
    "masked after": lambda w, v: w.masked_fill(torch.eye(w.shape[-1], dtype=torch.bool), 0.0) @ v,
    "permuted and back": lambda w, v: w.permute(0, 2, 3, 1).permute(0, 3, 1, 2).expand(-1, -1, -1, -1) @ v,
}


def passes(model, *args, nu=4, **kwargs):
    """Plain result, replay, two equal members and another one, reports of replay and member."""
    model.eval()
    with torch.no_grad():
        plain = model(*args, **kwargs)
        with stochastic_attention(model, None) as replay:
            again = model(*args, **kwargs)
        with stochastic_attention(model, nu) as sa:
            one = model(*args, **kwargs)
            drawn = sa.report
            sa.begin(step=0)
            same = model(*args, **kwargs)
        with stochastic_attention(model, nu, member=1):
            other = model(*args, **kwargs)
    return [first(x) for x in (plain, again, one, same, other)], replay.report, drawn


def first(output):
    """The first tensor of an output."""
    return output if isinstance(output, torch.Tensor) else output[0]


def check(model, *args, hits, tier, tolerance=TOLERANCE, visible=None, **kwargs):
    """Replay equals the model, members are keyed and differ, the sites are counted."""
    (plain, again, one, same, other), report, drawn = passes(model, *args, **kwargs)
    pick = slice(None) if visible is None else visible
    assert float((plain[pick] - again[pick]).abs().max() / plain[pick].abs().max()) <= tolerance
    assert report.hits == drawn.hits == hits
    assert {site.tier for site in report.sites} == {tier}
    assert report.loose == ()
    assert torch.equal(one, same)
    assert not torch.equal(one, plain)
    assert not torch.equal(one, other)
    return report


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 1.0}, {"attn_mask": torch.ones(7, 7).tril().bool()}])
def test_fused_calls(options):
    """T1 by the functional name."""
    check(Fused(**options), torch.randn(3, 7, 16), hits=1, tier="T1")


@pytest.mark.parametrize("product", PRODUCTS)
def test_softmax_by_hand(product):
    """T3 through every product and view that models use."""
    check(ByHand(PRODUCTS[product]), torch.randn(3, 7, 16), hits=1, tier="T3")


def test_softmax_by_hand_in_half_precision():
    """The weights are taken before the cast: in bfloat16, 0.4 % of each is lost."""
    check(ByHand(torch.matmul, torch.bfloat16), torch.randn(3, 7, 16), hits=1, tier="T3", tolerance=0.02)


def test_a_softmax_that_meets_no_values_is_left_alone():
    """A router's softmax, and one whose keys were summed away, are loose, not sampled."""

    class Router(Fused):
        def forward(self, x):
            y = super().forward(x)
            gates = y.softmax(-1)
            return y * gates + (y.softmax(-1).transpose(-1, -2) @ y).mean(-2, keepdim=True)

    model = Router()
    with torch.no_grad(), stochastic_attention(model, None) as sa:
        again = model(torch.ones(2, 7, 16))
    assert sa.report.hits == 1
    assert len(sa.report.loose) == 2
    assert torch.allclose(again, model(torch.ones(2, 7, 16)), atol=1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mask", [None, "bool", "float", "padding", "both", "heads"])
def test_multi_head_attention(batch_first, need_weights, mask):
    """T2 with each mask; torch's masks say blocked."""
    model = nn.MultiheadAttention(16, 4, batch_first=batch_first)
    x = torch.randn(3, 7, 16)
    options = {"need_weights": need_weights}
    blocked = torch.ones(7, 7).triu(1).bool()
    if mask in ("bool", "both"):
        options["attn_mask"] = blocked
    if mask == "float":
        options["attn_mask"] = torch.randn(7, 7)
    if mask == "heads":
        options["attn_mask"] = blocked.expand(12, -1, -1)
    if mask in ("padding", "both"):
        options["key_padding_mask"] = torch.zeros(3, 7).bool()
        options["key_padding_mask"][1, 4:] = True
    x = x if batch_first else x.transpose(0, 1)
    check(model, x, x, x, hits=1, tier="T2", **options)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_with_everything(need_weights):
    """Own key and value widths, bias and zero keys, weights per head; and one example without a batch."""
    model = nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True, add_zero_attn=True, kdim=8, vdim=12)
    for p in (model.bias_k, model.bias_v):
        nn.init.normal_(p)
    q, k, v = torch.randn(3, 7, 16), torch.randn(3, 5, 8), torch.randn(3, 5, 12)
    check(model, q, k, v, hits=1, tier="T2", need_weights=need_weights, attn_mask=torch.rand(7, 5) > 0.7)
    check(model, q[0], k[0], v[0], hits=1, tier="T2", need_weights=need_weights)


def test_returned_weights_are_those_used():
    """Weights are W/nu: whole quarters at nu = 4, and they sum to one; replay returns the model's own."""
    model, x = nn.MultiheadAttention(16, 4, batch_first=True).eval(), torch.randn(2, 7, 16)
    with torch.no_grad():
        with stochastic_attention(model, 4):
            _, drawn = model(x, x, x, average_attn_weights=False)
        with stochastic_attention(model, None):
            _, again = model(x, x, x)
        _, plain = model(x, x, x)
    assert drawn.shape == (2, 4, 7, 7)
    assert torch.equal(drawn * 4, (drawn * 4).round())
    assert torch.allclose(drawn.sum(-1), torch.ones(2, 4, 7))
    assert torch.allclose(again, plain, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # torch's own plain pass
@pytest.mark.parametrize("padded", [False, True])
def test_transformer_encoder_avoids_the_fast_path(padded):
    """torch's C++ encoder, and its nested tensors under a padding mask, would hide the attention."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
    x, options, visible = torch.randn(3, 7, 16), {}, None
    if padded:
        padding = torch.zeros(3, 7).bool()
        padding[0, 5:] = True
        options, visible = {"src_key_padding_mask": padding}, ~padding  # the fast path zeroes what is padded; nobody reads it
    check(model, x, hits=2, tier="T2", visible=visible, **options)


def climax(variables=5):
    """A tiny ClimaX with a query that looks at the variables, and its arguments."""
    torch.manual_seed(0)
    names = [f"v{i}" for i in range(variables)]
    model = ClimaXNet(names, (8, 16), width=32, depth=2, decoder_depth=1, num_heads=4)
    nn.init.normal_(model.var_query)
    return model, (torch.randn(3, variables, 8, 16), torch.full((3,), 0.72), names, names)


def test_climax():
    """Variable aggregation and both blocks, named, with the fold of places into the batch."""
    model, args = climax()
    nn.init.normal_(model.head[-1].weight)
    (plain, again, one, same, other), report, _ = passes(model, *args)
    assert float((plain - again).abs().max() / plain.abs().max()) <= TOLERANCE
    assert [(site.module, site.tier, site.rows_per_case) for site in report.sites] == [
        ("var_agg", "T2", 32),
        ("blocks.0.attn", "T1", 1),
        ("blocks.1.attn", "T1", 1),
    ]
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_members_and_cases_key_the_noise():
    """A row depends on its member and case, not on its batch; members may share a batch. Rounding of batched sums: 1e-5."""
    model, args = climax()
    x, lead, names, _ = args
    with torch.no_grad():
        with stochastic_attention(model, 4, seed=2, member=1, cases=[7, 8, 9]):
            together = model(*args)
        with stochastic_attention(model, 4, seed=2, member=1, cases=torch.tensor([8])):
            alone = model(x[1:2], lead[:1], names, names)
        with stochastic_attention(model, 4, seed=2, member=[0, 1, 2], cases=[8, 8, 8]):
            members = model(x[[1, 1, 1]], lead, names, names)
    assert torch.allclose(together[1:2], alone, atol=1e-5)
    assert torch.allclose(members[1:2], alone, atol=1e-5)
    assert not torch.allclose(members[:1], alone, atol=1e-3)


@pytest.mark.parametrize(
    ("sites", "active"),
    [
        (None, [0, 1, 2]),
        ([0, 2], [0, 2]),
        (1, [1]),
        ("blocks.*", [1, 2]),
        (r"blocks\.[1-9]\.attn", [2]),
        ("*.attn", [1, 2]),
        (["var_agg", 2], [0, 2]),
    ],
)
def test_sites_are_chosen_by_index_or_name(sites, active):
    """Indices, globs, regular expressions; the rest stays deterministic."""
    model, args = climax()
    with torch.no_grad(), stochastic_attention(model, 4, sites=sites) as sa:
        model(*args)
        assert [site.index for site in sa.report.sites if site.active] == active


def test_parts_of_a_model_keep_the_numbering():
    """The deterministic prefix computed once, then the blocks alone: the same bits as the whole forward."""
    model, args = climax()
    x, lead, names, _ = args
    model.eval()
    with torch.no_grad():
        prefix = model.aggregate(model.embed(x, names), lead)
        with stochastic_attention(model, 4, member=3, cases=[5, 6, 7], sites="blocks.*") as sa:
            whole = model(*args)
            sa.begin(batch=3, site=1, step=0)
            parts = model.decode(model.run_blocks(prefix), names)
    assert torch.allclose(whole, parts, atol=1e-6)


def test_the_model_is_put_back():
    """Flags of every module, hooks, global generators: after an error as after success."""
    model, args = climax()
    model.train()
    model.blocks[0].eval()
    before = [m.training for m in model.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    grad = torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), stochastic_attention(model, 4):
        model(*args)
        assert not any(m.training for m in model.modules())
        torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
        raise ZeroDivisionError
    with pytest.raises(RuntimeError), stochastic_attention(model, 4):
        model(args[0][..., :3], *args[1:])
    with torch.no_grad(), stochastic_attention(model, 4):
        model(*args)
    assert [m.training for m in model.modules()] == before
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002
    assert torch.is_grad_enabled() == grad


def test_a_models_own_draws_repeat():
    """Some models draw masks in evaluation mode: seeded per (seed, member) at every forward."""

    class Masking(Fused):
        def forward(self, x):
            return super().forward(x * (torch.rand(x.shape[1], 1) > 0.3))

    model, x = Masking(), torch.randn(2, 7, 16)
    with torch.no_grad(), stochastic_attention(model, 4, member=1) as sa:
        first_pass, next_step = model(x), model(x)
        sa.begin(step=0)
        second = model(x)
    with torch.no_grad(), stochastic_attention(model, 4, member=2):
        other = model(x)
    assert torch.equal(first_pass, second)
    assert not torch.equal(first_pass, next_step)
    assert not torch.equal(first_pass, other)


def test_dropout_that_ignores_evaluation_mode_is_off_and_reported():
    """`dropout_p` of a fused call acts in evaluation mode too."""

    class Dropping(Fused):
        def forward(self, x):
            return F.dropout(super().forward(x), 0.5)

    model, x = Dropping(dropout_p=0.5), torch.randn(2, 7, 16)
    quiet = Fused()
    quiet.load_state_dict(model.state_dict())
    with torch.no_grad(), stochastic_attention(model, None) as sa:
        out = model(x)
    assert torch.allclose(out, quiet(x), atol=1e-6)
    assert set(sa.report.dropouts) == {":scaled_dot_product_attention", ":dropout"}


def test_two_threads_do_not_disturb_each_other():
    """Each thread's members are those it would draw alone, and a plain thread stays plain."""
    made = [climax() for _ in range(3)]
    with torch.no_grad():
        made[2][0].eval()
        plain = made[2][0](*made[2][1])
        alone = []
        for i in range(2):
            with stochastic_attention(made[i][0], 4, member=i):
                alone.append(made[i][0](*made[i][1]))
    found, start = {}, threading.Barrier(3)

    def work(i):
        with torch.no_grad():
            start.wait()
            for _ in range(5):
                if i == 2:
                    found[i] = made[2][0](*made[2][1])
                else:
                    with stochastic_attention(made[i][0], 4, member=i):
                        found[i] = made[i][0](*made[i][1])

    state = torch.get_rng_state()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.allclose(found[i], alone[i], atol=1e-6) for i in range(2))
    assert torch.allclose(found[2], plain, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), state)


def test_refusals():
    """Attention rows that are no multiple of the cases; a model without attention; a pattern that selects nothing."""
    model, x = Fused(), torch.randn(3, 7, 16)
    with pytest.raises(AttentionError, match="multiple"), stochastic_attention(model, 4, cases=[0, 1]):
        model(x)
    with pytest.raises(AttentionError, match="no attention"), stochastic_attention(nn.Linear(16, 2), 4) as sa:
        sa._tracker.model(x)
    with pytest.raises(AttentionError, match="none of"), stochastic_attention(model, 4, sites="blocks.*"):
        model(x)
    with pytest.raises(ValueError, match="nu"), stochastic_attention(model, 0):
        model(x)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export's own
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("build", [Fused, lambda: ByHand(PRODUCTS["einsum"])])
def test_exported_programs(build, decomposed):
    """`torch.export` keeps attention as nodes, whole or decomposed into a softmax and a product."""
    model, x = build().eval(), torch.randn(3, 7, 16)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    exported = (program.run_decompositions() if decomposed else program).module()
    with torch.no_grad():
        plain = exported(x)
        with stochastic_attention(exported, None) as replay:
            again = exported(x)
        with stochastic_attention(exported, 4) as sa:
            one = exported(x[:2])
    assert replay.report.hits == sa.report.hits == 1
    assert torch.allclose(plain, again, atol=TOLERANCE)
    assert not torch.allclose(plain[:2], one, atol=1e-3)


def test_ft_transformer():
    """Hand-written softmax of tabular models."""
    rtdl = pytest.importorskip("rtdl_revisiting_models", reason="FT-Transformer's package is optional")
    model = rtdl.FTTransformer(n_cont_features=6, cat_cardinalities=[3], d_out=1, **rtdl.FTTransformer.get_default_kwargs(3))
    check(model, torch.randn(4, 6), torch.zeros(4, 1).long(), hits=3, tier="T3")


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["vit", "qwen2", "qwen2 padded"])
def test_transformers_models(name, implementation, monkeypatch):
    """Hugging Face's vision and language models, grouped heads and left padding, fused and by hand."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hf = pytest.importorskip("transformers", reason="transformers is optional")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    sizes["attn_implementation"] = implementation
    tier = "T1" if implementation == "sdpa" else "T3"
    if name == "vit":
        check(hf.ViTModel(hf.ViTConfig(image_size=16, patch_size=4, **sizes)), torch.randn(2, 3, 16, 16), hits=2, tier=tier)
        return
    model = hf.Qwen2ForCausalLM(hf.Qwen2Config(vocab_size=50, num_key_value_heads=2, **sizes))
    mask = torch.ones(2, 9).long()
    if name.endswith("padded"):
        mask[0, :4] = 0
    ids = torch.arange(18).view(2, 9)
    check(model, hits=2, tier=tier, visible=mask.bool(), input_ids=ids, attention_mask=mask, use_cache=False)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_real_weights(implementation, monkeypatch):
    """An ALBERT trained on chemical reactions: 12 sites, and its spread falls as nu^-1/2."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hf = pytest.importorskip("transformers", reason="transformers is optional")
    found = importlib.util.find_spec("rxnmapper")
    if found is None or found.origin is None:
        pytest.skip("rxnmapper, whose package carries the weights, is not installed")
    folder = Path(found.origin).parent / "models/transformers/albert_heads_8_uspto_all_1310k"
    model = hf.AlbertForMaskedLM.from_pretrained(folder, attn_implementation=implementation)
    ids = torch.randint(5, 500, (2, 20), generator=torch.Generator().manual_seed(0))
    check(model, ids, hits=12, tier="T1" if implementation == "sdpa" else "T3")
    with torch.no_grad():
        plain = model(ids).logits
        spread = {}
        for nu in (10**3, 10**5):
            squares = []
            for member in range(4):
                with stochastic_attention(model, nu, member=member):
                    squares.append((model(ids).logits - plain).square().mean())
            spread[nu] = float(torch.stack(squares).mean().sqrt())
    # It falls as nu^-1/2, tenfold here; few directions carry the spread, so four members know it to a third.
    assert spread[10**3] / spread[10**5] == pytest.approx(10, rel=0.4)
