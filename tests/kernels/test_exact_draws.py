"""Exactly ν draws a query, whichever way they are made: with one-hot values, ν times a result is the counts themselves."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.kernels.attention import sample_attention, sample_attention_members
from engine.kernels.intercept import stochastic_attention

REGIMES = {  # (keys, ν): all ways in which draws are made, and both sides of each border between them
    "one draw": [(2, 1), (127, 1), (128, 1), (300, 1)],
    "gathered values": [(128, 2), (128, 64), (129, 3), (300, 16), (300, 63), (300, 64)],
    "single draws counted": [(2, 2), (8, 64), (127, 2), (127, 63), (300, 65), (300, 128), (300, 129), (300, 149), (1000, 499)],
    "Poisson counts topped up": [(2, 65), (8, 66), (127, 65), (127, 1000), (300, 150), (300, 151), (1000, 501), (300, 10**5), (9, 10**6)],
}
CASES = [pytest.param(keys, nu, id=f"{name}, {keys} keys, nu {nu}") for name, some in REGIMES.items() for keys, nu in some]


def inputs(keys, heads=2, queries=40, batch=2, seed=0):
    """Queries, keys and one-hot values, so that a result is the share of the draws that fell on each key."""
    source = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(batch, heads, n, 8, generator=source) for n in (queries, keys))
    return q, k, torch.eye(keys).expand(batch, heads, keys, keys)


def assert_counts(share, nu, tolerance):
    """ν · share are whole numbers, 0 or more, that sum to ν in each row."""
    counts = share.double() * nu
    whole = counts.round()
    assert float((counts - whole).abs().max()) <= tolerance
    assert float(whole.min()) >= 0
    assert torch.equal(whole.sum(-1), torch.full(whole.shape[:-1], float(nu)).double())


@pytest.mark.parametrize(("keys", "nu"), CASES)
def test_every_query_takes_exactly_nu_draws(keys, nu):
    """Float32 shares of counts up to 10^6 are off by 2^-24 of the count: 0.06 at most."""
    q, k, v = inputs(keys)
    assert_counts(sample_attention(q, k, v, nu, seed=1), nu, max(1e-4, nu * 2**-23))
    members = sample_attention_members(q, k, v, nu, seed=1, members=[0, 5])
    assert_counts(members, nu, max(1e-4, nu * 2**-23))


@pytest.mark.parametrize(("keys", "nu"), [(128, 4), (300, 64), (300, 100), (127, 30), (300, 400)])
def test_masked_rows_too(keys, nu):
    """A mask takes keys away, never draws."""
    q, k, v = inputs(keys)
    visible = torch.rand(2, 2, 40, keys, generator=torch.Generator().manual_seed(5)) > 0.6
    visible[..., -1] = True
    share = sample_attention(q, k, v, nu, seed=1, attn_mask=visible)
    assert_counts(share, nu, 1e-3)
    assert float(share.masked_fill(visible, 0.0).abs().max()) == 0.0
    assert_counts(sample_attention(q, k, v, nu, seed=1, is_causal=True), nu, 1e-3)


@pytest.mark.parametrize(("keys", "nu"), [(127, 6), (128, 6), (300, 64), (300, 100), (300, 400), (24, 6)])
def test_the_share_varies_as_the_law_has_it(keys, nu):
    """E Σ (share − π)² = (1 − Σ π²)/ν: fewer, more or repeated draws would show. 6 standard errors, from the rows themselves."""
    q, k, v = inputs(keys, heads=1, queries=3000, batch=1)
    pi = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
    squares = (sample_attention(q, k, v, nu, seed=2) - pi).double().square().sum(-1)
    ratio = squares * nu / (1 - pi.double().square().sum(-1))
    assert abs(float(ratio.mean()) - 1) < 6 * float(ratio.std()) / 3000**0.5
    assert float(ratio.std()) / 3000**0.5 < 0.02, "the test sees 12 %, and one draw of six is 17 %"


@pytest.mark.parametrize(("keys", "nu"), [(128, 1), (128, 4), (24, 4), (300, 70), (24, 70)])
def test_no_two_rows_share_a_draw(keys, nu):
    """Flat weights: heads, queries, cases, members and sites fall on each key independently, within 6 standard errors."""
    q, k, v = torch.zeros(2, 3, 500, 8), torch.zeros(2, 3, keys, 8), torch.eye(keys).expand(2, 3, keys, keys)

    def counts(**options):
        return sample_attention(q, k, v, nu, **({"seed": 0} | options)) - 1 / keys

    base = counts()
    rolled = {"heads": base.roll(1, 1), "queries": base.roll(1, 2), "cases": base.roll(1, 0)}
    keyed = {"members": counts(member=1), "sites": counts(site=1), "seeds": counts(seed=1), "other cases": counts(case=[7, 8])}
    for name, other in (rolled | keyed).items():
        together = (base * other).sum(-1) / base.square().sum(-1).mean()
        error = float(together.std()) / together.numel() ** 0.5 * (2**0.5 if name == "cases" else 1)  # two cases are one pair
        assert abs(float(together.mean())) < 6 * error, name


class Attends(nn.Module):
    """Attention, fused or written by hand."""

    def __init__(self, way):
        super().__init__()
        self.way = way

    def forward(self, q, k, v):
        if self.way == "fused":
            return F.scaled_dot_product_attention(q, k, v)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return weights @ v


@pytest.mark.parametrize("way", ["fused", "by hand"])
@pytest.mark.parametrize(("keys", "nu"), [(24, 5), (24, 65), (150, 7), (150, 64), (150, 70), (150, 75), (150, 500)])
def test_models_take_exactly_nu_draws(way, keys, nu):
    """The same through the context, fused and by hand; one ν a call too."""
    q, k, v = inputs(keys)
    for asked in (nu, [nu]):
        model = Attends(way)
        with torch.no_grad(), stochastic_attention(model, asked):
            assert_counts(model(q, k, v), nu, 1e-3)


@pytest.mark.parametrize(("keys", "nu"), [(24, 5), (150, 7), (150, 70), (150, 500)])
def test_multi_head_attention_takes_exactly_nu_draws(keys, nu):
    """The weights that it returns are the counts over ν."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    q, k = torch.randn(2, 10, 16), torch.randn(2, keys, 16)
    with torch.no_grad(), stochastic_attention(model, nu):
        _, used = model(q, k, k, average_attn_weights=False)
    assert_counts(used, nu, 1e-3)
