"""The methods that classify: what each promises, on a small vision transformer and made images."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from torch import nn

from engine.backbones import open_checkpoint
from engine.backbones._encoder import Encoder, Patches
from engine.backbones._encoder_file import write_encoder
from engine.errors import AttentionError, CalibrationError, DatasetError, SpecError
from engine.kernels.noise import generator
from engine.labelled import Classifies, Labelled
from engine.methods.mc_dropout import STREAM
from engine.methods.stochastic_attention import choose_nu
from engine.methods.temperature_scaling import fit_temperature, nll
from engine.registry import get

CLASSES = ("left", "right", "both")
KEYS = ("deterministic", "stochastic_attention", "temperature_scaling", "mc_dropout", "deep_ensemble")
SMALL = {"size": 3, "epochs": 2, "batch": 16}


def vit(folder, dropout=0.1, seed=0, change=lambda net: None):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Encoder(Patches((8, 8, 1), 2, 24), 24, 2, 3, 24, len(CLASSES), dropout)
        with torch.no_grad():  # attention that tells its keys apart, and logits that differ
            for block in net.blocks:
                block.attn.qkv.weight.normal_(std=0.4)
                block.attn.proj.weight.normal_(std=0.3)
            net.head.weight.normal_(std=1.0)
        change(net)
    facts = {"classes": CLASSES, "size": (8, 8, 1), "patch": 2, "num_heads": 3, "mean": [0.5], "sd": [0.25], "dropout": dropout}
    return open_checkpoint(write_encoder(net, folder / "vit.safetensors", "vit", **facts))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def examples(classifier):
    return classifier.prepare(images(30), first_id=100)


def images(cases, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, cases)
    pixels = rng.integers(0, 120, (cases, 8, 8, 1))
    pixels[labels != 1, :, :4] += 120
    pixels[labels != 0, :, 4:] += 120
    return Labelled("images", pixels.astype(np.uint8), labels.astype(np.int64), CLASSES)


def classify(key, classifier, examples, *, state=None, nu=4, members=5, seed=0, **params):
    method = get("methods", key)
    return method.classify(classifier, examples, state=state or {}, params=method.ClassParams(**params), nu=nu, members=members, seed=seed)


def learn(key, classifier, fit=None, calibrate=None, *, seed=0, folder=None, **params):
    method = get("methods", key)
    return method.learn(classifier, fit, calibrate, params=method.ClassParams(**params), seed=seed, folder=folder)


def frozen(classifier):
    return {name: value.clone() for name, value in classifier.module.state_dict().items()}


def logits(classifier, examples):
    with torch.no_grad():
        return classifier.logits(examples.inputs).double().numpy()


@pytest.fixture(scope="module")
def states(classifier, examples):
    """A state for each method; params that go with it."""
    return {
        "temperature_scaling": (learn("temperature_scaling", classifier, calibrate=examples), {}),
        "deep_ensemble": (learn("deep_ensemble", classifier, examples, examples, **SMALL), SMALL),
    }


@pytest.mark.parametrize("key", KEYS)
def test_each_keeps_the_contract(key, classifier, examples, states):
    method, (state, params) = get("methods", key), states.get(key, ({}, {}))
    assert isinstance(method, Classifies)
    assert method.title and method.reference and type(method).__doc__
    assert all(field.description for field in method.ClassParams.model_fields.values())
    assert method.ClassParams.model_config["frozen"]
    before, flags = frozen(classifier), [m.training for m in classifier.module.modules()]
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in classifier.module.modules()]
    torch.manual_seed(11)
    expected = torch.rand(2)
    torch.manual_seed(11)
    p = classify(key, classifier, examples, state=state, **params)
    assert torch.equal(torch.rand(2), expected), "the global generator stands where it stood"
    assert p.dtype == np.float32
    size = {"deep_ensemble": 3}.get(key, 5 if method.sampled else 1)
    assert p.shape == (size, len(examples), 3)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-6)
    assert np.array_equal(p, classify(key, classifier, examples, state=state, **params))
    assert all(torch.equal(value, before[name]) for name, value in classifier.module.state_dict().items())
    assert [m.training for m in classifier.module.modules()] == flags
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in classifier.module.modules()] == hooks
    assert not any(p.requires_grad for p in classifier.module.parameters())
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    assert classify(key, classifier, examples.rows(slice(0, 0)), state=state, **params).shape == (size, 0, 3)


@pytest.mark.parametrize("key", KEYS)
def test_results_do_not_depend_on_the_batch(key, classifier, examples, states):
    state, params = states.get(key, ({}, {}))
    whole = classify(key, classifier, examples, state=state, **params)
    order = [int(i) for i in np.random.default_rng(1).permutation(len(examples))]
    parts = [classify(key, classifier, examples.rows(order[a:b]), state=state, **params) for a, b in ((0, 1), (1, 8), (8, 30))]
    again = np.concatenate(parts, 1)
    if get("methods", key).sampled and key != "deep_ensemble":
        assert np.array_equal(again, whole[:, order]), "bit for bit"
    else:
        np.testing.assert_allclose(again, whole[:, order], atol=1e-6)


@pytest.mark.parametrize("key", ["stochastic_attention", "mc_dropout"])
def test_noise_is_keyed_by_seed_member_and_id(key, classifier, examples):
    few = examples.rows(slice(0, 3))
    p = classify(key, classifier, few, members=20)
    assert not np.array_equal(p, classify(key, classifier, few, members=20, seed=1))
    assert len(np.unique(p[:, 0], axis=0)) == 20, "members are told apart, beyond one forward's group too"
    moved = type(few)(few.inputs, few.labels, tuple(i + 1 for i in few.ids))
    assert not np.array_equal(p, classify(key, classifier, moved, members=20))
    more = classify(key, classifier, few, members=36)
    assert np.array_equal(p[:16], more[:16])
    np.testing.assert_allclose(p, more[:20], atol=1e-6)


def test_deterministic_is_the_models_softmax(classifier, examples):
    np.testing.assert_allclose(classify("deterministic", classifier, examples)[0], softmax(logits(classifier, examples), -1), atol=1e-6)


def test_stochastic_attention_is_the_context_around_the_model(classifier, examples):
    from engine.kernels import stochastic_attention

    p = classify("stochastic_attention", classifier, examples, nu=3, seed=9)
    with torch.no_grad(), stochastic_attention(classifier.module, 3, 9, 2, examples.ids):
        expected = torch.softmax(classifier.logits(examples.inputs), -1).numpy()
    np.testing.assert_allclose(p[2], expected, atol=1e-5)


def test_stochastic_attention_vanishes_with_nu(classifier, examples):
    few = examples.rows(slice(0, 8))
    exact = classify("deterministic", classifier, few)[0]
    assert np.abs(classify("stochastic_attention", classifier, few, nu=10**5) - exact).max() < 1e-2
    assert np.abs(classify("stochastic_attention", classifier, few, nu=1) - exact).max() > 1e-2


def test_the_spread_of_logits_falls_as_one_over_nu(classifier, examples):
    few = examples.rows(slice(0, 4))

    def variance(nu):
        p = classify("stochastic_attention", classifier, few, nu=nu, members=200).astype(np.float64)
        z = np.log(p) - np.log(p).mean(-1, keepdims=True)
        return z.var(0, ddof=1).mean()

    assert variance(16) / variance(64) == pytest.approx(4, rel=0.35)
    assert variance(64) / variance(256) == pytest.approx(4, rel=0.35)


def test_sites_leave_attention_out(classifier, examples):
    every, last = (classify("stochastic_attention", classifier, examples, sites=sites) for sites in (None, "blocks.1.*"))
    assert not np.array_equal(every, last)
    assert last.std(0).mean() < every.std(0).mean()
    with pytest.raises(SpecError, match="matches none"):
        classify("stochastic_attention", classifier, examples, sites="blocks.7.*")


def test_nu_is_chosen_by_the_nll_of_the_mean_softmax(classifier, examples):
    params = get("methods", "stochastic_attention").ClassParams()
    nu, table = choose_nu(classifier, examples, (16, 1, 4), 6, 0, params)
    assert [row["nu"] for row in table] == [1, 4, 16]
    for row in table:
        mean = classify("stochastic_attention", classifier, examples, nu=row["nu"], members=6).astype(np.float64).mean(0)
        by_case = -np.log(mean[np.arange(30), examples.labels.numpy()])
        assert row["nll"] == pytest.approx(by_case.mean(), rel=1e-6)
        assert row["nll_error"] == pytest.approx(by_case.std() / 30**0.5, rel=0.2)
    assert nu == min(table, key=lambda row: row["nll"])["nu"]
    assert choose_nu(classifier, examples, (16, 1, 4), 6, 0, params) == (nu, table)


def test_ties_go_to_the_larger_nu(monkeypatch, classifier, examples):
    kind = type(get("methods", "stochastic_attention"))
    monkeypatch.setattr(kind, "classify", lambda self, classifier, e, **_: np.full((2, len(e), 3), 1 / 3, np.float32))
    assert choose_nu(classifier, examples, (1, 8, 2), 2, 0, kind.ClassParams())[0] == 8


def test_nu_is_chosen_from_known_labels(classifier, examples):
    params = get("methods", "stochastic_attention").ClassParams()
    hidden = type(examples)(examples.inputs, torch.where(torch.arange(30) < 12, examples.labels, -1), examples.ids)
    assert choose_nu(classifier, hidden, (2,), 3, 0, params)[1] == choose_nu(classifier, examples.rows(slice(0, 12)), (2,), 3, 0, params)[1]
    for nothing in (None, hidden.rows(slice(12, 30))):
        with pytest.raises(CalibrationError, match="calibration split"):
            choose_nu(classifier, nothing, (2,), 3, 0, params)
    with pytest.raises(SpecError):
        choose_nu(classifier, examples, (), 3, 0, params)


# temperature


def drawn(cases, scale, seed=0):
    """Logits, times `scale`, of a classifier whose own probabilities are true, and labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(scale=1.5, size=(cases, 4))
    labels = (softmax(z, -1).cumsum(-1) < rng.random((cases, 1))).sum(-1)
    return z * scale, labels


