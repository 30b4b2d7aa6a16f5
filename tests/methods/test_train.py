"""The training loop: resumed trainings, the weights that are left, when it stops, and what it refuses."""

import numpy as np
import pytest
import torch
from torch import nn

from engine.errors import DatasetError, RunError
from engine.labelled import Examples
from engine.methods._train import CHECKPOINT, fit_classifier, train

X = torch.randn(48, 5, generator=torch.Generator().manual_seed(3))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
OPTIONS = {"epochs": 4, "batch": 20, "lr": 0.02, "seed": 7}


class Net(nn.Module):
    """Dropout draws from the global generator, batch norm keeps buffers: both must survive a resumption."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.body = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))

    def forward(self, x):
        return self.body(x)


class Stopped(Exception):
    """A worker that is killed."""


def stop_at(step):
    def report(done, total, message):
        if done == step:
            raise Stopped

    return report


def run(net, **options):
    def loss_of(at, step):
        return nn.functional.cross_entropy(net(X[at]), Y[at])

    return train(net, loss_of, len(X), **(OPTIONS | options))


def same(a, b):
    return all(torch.equal(x, b.state_dict()[name]) for name, x in a.state_dict().items())


def validation_of(net):
    return lambda: float(nn.functional.cross_entropy(net(X), Y))


def scripted(*values):
    """A validation that returns these, one an epoch."""
    rest = iter(values)
    return lambda: next(rest)


def test_learns_and_is_the_same_each_time():
    first, second, other = Net(), Net(), Net()
    result = run(first, epochs=20)
    run(second, epochs=20)
    run(other, epochs=20, seed=8)
    assert result["loss"][-1] < 0.7 * result["loss"][0]
    assert same(first, second)
    assert not same(first, other)
    assert not first.training


@pytest.mark.parametrize("at", [3, 4, 8, 11], ids=["at an epoch's end", "early in the second", "mid", "in the last"])
def test_a_resumed_training_gives_the_same_bits(tmp_path, at):
    whole = Net()
    expected = run(whole, validate=validation_of(whole))
    broken = Net()
    with pytest.raises(Stopped):
        run(broken, validate=validation_of(broken), folder=tmp_path, report=stop_at(at))
    again = Net()
    torch.rand(5)  # the global generator stands elsewhere
    found = run(again, validate=validation_of(again), folder=tmp_path)
    assert same(again, whole)
    assert found == expected


def test_a_finished_training_is_not_trained_again(tmp_path):
    net = Net()
    run(net, folder=tmp_path)
    again = Net()
    steps = []
    result = run(again, folder=tmp_path, report=lambda done, total, message: steps.append(done))
    assert same(again, net)
    assert result["epochs"] == 4
    assert steps == [12, 12]


@pytest.mark.parametrize("other", [{"seed": 8}, {"weight_decay": 0.1}, {"clip": 0.01}, {"lr": 0.01}, {"batch": 24}])
def test_a_checkpoint_of_other_settings_is_left_alone(tmp_path, other):
    run(Net(), folder=tmp_path)
    taken, fresh = Net(), Net()
    run(taken, folder=tmp_path, **other)
    run(fresh, **other)
    assert same(taken, fresh)


def test_a_checkpoint_from_other_initial_weights_is_left_alone(tmp_path):
    run(Net(), folder=tmp_path)
    taken, fresh = Net(seed=1), Net(seed=1)
    run(taken, folder=tmp_path)
    run(fresh)
    assert same(taken, fresh)


def test_a_damaged_checkpoint_is_made_again(tmp_path, caplog):
    net = Net()
    run(net, folder=tmp_path)
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:500])
    again = Net()
    run(again, folder=tmp_path)
    assert same(again, net)
    assert "starts again" in caplog.text


def test_the_best_epoch_is_left():
    net, short = Net(), Net()
    kept = []

    def validate():
        kept.append({name: value.clone() for name, value in net.state_dict().items()})
        return [0.9, 0.5, 0.7, 0.6][len(kept) - 1]

    result = run(net, validate=validate)
    assert result["best_epoch"] == 2
    assert result["validation"] == [0.9, 0.5, 0.7, 0.6]
    assert all(torch.equal(value, kept[1][name]) for name, value in net.state_dict().items())
    run(short)
    assert not same(net, short), "the last epoch is another"


def test_patience_stops_and_stays_stopped(tmp_path):
    net = Net()
    result = run(net, epochs=9, patience=2, validate=scripted(0.9, 0.5, 0.7, 0.6, 0.1), folder=tmp_path)
    assert (result["epochs"], result["best_epoch"]) == (4, 2)
    again = Net()
    found = run(again, epochs=9, patience=2, validate=scripted(), folder=tmp_path)
    assert found == result
    assert same(again, net)


def test_validation_draws_the_same_noise_each_epoch_and_leaves_the_trainings_alone():
    net, quiet, drawn = Net(), Net(), []

    def validate():
        drawn.append(torch.rand(3))
        assert not net.training
        assert not torch.is_grad_enabled()
        return -float(len(drawn))

    run(net, validate=validate)
    run(quiet)
    assert all(torch.equal(drawn[0], d) for d in drawn)
    assert same(net, quiet)


def test_the_global_generator_is_put_back():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(Net(), epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_frozen_parameters_stay():
    net = Net()
    net.body[0].requires_grad_(False)
    before = net.body[0].weight.clone()
    run(net, epochs=1, weight_decay=0.5)
    assert torch.equal(net.body[0].weight, before)


def test_the_rate_rises_and_falls_to_its_end():
    rates = []
    real = torch.optim.AdamW.step

    def step(self, *args, **kwargs):
        rates.append(self.param_groups[0]["lr"])
        return real(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", step)
        run(Net(), epochs=20, warmup=0.1, lr_end=1e-4)
    assert len(rates) == 60
    assert np.all(np.diff(rates[:6]) > 0)
    assert np.all(np.diff(rates[6:]) < 0)
    assert 0.018 < max(rates) <= 0.02
    assert rates[-1] == pytest.approx(1e-4, rel=0.2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(bad):
    net = Net()
    with pytest.raises(RunError, match="a loss"):
        train(net, lambda at, step: net(X[at]).sum() * bad, len(X), **OPTIONS)
    with pytest.raises(RunError, match="a gradient"):
        train(net, lambda at, step: torch.where(net(X[at]) > -1e9, 0.0, net(X[at]) * bad).sum(), len(X), **OPTIONS)
    with pytest.raises(RunError, match="a validation"):
        run(net, validate=lambda: bad)


def test_classifiers_learn_from_known_labels_only():
    labels = torch.where(torch.arange(48) % 3 == 0, -1, Y)
    known = torch.nonzero(labels >= 0)[:, 0].tolist()
    marked, clean = Examples({"x": X}, labels, tuple(range(48))), Examples({"x": X[known]}, Y[known], tuple(known))
    nets = Net(), Net()
    for net, examples in zip(nets, (marked, clean), strict=True):
        result = fit_classifier(lambda inputs, net=net: net(inputs["x"]), net, examples, examples, **(OPTIONS | {"epochs": 2}))
    assert same(*nets)
    with torch.no_grad():
        assert min(result["validation"]) == pytest.approx(float(nn.functional.cross_entropy(nets[1](X[known]), Y[known])), abs=1e-6)
    nobody = Examples({"x": X}, torch.full((48,), -1), tuple(range(48)))
    with pytest.raises(DatasetError, match="fit split"):
        fit_classifier(lambda inputs: nets[0](inputs["x"]), nets[0], nobody, None, **OPTIONS)


def test_a_regulariser_is_added():
    plain, drawn = Net(), Net()
    examples = Examples({"x": X}, Y, tuple(range(48)))
    fit_classifier(lambda inputs: plain(inputs["x"]), plain, examples, None, **OPTIONS)
    fit_classifier(
        lambda inputs: drawn(inputs["x"]), drawn, examples, None, extra=lambda: 5 * drawn.body[4].weight.square().sum(), **OPTIONS
    )
    assert drawn.body[4].weight.square().sum() < 0.8 * plain.body[4].weight.square().sum()
