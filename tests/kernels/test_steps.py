"""Forwards of one context: steps, named forwards, padding, threads and nested contexts."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.errors import AttentionError
from engine.kernels.intercept import stochastic_attention
from engine.kernels.noise import generator, key64


def encoder(seed=0):
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


X = torch.randn(4, 12, 16, generator=torch.Generator().manual_seed(0))


class Smoothing(nn.Module):
    """One attention with flat weights over fixed values: its noise adds up over a rollout."""

    def forward(self, x):
        flat = torch.zeros(len(x), 1, 8, 4)
        values = torch.linspace(-1, 1, 8)[:, None].expand(len(x), 1, 8, 4)
        return x + F.scaled_dot_product_attention(flat, flat, values)


def test_step_zero_adds_nothing_to_the_key():
    assert key64(1, 2, 3, 4, step=0) == key64(1, 2, 3, 4)
    assert key64(1, 2, 3, 4, step=1) != key64(1, 2, 3, 4)
    assert not torch.equal(torch.rand(3, generator=generator(0, step=1)), torch.rand(3, generator=generator(0, step=2)))


def test_a_rollout_has_noise_of_its_own_at_each_step():
    """Six steps spread √6 times one step's spread, not six times it."""
    model = Smoothing()
    ends = {1: [], 6: []}
    for member in range(300):
        with torch.no_grad(), stochastic_attention(model, 1, member=member):
            x = torch.zeros(1, 1, 8, 4)
            for step in range(1, 7):
                x = model(x)
                if step in ends:
                    ends[step].append(x[..., 0])
    one, six = (float(torch.cat(ends[n]).std(0).mean()) for n in (1, 6))
    assert six / one == pytest.approx(6**0.5, rel=0.1)  # 300 members know a spread to 4 %, averaged over 8 places


def test_a_loop_over_batches_gives_what_one_batch_gives():
    """Step and case ids named for each forward; without them each batch is a step of its own. A context is still one trajectory."""
    model = encoder()
    with torch.no_grad():
        with stochastic_attention(model, 4, seed=3):
            whole = model(X)
        with stochastic_attention(model, 4, seed=3) as sa:
            parts = []
            for start in (0, 2):
                sa.begin(cases=range(start, start + 2), step=0)
                parts.append(model(X[start : start + 2]))
        with stochastic_attention(model, 4, seed=3):
            unnamed = [model(X[:2]), model(X[2:])]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-5)
    assert torch.allclose(unnamed[0], whole[:2], atol=1e-5)
    assert not torch.allclose(unnamed[1], whole[2:], atol=1e-3)


def test_encoder_and_decoder_never_share_a_key():
    """An encoder that is called by itself before the model's own forwards, with and without `begin`."""
    model = encoder()
    part = model.layers[0]
    with torch.no_grad():
        with stochastic_attention(model, 4):
            first = model.layers[0](X)
        with stochastic_attention(model, 4):
            part(X)
            whole = model.layers[1](model.layers[0](X))  # numbered on: no site of the same forward repeats
        with stochastic_attention(model, 4) as sa:
            part(X)
            again = model(X)
            assert [site.index for site in sa.report.sites] == [0, 1]
        with stochastic_attention(model, 4):
            alone = model(X)
    assert not torch.allclose(again, alone, atol=1e-3)
    assert not torch.allclose(whole, alone, atol=1e-3)
    assert first.shape == X.shape


@pytest.mark.parametrize("nu", [1, 4, 100])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["fused", "multi-head", "by hand"])
def test_a_text_does_not_depend_on_the_longest_beside_it(kind, side, nu):
    """Padding moves no draw: a case of 5 tokens alone, and beside one of 200, where another regime would be chosen."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.project, self.heads = nn.Linear(16, 48), nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x, visible):
            if kind == "multi-head":
                return self.heads(x, x, x, key_padding_mask=~visible, need_weights=False)[0]
            q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            mask = visible[:, None, None]
            if kind == "by hand":
                return (q @ k.mT).masked_fill(~mask, torch.finfo(q.dtype).min).softmax(-1) @ v
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    model = Masked().eval()
    short, long = torch.randn(1, 5, 16), torch.randn(1, 200, 16)
    pad = (0, 0, 0, 195) if side == "right" else (0, 0, 195, 0)
    span = slice(0, 5) if side == "right" else slice(195, 200)
    together, visible = torch.cat([F.pad(short, pad), long]), torch.ones(2, 200).bool()
    visible[0] = False
    visible[0, span] = True
    axis = 1 if kind == "multi-head" else 2
    with torch.no_grad():
        with stochastic_attention(model, nu, seed=1):
            alone = model(short, torch.ones(1, 5).bool())
        with stochastic_attention(model, nu, seed=1):
            beside = model(together, visible)
        with stochastic_attention(model, nu, seed=1, cases=[1]):
            other = model(long, torch.ones(1, 200).bool())
    assert torch.allclose(beside[:1].narrow(axis, span.start, 5), alone, atol=1e-5)
    assert torch.allclose(beside[1:], other, atol=1e-5)


def test_two_threads():
    """Two threads on one model: each draws what it would alone, and the model's mode comes back."""
    model = encoder().train()

    def member(i):
        with torch.no_grad(), stochastic_attention(model, 4, seed=7, member=i):
            return model(X)

    want = [member(i) for i in range(4)]
    different, faults = [], []

    def go(ids):
        try:
            for turn in range(20):
                i = ids[turn % 2]
                if not torch.equal(member(i), want[i]):
                    different.append(i)
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=go, args=(ids,)) for ids in ((0, 1), (2, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (different, faults) == ([], [])
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_two_models_nested():
    """Each context reaches its own model's calls, in any order; a model inside another's context draws as its own."""
    a, b = encoder(0), encoder(1)
    with torch.no_grad():
        with stochastic_attention(a, 2, seed=1):
            want_a = [a(X), a(X)]
        with stochastic_attention(b, 3, seed=2):
            want_b = b(X)
        with stochastic_attention(a, 2, seed=1) as sa:
            first = a(X)
            with stochastic_attention(b, 3, seed=2) as sb:
                inner, second = b(X), a(X)
            assert sa.report.hits == sb.report.hits == 2
    assert torch.equal(first, want_a[0])
    assert torch.equal(second, want_a[1])
    assert torch.equal(inner, want_b)


def test_a_part_inside_its_whole_and_one_model_twice():
    """The innermost context whose model runs takes a call."""
    model = encoder()
    with torch.no_grad():
        with stochastic_attention(model, 4, seed=5):
            alone = model(X)
        with stochastic_attention(model, 4), stochastic_attention(model, 4, seed=5):
            inner = model(X)
        with stochastic_attention(model, None) as outer, stochastic_attention(model.layers[1], 4) as part:
            model(X)
    assert torch.equal(inner, alone)
    assert (outer.report.hits, part.report.hits) == (1, 1)


def test_attention_of_no_model_is_refused_where_it_is_ambiguous():
    """Outside any module's call, with contexts on two models."""
    q = torch.randn(1, 1, 4, 8)
    with (
        pytest.raises(AttentionError, match="outside the modules"),
        stochastic_attention(encoder(0), 2),
        stochastic_attention(encoder(1), 2),
    ):
        F.scaled_dot_product_attention(q, q, q)
