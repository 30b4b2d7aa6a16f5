"""ν* of a torch model in memory: the known truth, classifiers in three ways, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

import engine
from engine.demo.known_truth import KnownTruth
from engine.errors import AttentionError, CalibrationError
from engine.kernels import stochastic_attention


class Classifier(nn.Module):
    """One attention layer over tokens, mean pooling, three classes."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator))

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


def cases(count: int, tokens: int = 8, width: int = 8):
    return torch.randn(count, tokens, width, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("objective", ["scale", "per_example"])
def test_the_known_truth_is_found(objective) -> None:
    model, x = KnownTruth(tokens=8, width=8, heads=2, layers=2), cases(48)
    found = engine.calibrate_model(model, x, model.observe(x, nu=12, seed=5), objective=objective, nu_max=128, seed=1)
    assert found.low <= 12 <= found.high and abs(found.nu - 12) <= 3
    assert found.tuned is not None and found.tuned.fit.slope == pytest.approx(-0.5, abs=0.05)


def test_the_batch_changes_nothing() -> None:
    model, x = KnownTruth(tokens=8, width=4, heads=2, layers=1), cases(10, width=4)
    y = model.observe(x, nu=6, seed=2)
    one, other = (engine.calibrate_model(model, x, y, nu_max=32, batch=b, rounds=2) for b in (10, 3))
    assert one.nu == other.nu and (one.low, one.high) == (other.low, other.high)


def sampled_labels(model, x, nu: int, seed: int):
    """Labels drawn from the softmaxes of a stochastic member: the classifier at `nu` is right about its own doubt."""
    with torch.no_grad(), stochastic_attention(model, nu, seed, 10_000):
        p = model(x).softmax(-1)
    return torch.multinomial(p, 1, generator=torch.Generator().manual_seed(seed))[:, 0].numpy()


@pytest.mark.parametrize("space", ["probabilities", "logits"])
def test_a_classifier_is_matched_on_distances(space) -> None:
    model, x = Classifier(), cases(64)
    labels = sampled_labels(model, x, 4, 7)
    found = engine.calibrate_model(model, x, labels, space=space, nu_max=64, rounds=3)
    assert 1 <= found.nu <= 64 and found.target > 0
    # at ν* the mean distance is the target's, unless the range ends before
    with torch.no_grad():
        still = model(x).double()
        moved = []
        for k in range(20):
            with stochastic_attention(model, found.nu, 99, k):
                moved.append(model(x).double())
    if space == "probabilities":
        r = np.mean([np.linalg.norm((m.softmax(-1) - still.softmax(-1)).numpy(), axis=1).mean() for m in moved])
    else:
        centred = [m - m.mean(-1, keepdim=True) for m in (still, *moved)]
        r = np.mean([np.linalg.norm((m - centred[0]).numpy(), axis=1).mean() for m in centred[1:]])
    assert found.tuned.edge or r == pytest.approx(found.target, rel=0.15)


def test_a_classifier_by_its_nll() -> None:
    """The ν with the least NLL among those searched; NLL is that of the mean softmax, computed here anew at the answer."""
    model, x = Classifier(), cases(64)
    found = engine.calibrate_model(model, x, sampled_labels(model, x, 2, 7), objective="nll", nu_max=64, calls=3)
    assert found.nll[found.nu] == min(found.nll.values()) and found.low <= found.nu <= found.high
    assert len(found.nll) >= 7 and found.tuned is None


@pytest.mark.parametrize(
    ("observed", "space", "says"),
    [
        (np.zeros((8, 3, 8)), "outputs", "shape"),
        (np.zeros((8, 8, 4)), "probabilities", "class numbers"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(observed, space, says) -> None:
    with pytest.raises(CalibrationError, match=says):
        engine.calibrate_model(KnownTruth(tokens=8, width=4, heads=2, layers=1), cases(8, width=4), observed, space=space)


def test_a_label_without_a_class_is_refused() -> None:
    with pytest.raises(CalibrationError, match="class from 0 to 2"):
        engine.calibrate_model(Classifier(), cases(4), np.array([0, 1, 2, 3]), space="probabilities")


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(AttentionError, match="no attention"):
        engine.calibrate_model(nn.Linear(4, 4), torch.randn(8, 4), np.zeros((8, 4)))


@pytest.mark.parametrize("words", [{"objective": "foo"}, {"space": "colours"}])
def test_other_words_are_refused(words) -> None:
    with pytest.raises(CalibrationError, match="one of"):
        engine.calibrate_model(Classifier(), cases(4), np.zeros(4, dtype=int), **words)


def test_what_is_not_to_be_trusted_is_said() -> None:
    """A target that no ν reaches, and few cases; the answer prints in one line."""
    model, x = KnownTruth(tokens=8, width=4, heads=2, layers=1), cases(6, width=4)
    found = engine.calibrate_model(model, x, model(x) + 100.0, nu_max=32, rounds=2)
    assert found.nu == 1 and "stray less" in found.warnings[0] and "6 calibration cases" in found.warnings[1]
    assert len(repr(found)) < 400


class Pair(nn.Module):
    def forward(self, x):
        return x, nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("model", "inputs", "observed", "more", "says"),
    [
        (Classifier(), [], np.zeros(4), {}, "torch tensors"),
        (Classifier(), torch.zeros(0, 8, 8), np.zeros(0), {}, "2 cases or more"),
        (Classifier(), np.zeros((4, 8, 8)), np.zeros(4), {}, "torch tensors"),
        (Pair(), cases(4), np.zeros((4, 8, 8)), {}, "found tuple"),
        (Classifier(), cases(4), np.array(["a"] * 4), {"space": "logits"}, "numbers"),
        (Classifier(), cases(4), np.zeros(4, dtype=int), {"batch": 0}, "batch"),
        (Classifier(), cases(4), np.zeros(4, dtype=int), {"nu_max": 2.5}, "nu_max"),
        (Classifier(), cases(4), np.full((4, 3), np.nan), {}, "not finite"),
    ],
)
def test_what_cannot_be_read_is_refused(model, inputs, observed, more, says) -> None:
    with pytest.raises(CalibrationError, match=says):
        engine.calibrate_model(model, inputs, observed, **more)


def test_the_model_s_own_outputs_are_no_observations() -> None:
    model, x = KnownTruth(tokens=8, width=4, heads=2, layers=1), cases(6, width=4)
    with pytest.raises(CalibrationError, match="nothing to calibrate"):
        engine.calibrate_model(model, x, model(x).clone().requires_grad_())