@pytest.mark.parametrize("scale", [0.2, 1, 3, 10])
def test_temperature_against_scipy(scale):
    z, labels = drawn(3000, scale)

    def loss(log_t):
        return -log_softmax(z / np.exp(log_t), -1)[np.arange(len(z)), labels].mean()

    best = minimize_scalar(loss, bounds=np.log([0.05, 20]), method="bounded", options={"xatol": 1e-9})
    assert fit_temperature(z, labels) == pytest.approx(np.exp(best.x), rel=1e-4)
    assert fit_temperature(z, labels) == pytest.approx(scale, rel=0.1)
    assert nll(z, labels, scale) == pytest.approx(loss(np.log(scale)))


def test_temperature_stays_in_bounds():
    z, labels = drawn(500, 1)
    assert fit_temperature(z * 1e-3, labels) == pytest.approx(0.05)
    assert fit_temperature(z * 1e3, labels) == pytest.approx(20)
    assert fit_temperature(z, z.argmax(-1)) == pytest.approx(0.05)


class Given:
    """A classifier whose inputs are its logits."""

    classes = ("a", "b", "c", "d")

    def __init__(self):
        self.module = nn.Linear(1, 1)

    def logits(self, inputs, module=None):
        return inputs["z"]


def given(z, labels, ids=None):
    from engine.labelled import Examples

    return Examples({"z": torch.from_numpy(z)}, torch.from_numpy(labels), tuple(range(len(z))) if ids is None else ids)


