"""Attention told from other softmaxes: what is reached, what is none, and what is missed and refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from engine.errors import AttentionError
from engine.kernels.inspect import inspect_attention
from engine.kernels.intercept import stochastic_attention

X = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0))


class Scored(nn.Module):
    """Query, key and value of two heads, handed to a function with what else it needs."""

    def __init__(self, attend, **more):
        super().__init__()
        self.project, self.attend = nn.Linear(16, 48), attend
        self.more = nn.ModuleDict({n: m for n, m in more.items() if isinstance(m, nn.Module)})
        for name, value in more.items():
            if isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            elif isinstance(value, torch.Tensor):
                self.register_buffer(name, value)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.attend(self, q, k, v, x)


def fused(m, q, k, v, x):
    return x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def mixed(m, scores):
    return m.more["mix"](scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def hand_over(e, axis=-1):
    return e / e.sum(axis, keepdim=True)


def additive(m, q, k, v, x):
    scores = m.more["score"](torch.tanh(q[..., :, None, :] + k[..., None, :, :])).squeeze(-1)
    return scores.softmax(-1) @ v


def slots(m, q, k, v, x):
    weights = (k @ q[..., :4, :].mT).softmax(-1) + 1e-8
    return (weights / weights.sum(-2, keepdim=True)).mT @ v


def sparsemax(m, q, k, v, x):
    z = q @ k.mT
    sorted_, count = z.sort(-1, descending=True).values, torch.arange(1.0, 17.0)
    support = (1 + count * sorted_ > sorted_.cumsum(-1)).sum(-1, keepdim=True)
    return (z - (sorted_.cumsum(-1).gather(-1, support - 1) - 1) / support).clamp(min=0) @ v


REACHED = {
    "fused": fused,
    "over queries": lambda m, q, k, v, x: (k @ q.mT).softmax(-2).mT @ v,
    "weights on the right": lambda m, q, k, v, x: (v.mT @ (q @ k.mT).softmax(-1).mT).mT,
    "exponential over its sum": lambda m, q, k, v, x: hand_over((q @ k.mT - (q @ k.mT).amax(-1, keepdim=True)).exp()) @ v,
    "sum made one again": lambda m, q, k, v, x: hand_over((q @ k.mT).softmax(-1)) @ v,
    "log_softmax": lambda m, q, k, v, x: (q @ k.mT).log_softmax(-1).exp() @ v,
    "logsumexp": lambda m, q, k, v, x: (lambda z: (z - z.logsumexp(-1, keepdim=True)).exp() @ v)(q @ k.mT),
    "special": lambda m, q, k, v, x: torch.special.softmax(q @ k.mT, -1) @ v,
    "softmin of distances": lambda m, q, k, v, x: F.softmin(torch.cdist(q, k), -1) @ v,
    "cosine": lambda m, q, k, v, x: (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1) @ v,
    "bias and mask": lambda m, q, k, v, x: (q @ k.mT + m.bias).masked_fill(m.bias.isnan(), -1e9).softmax(-1) @ v,
    "broadcast product": lambda m, q, k, v, x: (q[..., :, None, :] * k[..., None, :, :]).sum(-1).softmax(-1) @ v,
    "linear of two activations": lambda m, q, k, v, x: torch.einsum(
        "bij,bjd->bid", F.linear(q[0, 0], k[0, 0]).expand(3, -1, -1).softmax(-1), x
    ),
    "talking heads before": lambda m, q, k, v, x: mixed(m, q @ k.mT).softmax(-1) @ v,
    "additive": additive,
    "dense graph": lambda m, q, k, v, x: F.leaky_relu(x @ m.one + (x @ m.other).mT).softmax(-1) @ x,
    "learned queries": lambda m, q, k, v, x: (m.latents.expand(3, -1, -1) @ x.mT).softmax(-1) @ x,
    "heads behind": lambda m, q, k, v, x: torch.einsum("bijh,bhjd->bihd", torch.einsum("bhid,bhjd->bijh", q, k).softmax(2), v),
}
NONE = {
    "distribution": lambda m, q, k, v, x: m.more["classes"](x).softmax(-1) @ m.values,
    "distribution in groups": lambda m, q, k, v, x: m.more["classes"](x).unflatten(-1, (3, 4)).softmax(-1) @ m.values[:4],
    "experts": lambda m, q, k, v, x: torch.einsum(
        "bte,bted->btd", m.more["classes"](x).softmax(-1), x[:, :, None].expand(-1, -1, 12, -1) * 2
    ),
    "experts in groups": lambda m, q, k, v, x: (
        m.more["classes"](x).unflatten(-1, (3, 4)).softmax(-1) @ torch.stack([x, -x, 2 * x, 3 * x], -2)
    ),
    "memory": lambda m, q, k, v, x: (x @ m.latents.T).softmax(-1) @ m.latents,
    "weights of layers": lambda m, q, k, v, x: m.values[:2].softmax(0)[0] * x,
    "classifier": lambda m, q, k, v, x: m.more["classes"](x).softmax(-1),
}
MISSED = {
    "gated": lambda m, q, k, v, x: ((q @ k.mT).softmax(-1) * q.mean().sigmoid()) @ v,
    "summed by hand": lambda m, q, k, v, x: ((q @ k.mT).softmax(-1)[..., None] * v[:, :, None]).sum(-2),
    "talking heads after": lambda m, q, k, v, x: mixed(m, (q @ k.mT).softmax(-1)) @ v,
    "pooling": lambda m, q, k, v, x: (m.more["mix16"](x).softmax(1) * x).sum(1),
    "linear attention": lambda m, q, k, v, x: q.softmax(-1) @ (k.softmax(-2).mT @ v),
    "slots": slots,
    "normalised late": lambda m, q, k, v, x: (lambda e: (e @ v) / e.sum(-1, keepdim=True))((q @ k.mT).exp()),
    "sparsemax": sparsemax,
    "gumbel": lambda m, q, k, v, x: F.gumbel_softmax(q @ k.mT, dim=-1) @ v,
    "pointer": lambda m, q, k, v, x: (q @ k.mT).softmax(-1),
    "constant values": lambda m, q, k, v, x: (q @ k.mT).softmax(-1) @ m.bias[0, :, :2],
}


def made(attend):
    torch.manual_seed(0)
    parts = {"mix": nn.Linear(2, 2), "score": nn.Linear(8, 1), "classes": nn.Linear(16, 12), "mix16": nn.Linear(16, 1)}
    parts |= {
        "one": nn.Parameter(torch.randn(16, 1)),
        "other": nn.Parameter(torch.randn(16, 1)),
        "latents": nn.Parameter(torch.randn(4, 16)),
    }
    return Scored(attend, **parts, bias=torch.randn(2, 16, 16), values=torch.linspace(-1, 1, 12)).eval()


@pytest.mark.parametrize("name", REACHED)
def test_attention_is_reached(name):
    """Sampled, replayed exactly, and shown with the shapes of query, key and value."""
    report = inspect_attention(made(REACHED[name]), X)
    assert report.refusal is None
    assert (report.hits, report.unreached) == (1, ())
    assert report.replay_error <= 1e-5
    site = report.sites[0]
    assert site.query and site.key and site.value
    assert site.taken_for or site.tier == "T1"


@pytest.mark.parametrize("name", REACHED)
def test_its_members_spread_as_the_draws_say(name):
    """Many draws come back to the deterministic result, and the mean over members too: the right weights were drawn, along the keys."""
    model = made(REACHED[name])
    with torch.no_grad():
        plain = model(X)
        with stochastic_attention(model, 10**6):
            many = model(X)
        members = []
        for member in range(200):
            with stochastic_attention(model, 4, member=member):
                members.append(model(X))
    assert float((many - plain).abs().max()) < 0.02 * float(plain.abs().max())  # 10^6 draws: 1e-3 of the values' spread
    stacked = torch.stack(members)
    error = stacked.std(0) / 200**0.5
    assert bool(((stacked.mean(0) - plain).abs() <= 6 * error + 1e-5).all())
    assert float(stacked.std(0).max()) > 1e-3


@pytest.mark.parametrize("name", NONE)
def test_other_softmaxes_are_no_attention(name):
    """Alone: refused, named. Beside attention: left as they are, and no obstacle."""
    alone = inspect_attention(made(NONE[name]), X)
    assert alone.hits == 0 and alone.refusal is not None and alone.no_attention and not alone.unreached
    beside = inspect_attention(nn.Sequential(made(fused), made(NONE[name])), X)
    assert (beside.hits, beside.refusal, beside.loose) == (1, None, ("1",) if name != "weights of layers" else beside.loose)


@pytest.mark.parametrize("name", MISSED)
def test_a_partly_reached_model_is_refused(name):
    """By inspection and by the context, with the module's name; `partial`, or a choice of sites, accepts it."""
    assert inspect_attention(made(MISSED[name]), X).refusal is not None
    model = nn.Sequential(made(fused), made(MISSED[name]))
    report = inspect_attention(model, X)
    assert report.hits == 1 and report.partly and "--partial" in report.refusal
    assert any(text.startswith("1: ") for text in report.unreached)
    assert "1" in report.loose
    with torch.no_grad():
        with pytest.raises(AttentionError, match="partial=True") as refused, stochastic_attention(model, 4):
            model(X)
        assert "1: " in refused.value.found
        with stochastic_attention(model, 4, partial=True) as sa:
            model(X)
        assert sa.report.unreached
        with stochastic_attention(model, 4, sites="0"):
            model(X)
        with pytest.raises(AttentionError), stochastic_attention(model, 4, sites="0", partial=False):
            model(X)


