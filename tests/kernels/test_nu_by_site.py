"""A ν for each attention call: exactly the call that is named differs, in every tier, and nonsense is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from engine.demo.known_truth import KnownTruth
from engine.errors import SpecError
from engine.kernels import stochastic_attention
from engine.methods.stochastic_attention import StochasticAttention, nu_by_site


def member(model, x, nu, seed=0, k=0, **more):
    with torch.no_grad(), stochastic_attention(model, nu, seed, k, **more):
        return model(x)


class ByHand(nn.Module):
    """Two softmaxes written by hand."""

    def forward(self, x):
        for _ in range(2):
            x = x + torch.softmax(x @ x.transpose(-1, -2), -1) @ x
        return x


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x):
        x = x + self.one(x, x, x)[0]
        return x + self.two(x, x, x)[0]


MODELS = {"fused": lambda: KnownTruth(tokens=8, width=8, heads=2, layers=2), "by hand": ByHand, "multi-head": MultiHead}
X = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(1)) / 2


@pytest.mark.parametrize("kind", MODELS)
def test_the_same_nu_everywhere_is_the_shared_one(kind) -> None:
    model = MODELS[kind]()
    torch.testing.assert_close(member(model, X, (5, 5)), member(model, X, 5), rtol=0, atol=0)


@pytest.mark.parametrize("kind", MODELS)
def test_each_call_has_its_own(kind) -> None:
    """With one call at a huge ν only the other one stirs: as with that call alone active, up to what ν leaves."""
    model = MODELS[kind]()
    still = member(model, X, None)
    for loud in (0, 1):
        nus = tuple(2 if i == loud else 10**6 for i in range(2))
        alone = member(model, X, 2, sites=[loud])
        both = member(model, X, nus)
        assert (both - alone).abs().max() < 0.05 * (alone - still).abs().max()


def test_the_variance_is_that_of_both_layers() -> None:
    """Two one-layer spreads of different ν add up (to first order): against the empirical variance of many members."""
    model = KnownTruth(tokens=8, width=8, heads=2, layers=2)
    many = X[:1].repeat(700, 1, 1)  # one case under 700 ids: as many independent draws
    spread = {nus: float(member(model, many, nus).var(0).mean()) for nus in ((50, 10**6), (10**6, 20), (50, 20))}
    assert spread[50, 20] == pytest.approx(spread[50, 10**6] + spread[10**6, 20], rel=0.12)


@pytest.mark.parametrize("nu", [(), (0, 3), (2, 10**7), (2.5, 3)])
def test_nonsense_is_refused(nu) -> None:
    with pytest.raises(ValueError, match="nu is"):
        member(MODELS["fused"](), X, nu)


def test_patterns_name_modules_in_order() -> None:
    names = ("var_agg", "blocks.0.attn", "blocks.1.attn", "blocks.10.attn")
    assert nu_by_site(names, 8, {}) == 8
    assert nu_by_site(names, 8, {"blocks.1.*": 3, "blocks.*": 5}) == (8, 5, 3, 5)
    with pytest.raises(SpecError, match="layers"):
        nu_by_site(names, 8, {"layers.*": 3})
    with pytest.raises(ValueError, match="nu_of"):
        StochasticAttention.Params(nu_of={"blocks.*": 0})


def test_numpy_numbers_are_numbers() -> None:
    model = MODELS["fused"]()
    torch.testing.assert_close(member(model, X, np.int64(5)), member(model, X, 5), rtol=0, atol=0)