def test_an_overconfident_classifier_is_cooled_and_a_calibrated_one_left():
    sharp, fair = (learn("temperature_scaling", Given(), calibrate=given(*drawn(4000, scale))) for scale in (3, 1))
    assert bool(sharp["kept"])
    assert float(sharp["temperature"]) == pytest.approx(3, rel=0.08)
    assert float(sharp["held_out_after"]) < float(sharp["held_out_before"])
    assert float(fair["temperature"]) == pytest.approx(1, abs=0.08)
    z, labels = drawn(50, 3, seed=5)
    p = classify("temperature_scaling", Given(), given(z, labels), state=sharp)[0]
    np.testing.assert_allclose(p, softmax(z / float(sharp["temperature"]), -1), atol=1e-6)
    assert all(value.dim() == 0 for value in sharp.values())
    assert get("methods", "temperature_scaling").parameters(Given(), sharp) == 3


def test_a_temperature_that_does_not_help_what_it_has_not_seen_is_dropped():
    z, labels = drawn(40, 1)
    order = np.arange(40)
    z[order % 2 == 0] *= 6  # fitted on these, which want T = 6 …
    state = learn("temperature_scaling", Given(), calibrate=given(z, labels))
    assert not bool(state["kept"])
    assert float(state["temperature"]) == 1
    assert float(state["fitted"]) != 1
    # … and the halves go by ids, whatever the order of the rows
    mixed = np.random.default_rng(0).permutation(40)
    again = learn("temperature_scaling", Given(), calibrate=given(z[mixed], labels[mixed], tuple(int(i) for i in mixed)))
    assert float(again["held_out_after"]) == pytest.approx(float(state["held_out_after"]), rel=1e-6)


def test_temperature_needs_labels():
    z, labels = drawn(5, 1)
    for calibrate in (None, given(z, np.full(5, -1)), given(z[:1], labels[:1])):
        with pytest.raises(CalibrationError, match="calibration split"):
            learn("temperature_scaling", Given(), calibrate=calibrate)
    z[2, 1] = np.nan
    with pytest.raises(CalibrationError, match="finite"):
        learn("temperature_scaling", Given(), calibrate=given(z, labels))