def test_attention_without_softmax_is_named():
    """Sigmoid and kernel attention have no weights to draw: said, not refused."""
    for attend in (lambda m, q, k, v, x: (q @ k.mT).sigmoid() @ v, lambda m, q, k, v, x: q.relu() @ (k.relu().mT @ v)):
        report = inspect_attention(nn.Sequential(made(fused), made(attend)), X)
        assert report.refusal is None
        assert any("without a softmax" in text for text in report.no_attention)


@torch.library.custom_op("nuscope_test::attend", mutates_args=())
def custom(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention that no function shows."""
    return (q @ k.mT).softmax(-1) @ v


class ToScript(nn.Module):
    """A fused call, to be scripted."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


def scripted_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", ["custom", "module", "function"])
def test_what_cannot_be_seen_into_is_named(kind):
    """Operators of other libraries and TorchScript, wherever they are called."""
    if kind == "custom":
        attend = lambda m, q, k, v, x: x + custom(q, k, v).transpose(1, 2).flatten(2)  # noqa: E731
    elif kind == "module":
        block = torch.jit.script(ToScript())
        attend = lambda m, q, k, v, x: x + block(q, k, v).transpose(1, 2).flatten(2)  # noqa: E731
    else:
        called = torch.jit.script(scripted_softmax)
        attend = lambda m, q, k, v, x: x + (called(q @ k.mT) @ v).transpose(1, 2).flatten(2)  # noqa: E731
    model = nn.Sequential(made(fused), made(attend))
    report = inspect_attention(model, X)
    assert report.partly and report.hits == 1
    assert any(text.startswith("1: ") for text in report.unreached)
    with torch.no_grad():
        for _ in range(2):  # the first forward is looked into; what it found is kept
            with pytest.raises(AttentionError, match="not reached"), stochastic_attention(model, 4):
                model(X)


def test_attention_partial():
    """Three layers, of which two normalise scores (key, query) over dim=-2: all are reached."""
    model = nn.Sequential(
        made(fused), *(made(lambda m, q, k, v, x: x + ((k @ q.mT / 4).softmax(-2).mT @ v).transpose(1, 2).flatten(2)) for _ in range(2))
    )
    report = inspect_attention(model, X)
    assert (report.hits, report.loose, report.refusal) == (3, (), None)


class MultiQuery(nn.Module):
    """One key head for all query heads, or one memory for all cases."""

    def forward(self, q, k):
        return F.scaled_dot_product_attention(q, k, k)


@pytest.mark.parametrize("key", [(2, 1, 6, 8), (1, 4, 6, 8), (1, 1, 6, 8)])
def test_fused_calls_broadcast(key):
    """As torch does; each query head and row has draws of its own."""
    torch.manual_seed(0)
    model, q, k = MultiQuery(), torch.randn(2, 4, 6, 8), torch.randn(key)
    report = inspect_attention(model, q, k)
    assert (report.hits, report.refusal) == (1, None)
    assert report.replay_error <= 1e-6
    same = q[:1, :1].expand(2, 4, -1, -1)
    with torch.no_grad(), stochastic_attention(model, 2):
        rows = model(same, k[:1, :1]).flatten(0, 1)
        assert len(torch.unique(rows.flatten(1), dim=0)) == 8


def test_autocast_in_the_forward_is_no_fault():
    """The reduced precision is the model's own."""

    class Autocast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = made(fused)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x).float()

    report = inspect_attention(Autocast(), X)
    assert (report.hits, report.refusal) == (1, None)


