"""The report on a model's attention: what is reached, what is refused and why."""

import json
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.kernels.inspect import inspect_attention


class Attention(nn.Module):
    """One fused self-attention."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))


def test_a_sound_model():
    """All is well, and the report is plain data."""
    report = inspect_attention(Attention(), X)
    assert (report.hits, report.refusal, report.stochastic, report.batch_order_ok, report.loose) == (1, None, False, True, ())
    assert report.replay_error <= 1e-6
    assert report.sites[0].query == (3, 4, 7, 4)
    assert json.loads(json.dumps(report.as_dict()))["hits"] == 1


def test_no_attention_is_refused():
    """A convolution has none; a lone softmax is no attention."""
    assert "no attention call" in inspect_attention(nn.Linear(16, 4), X).refusal
    assert "met values" in inspect_attention(nn.Sequential(nn.Linear(16, 4), nn.Softmax(-1)), X).refusal


def test_fracast_is_refused():
    """A real time-series model that has no attention at all."""
    fracast = pytest.importorskip("fracast", reason="fracast is optional")
    bundle = fracast.FracastModel.from_pretrained()

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.core, self.head = bundle.core, bundle.head

        def forward(self, x):
            return torch.as_tensor(bundle.forecast(x.numpy()))

    report = inspect_attention(Whole(), torch.linspace(0, 20, 256).sin())
    assert report.hits == 0
    assert report.refusal is not None
    assert "no attention call" in report.refusal or "met values" in report.refusal


def test_a_model_that_differs_from_its_replay_is_refused():
    """A fused call with a different result than its definition (here: a subclassed one) must not pass."""

    class Odd(Attention):
        calls = 0

        def forward(self, x):
            Odd.calls += 1
            return super().forward(x) * (1.0 if Odd.calls <= 2 else 1.1)

    assert "replay differs" in inspect_attention(Odd(), X).refusal


def test_dropout_in_evaluation_mode_is_reported():
    """Two plain passes differ, and the place is named."""

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Attention()

        def forward(self, x):
            return F.dropout(self.inner(x), 0.3)

    report = inspect_attention(Dropping(), X)
    assert report.stochastic
    assert report.dropouts == (":dropout",)
    assert report.refusal is None


def test_a_fold_that_is_not_batch_major_is_reported():
    """Time and batch folded as (time, batch): rows of a case do not lie together."""

    class Folded(Attention):
        def forward(self, x):
            y = super().forward(x.transpose(0, 1).reshape(-1, 1, 16).expand(-1, 5, -1) * torch.arange(1.0, 6)[:, None])
            return y.unflatten(0, (7, -1)).transpose(0, 1)

    report = inspect_attention(Folded(), X)
    assert report.refusal is None
    assert report.batch_order_ok is False


def test_packed_attention_is_refused():
    """Attention rows that are no multiple of the batch: the error's text is the reason."""

    class Packed(Attention):
        def forward(self, x):
            return super().forward(torch.cat([x, x[:1]]))

    assert "multiple" in inspect_attention(Packed(), X).refusal


@pytest.mark.parametrize(
    ("home", "name", "says"),
    [
        ("models.autoformer", "AutoCorrelationLayer", "autocorrelation"),
        ("timm.models.coat", "FactorAttnConvRelPosEnc", "CoaT"),
        ("torch_geometric.nn.conv", "TransformerConv", "PyTorch Geometric"),
        ("xformers.components", "MultiHeadDispatch", "xformers"),
    ],
)
def test_classes_known_by_name(home, name, says):
    """They stand in place of softmax attention, so they are refused even beside attention that is reached."""
    kind = type(name, (nn.Identity,), {"__module__": home})
    report = inspect_attention(nn.Sequential(Attention(), kind()), X)
    assert says in report.refusal
    assert report.hits == 1


@pytest.mark.parametrize("call", ["memory_efficient_attention", "flash_attn_func", "flex_attention", "scatter_softmax"])
def test_calls_known_by_name(call):
    """Found in the forward's code; refused with advice when nothing else is reached, mentioned otherwise."""
    home = types.ModuleType("a_model_of_somebody")
    source = f"def forward(self, x):\n    return {call}(x) if x.numel() == 0 else x\n"
    exec(source, home.__dict__)
    sys.modules[home.__name__] = home
    try:
        kind = type("Block", (nn.Module,), {"__module__": home.__name__, "forward": home.forward})
        assert inspect_attention(kind(), X).refusal is not None
        beside = inspect_attention(nn.Sequential(Attention(), kind()), X)
    finally:
        del sys.modules[home.__name__]
    assert beside.refusal is None
    assert len(beside.unreachable) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:Iterating over a tensor")  # of tracing itself
def test_torchscript_is_refused_with_advice():
    """TorchScript's calls never pass through Python."""
    traced = torch.jit.trace(Attention().eval(), X)
    assert "torch.export" in inspect_attention(traced, X).refusal


def test_the_model_is_left_alone():
    """Flags and the global generator are as before."""
    model = Attention().train()
    state = torch.get_rng_state()
    inspect_attention(model, X)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