# dropout


def test_dropout_masks_are_the_named_streams(classifier, examples):
    """One member by hand: Bernoulli masks of the streams (seed, member, case, place) in the order of the calls."""
    few, net, place = examples.rows(slice(0, 2)), classifier.module, iter(range(100))
    member, seed = 3, 21

    def drop(x, case):
        width = x[0].numel()
        u = torch.empty(1, width).uniform_(generator=generator(seed, member, case, next(place), stream=STREAM)).view_as(x)
        return torch.where(u >= 0.1, x / 0.9, 0.0)

    def one(pixels, case):
        x, mask = net.embed(pixels)
        for block in net.blocks:
            x = x + drop(block.attn(block.norm1(x)), case)
            x = x + drop(block.mlp(block.norm2(x)), case)
        return torch.softmax(net.pool(x, mask), -1)

    p = classify("mc_dropout", classifier, few, seed=seed)
    with torch.no_grad():
        for i, case in enumerate(few.ids):
            place = iter(range(100))
            np.testing.assert_allclose(p[member, i], one(few.inputs["pixels"][i : i + 1], case)[0].numpy(), atol=1e-5)


def test_the_last_dropout_alone_spreads_less_and_a_larger_rate_more(classifier, examples):
    def spread(**params):
        return float(classify("mc_dropout", classifier, examples, members=20, **params).std(0).mean())

    assert 0 < spread(where="last") < spread() < spread(rate=0.4)
    assert np.array_equal(classify("mc_dropout", classifier, examples), classify("mc_dropout", classifier, examples, rate=0.1))


def test_only_the_last_call_drops(classifier, examples):
    one = examples.rows(slice(0, 1))
    seen = {}
    hooks = [
        m.register_forward_hook(lambda m, a, output, name=name: seen.setdefault(name, []).append(output.clone()))
        for name, m in classifier.module.named_modules()
        if name.endswith(("attn", "mlp"))
    ]
    try:
        classify("mc_dropout", classifier, one, where="last")
    finally:
        for hook in hooks:
            hook.remove()
    varies = {name: bool((outputs[-1].std(0) > 1e-6).any()) for name, outputs in seen.items()}
    assert varies == {"blocks.0.attn": False, "blocks.0.mlp": False, "blocks.1.attn": False, "blocks.1.mlp": True}


def test_a_model_without_active_dropout_is_refused(tmp_path, examples):
    plain = vit(tmp_path, dropout=0.0)
    for act in (lambda: classify("mc_dropout", plain, examples), lambda: learn("mc_dropout", plain, calibrate=examples)):
        with pytest.raises(SpecError, match=r"no active dropout: 4 dropout call\(s\) of rate 0"):
            act()
    assert classify("mc_dropout", plain, examples, rate=0.2).std(0).max() > 0, "a rate that is named makes it active"
    bare = vit(tmp_path)
    for block in bare.module.blocks:
        block.attn.drop = block.mlp.drop = nn.Identity()
    bare.module.unused = nn.Dropout(0.5)
    with pytest.raises(SpecError, match="no dropout module in its forward"):
        classify("mc_dropout", bare, examples)


def test_dropout_that_evaluation_does_not_switch_off_is_refused(tmp_path, examples):
    leaking = vit(tmp_path)

    def forward(x, mask=None):
        q, k, v = attention.heads(x)
        return attention.proj(F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).transpose(1, 2).flatten(2))

    attention = leaking.module.blocks[1].attn
    attention.forward = forward
    with pytest.raises(AttentionError, match=r"evaluation mode too, at blocks\.1\.attn"):
        classify("mc_dropout", leaking, examples)


def test_everything_is_put_back_after_an_error(tmp_path, examples):
    broken = vit(tmp_path)
    broken.module.train()
    real = broken.module.pool
    calls = iter(range(100))

    def pool(x, mask):
        if next(calls) == 2:  # after the look at its places, and one case
            raise RuntimeError("out of memory")
        return real(x, mask)

    broken.module.pool = pool
    with pytest.raises(RuntimeError, match="out of memory"):
        classify("mc_dropout", broken, examples)
    assert all(m.training for m in broken.module.modules())
    assert not any(m._forward_hooks for m in broken.module.modules())


# ensembles