def test_inputs_in_lists_and_dicts():
    """Several series in a list, or in a dictionary."""

    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = made(fused)

        def forward(self, parts):
            return self.inner(torch.cat(list(parts.values()) if isinstance(parts, dict) else parts, 1))

    for given in ([X[:, :4], X[:, 4:]], {"a": X[:, :4], "b": X[:, 4:]}):
        report = inspect_attention(Listed(), given)
        assert (report.hits, report.refusal, report.batch_order_ok) == (1, None, True)


def test_attention_across_cases_is_refused():
    """Grouped series attend to one another; a learned query that sees no input has one row for all cases."""

    class Grouped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = made(fused)

        def forward(self, x):
            return self.inner(x.transpose(0, 1)).transpose(0, 1)

    assert "across cases" in inspect_attention(Grouped(), X[:, :15].repeat(5, 1, 1)[:15]).refusal
    assert "attend to one another" in inspect_attention(Grouped(), X).refusal

    class OneRow(nn.Module):
        def __init__(self):
            super().__init__()
            self.latents, self.inner = nn.Parameter(torch.randn(1, 4, 16)), made(fused)

        def forward(self, x):
            return self.inner(torch.cat([self.inner(self.latents).expand(len(x), -1, -1), x], 1))

    model = OneRow().eval()
    assert "learned query" in inspect_attention(model, X).refusal
    with torch.no_grad(), stochastic_attention(model, 4, sites=[1]):
        model(X)
