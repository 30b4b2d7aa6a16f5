"""The solvable stack: exact moments against members, the surrogate's slope, and the calibration that must find the true ν."""

import numpy as np
import pytest
import torch

from engine.demo.known_truth import KnownTruth
from engine.kernels.intercept import stochastic_attention
from engine.kernels.surrogate import fit
from engine.kernels.tuner import interval, tune


def members(net, x, nu, count, seed=0, member=0):
    """`count` members `(count, case, token, width)` in one forward; rows of one key are independent draws of one stream."""
    with torch.no_grad(), stochastic_attention(net, nu, seed=seed, member=member, cases=[0]):
        return net(x.repeat(count, 1, 1)).view(count, *x.shape)


def inputs(cases, seed=0, tokens=16, width=8):
    return torch.randn(cases, tokens, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sizes", [{"layers": 1}, {"layers": 2}, {"layers": 3, "heads": 4}])
@pytest.mark.parametrize("nu", [1, 7])
def test_moments_are_exact(sizes, nu):
    """Mean and variance of each output over 6000 members: standard scores with unit spread, none beyond 6."""
    net, x, count = KnownTruth(**sizes), inputs(2), 6000
    away = (members(net, x, nu, count) - net(x)).double()
    mean_score = away.mean(0) / away.std(0) * count**0.5
    squares = away**2
    variance_score = (squares.mean(0) - net.variance(x, nu)) / squares.std(0) * count**0.5
    for score in (mean_score, variance_score):
        assert float(score.abs().max()) < 6
        # outputs of one case depend on each other: the spread of 256 scores is known to about 0.15
        assert 0.6 < float(score.square().mean().sqrt()) < 1.5


def test_one_layer_is_exactly_one_over_nu():
    x = inputs(3)
    one, two = KnownTruth(layers=1), KnownTruth(layers=2)
    assert torch.allclose(one.variance(x, 1), 50 * one.variance(x, 50), rtol=1e-12)
    bend = two.variance(x, 1).sum() / (1000 * two.variance(x, 1000).sum())
    assert bend > 1.1  # the second layer spreads what the first has spread


def test_the_whole_stack_is_reached():
    net, x = KnownTruth(layers=3), inputs(2)
    with torch.no_grad(), stochastic_attention(net, 4) as attention:
        net(x)
    assert len(attention.report.sites) == 3
    with pytest.raises(ValueError, match="heads"):
        KnownTruth(width=8, heads=3)


def test_observations_are_a_member_of_their_own():
    net, x = KnownTruth(), inputs(4)
    observed = net.observe(x, 9, seed=5)
    assert torch.equal(observed, net.observe(x, 9, seed=5))
    assert torch.equal(observed[:2], net.observe(x[:2], 9, seed=5))
    noise = (observed - net(x)).flatten()
    for other in (net.observe(x, 9, seed=6), *(members(net, x, 9, 1, seed=5, member=k)[0] for k in range(8))):
        again = (other - net(x)).flatten()
        assert abs(float(torch.corrcoef(torch.stack([noise, again]))[0, 1])) < 0.3  # 512 numbers, effectively fewer


def test_slope_of_one_layer_is_minus_one_half():
    """Twelve ν, ten passes each, mean R over 16 cases: within four of the slope's own standard errors, which are small."""
    net, x = KnownTruth(layers=1), inputs(16)
    nus = np.repeat(np.rint(np.geomspace(4, 300, 12)), 10)
    still = net(x)
    scale = np.concatenate([(members(net, x, int(nu), 10, seed=1) - still).flatten(2).norm(dim=-1).mean(-1) for nu in np.unique(nus)])
    line = fit(nus, scale)
    assert line.slope_error < 0.003
    assert abs(line.slope + 0.5) < 4 * line.slope_error


class Passes:
    """R of each case in the k-th pass at ν, made twelve passes at a time, since a forward costs more than its rows."""

    def __init__(self, net, x, seed):
        self.net, self.x, self.seed, self.still, self.made = net, x, seed, net(x), {}

    def __call__(self, nu, k):
        made = self.made.setdefault(nu, [])
        while k >= len(made):
            drawn = members(self.net, self.x, nu, 12, seed=self.seed, member=len(made))
            made.extend((drawn - self.still).flatten(2).norm(dim=-1).double().numpy())
        return made[k]


def calibrate(net, truth, cases, nu_max, seed):
    """A calibration from nothing: new inputs, new observations, new noise."""
    x = inputs(cases, seed=10_000 + seed, tokens=8, width=4)
    passes = Passes(net, x, seed)
    residual = (net.observe(x, truth, seed) - passes.still).flatten(1).norm(dim=-1).double().numpy()
    tuned = tune(lambda nu, k: passes(nu, k).mean(), residual.mean(), nu_max=nu_max, seed=seed)
    asked = [e.nu for e in tuned.evaluations]
    scales = np.array([passes(e.nu, e.k) for e in tuned.evaluations])
    return tuned, interval(asked, scales, residual, seed=seed, nu_max=nu_max)


def test_calibration_is_deterministic():
    net = KnownTruth(tokens=8, width=4)
    (one, first), (other, second) = calibrate(net, 12, 12, 64, 3), calibrate(net, 12, 12, 64, 3)
    assert (one.nu, one.fit, first.low, first.high) == (other.nu, other.fit, second.low, second.high)


@pytest.mark.slow
def test_the_known_nu_is_recovered():
    """200 calibrations of 12 cases at ν = 12: the stated interval holds the truth in at least 95 %, and is worth stating."""
    net, truth, records = KnownTruth(tokens=8, width=4), 12, 200
    found, low, high = np.empty((3, records))
    for seed in range(records):
        tuned, stated = calibrate(net, truth, 12, 64, seed)
        assert not tuned.rising
        found[seed], low[seed], high[seed] = tuned.nu, stated.low, stated.high
    assert np.mean((low <= truth) & (truth <= high)) >= 0.95
    assert abs(found.mean() - truth) < 4 * found.std() / records**0.5
    assert np.median(high / low) < 2
    shrunk = np.abs(np.log(found / truth)) < 0.35 * np.log(high / low) / 2  # intervals of a third the width would not do
    assert shrunk.mean() < 0.8