def test_an_ensemble_holds_its_models(classifier, examples, states):
    state, _ = states["deep_ensemble"]
    names = set(classifier.module.state_dict())
    assert set(state) == {f"{i}.{name}" for i in (1, 2) for name in names}
    p = classify("deep_ensemble", classifier, examples, state=state, members=50, **SMALL)
    assert np.array_equal(p[:1], classify("deterministic", classifier, examples)), "the frozen model is the first"
    member = classifier.fresh(0)
    member.load_state_dict({name: state[f"2.{name}"] for name in names})
    with torch.no_grad():
        expected = torch.softmax(member.eval()(examples.inputs["pixels"]), -1).numpy()
    np.testing.assert_allclose(p[2], expected, atol=1e-6)
    one = sum(q.numel() for q in classifier.module.parameters())
    assert get("methods", "deep_ensemble").parameters(classifier, state) == 3 * one
    assert not torch.equal(state["1.head.weight"], state["2.head.weight"])


def test_models_of_an_ensemble_begin_and_learn_apart(classifier, examples):
    """Initial weights of their own, uncorrelated (a learning rate that moves nothing shows them); an order of the examples of their own."""
    orders_of = {}

    class Watched:
        def __getattr__(self, name):
            return getattr(classifier, name)

        def logits(self, inputs, module=None):
            if module is not None and module.training:
                orders_of.setdefault(id(module), []).extend(pixels.numpy().tobytes() for pixels in inputs["pixels"])
            return classifier.logits(inputs, module)

    size = 4
    options = {"size": size, "epochs": 1, "batch": 8, "lr": 1e-12, "include_frozen": False}
    state = learn("deep_ensemble", Watched(), examples, None, **options)
    for name, weight in classifier.module.named_parameters():
        drawn = [state[f"{i}.{name}"].flatten() for i in range(size)]
        if weight.dim() > 1 and weight.numel() > 500:  # others may begin as zeros or ones
            together = torch.corrcoef(torch.stack(drawn)) - torch.eye(size)
            assert float(together.abs().max()) < 6 / weight.numel() ** 0.5, name
    orders = list(orders_of.values())
    assert len(orders) == size
    assert all(sorted(order) == sorted(orders[0]) and len(order) == len(examples) for order in orders)
    assert len({tuple(order) for order in orders}) == size


def test_an_ensemble_without_the_frozen_model(classifier, examples):
    state = learn("deep_ensemble", classifier, examples, None, **SMALL | {"size": 2, "epochs": 1, "include_frozen": False})
    assert {name.partition(".")[0] for name in state} == {"0", "1"}
    p = classify("deep_ensemble", classifier, examples, state=state)
    assert len(p) == 2
    assert not np.allclose(p[0], classify("deterministic", classifier, examples)[0], atol=1e-3)
    assert get("methods", "deep_ensemble").parameters(classifier, state) == sum(value.numel() for value in state.values())


def test_an_ensemble_learns(classifier, examples):
    fit = classifier.prepare(images(200, seed=1))
    state = learn("deep_ensemble", classifier, fit, examples, **SMALL | {"size": 2, "epochs": 12, "lr": 1e-2})
    p = classify("deep_ensemble", classifier, examples, state=state)[1]
    assert (p.argmax(-1) == examples.labels.numpy()).mean() > 0.8


def test_an_ensemble_is_taken_up_member_by_member(classifier, examples, states, tmp_path):
    method, steps = get("methods", "deep_ensemble"), []

    def report(done, total, message):
        steps.append((done, total))
        if message.startswith("model 3") and done == 7:  # in the second epoch of the second training
            raise KeyboardInterrupt

    params = method.ClassParams(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        method.learn(classifier, examples, examples, params=params, seed=0, report=report, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["member-1", "member-2"]
    assert steps[0] == (0, 8)
    state = method.learn(classifier, examples, examples, params=params, seed=0, folder=tmp_path)
    expected, _ = states["deep_ensemble"]
    assert all(torch.equal(value, expected[name]) for name, value in state.items())


def test_an_ensemble_needs_labels_to_learn_from(classifier, examples):
    with pytest.raises(DatasetError, match="fit split"):
        learn("deep_ensemble", classifier, None, examples)


@pytest.mark.parametrize("key", ["temperature_scaling", "mc_dropout", "deep_ensemble"])
def test_runs_over_fields_refuse_them(key, tmp_path):
    from engine.runs.plan import make_plan
    from engine.runs.spec import RunSpec

    spec = RunSpec(checkpoint=str(tmp_path / "none.safetensors"), data=(str(tmp_path / "none.nc"),), method=key)
    with pytest.raises(SpecError, match="a classification method; this model forecasts fields"):
        make_plan(spec)
