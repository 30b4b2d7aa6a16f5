"""The tuner: it finds the closed form's ν, keeps its order and its guards; the interval's refits against a loop."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from engine.errors import CalibrationError
from engine.kernels import tuner
from engine.kernels.bootstrap import resample
from engine.kernels.surrogate import LogLinear, fit
from engine.kernels.tuner import interval, tune


class Lognormal:
    """Passes of a scale that follows the surrogate exactly, keyed by (nu, k)."""

    def __init__(self, slope=-0.5, log_b=1.0, sigma=0.1, points=1, seed=0):
        self.slope, self.log_b, self.sigma, self.points, self.seed, self.asked = slope, log_b, sigma, points, seed, []

    def __call__(self, nu, k):
        self.asked.append((nu, k))
        z = np.random.default_rng([self.seed, nu, k]).standard_normal(self.points)
        return np.exp(self.slope * np.log(nu) + self.log_b + self.sigma * z)

    def target(self, nu):
        """The target whose optimum is `nu`."""
        return np.exp(self.log_b + 1.5 * self.sigma**2 + self.slope * np.log(nu))


def same(one, other):
    assert [(e.nu, e.k, e.round) for e in one.evaluations] == [(e.nu, e.k, e.round) for e in other.evaluations]
    assert all(np.array_equal(a.scale, b.scale) for a, b in zip(one.evaluations, other.evaluations, strict=True))
    assert (one.nu, one.fit, one.stop, one.rounds, one.score) == (other.nu, other.fit, other.stop, other.rounds, other.score)


@pytest.mark.parametrize("truth", [3, 20, 150])
def test_it_finds_the_optimum(truth):
    """With n passes the mean of ln s at the optimum has error σ/√n, so ln ν has 2 σ/√n: five of those, and rounding."""
    for seed in range(5):
        model = Lognormal(seed=seed)
        got = tune(model, model.target(truth), nu_max=1000, seed=seed)
        assert abs(np.log(got.nu / truth)) < 5 * 2 * 0.1 / np.sqrt(len(got.evaluations)) + 0.5 / truth
        assert "in a row" in got.stop
        assert (got.edge, got.rising, got.dropped) == ("", False, 0)
        assert got.score < 1.03


def test_order_and_number_of_passes():
    model, told = Lognormal(), []
    got = tune(model, model.target(20), nu_max=1000, seed=3, on_round=lambda *args: told.append(args))
    assert model.asked == [(e.nu, e.k) for e in got.evaluations]
    assert len(set(model.asked)) == len(model.asked)
    for nu in {nu for nu, _ in model.asked}:
        assert [k for n, k in model.asked if n == nu] == list(range(sum(n == nu for n, _ in model.asked)))
    assert [e.nu for e in got.evaluations[:10]] == [1, 2, 5, 10, 22, 46, 100, 215, 464, 1000]
    assert [e.round for e in got.evaluations] == [0] * 10 + [1 + i // 10 for i in range(10 * got.rounds)]
    assert [number for number, _, _ in told] == list(range(got.rounds + 1))
    assert told[-1] == (got.rounds, got.score, got.nu)


def test_three_scores_in_a_row_with_passes_between():
    model, told = Lognormal(), []
    tune(model, model.target(20), nu_max=1000, seed=3, on_round=lambda number, score, nu: told.append(score))
    below = [score < 1.03 for score in told]
    assert below[-3:] == [True] * 3
    assert not any(all(below[i : i + 3]) for i in range(len(below) - 3))
    once = tune(Lognormal(), model.target(20), nu_max=1000, seed=3, patience=1)
    assert once.rounds == below.index(True)
    cut = tune(Lognormal(), model.target(20), nu_max=1000, seed=3, rounds=2)
    assert (cut.rounds, len(cut.evaluations)) == (2, 30)
    assert "limit of 2 rounds" in cut.stop


def test_the_same_seed_gives_the_same_and_a_replay_too():
    model = Lognormal(points=5)
    whole = tune(model, model.target(20), nu_max=500, seed=8)
    same(whole, tune(Lognormal(points=5), model.target(20), nu_max=500, seed=8))
    stored = {(e.nu, e.k): e.scale for e in whole.evaluations[:37]}  # an interrupted run kept these
    fresh = Lognormal(points=5)
    same(whole, tune(lambda nu, k: stored[nu, k] if (nu, k) in stored else fresh(nu, k), model.target(20), nu_max=500, seed=8))
    assert len(fresh.asked) == len(whole.evaluations) - 37
    other = tune(Lognormal(points=5), model.target(20), nu_max=500, seed=9)
    assert [e.nu for e in other.evaluations] != [e.nu for e in whole.evaluations]


def test_score_is_the_specifications():
    """The twin with the plain formula of f: of 100 draws, the 98th percentile (the higher neighbour) is the second largest."""
    nu = np.rint(np.geomspace(1, 1000, 10))
    line = fit(nu, np.concatenate([Lognormal()(int(n), 0) for n in nu]))
    posterior = line.draw(100, np.random.default_rng(0))
    assert (posterior.slope < 0).all()

    def f(x, s0):
        b, a, v = np.exp(line.intercept), line.slope, line.sigma**2
        return b**2 * (np.exp(2 * v) - np.exp(v)) * x ** (2 * a) + (b * np.exp(v / 2) * x**a - s0) ** 2

    s0 = Lognormal().target(30)
    optima = (s0 / np.exp(posterior.intercept + 1.5 * posterior.sigma**2)) ** (1 / posterior.slope)
    assert ((optima > 1) & (optima < 1000)).all()
    expected = np.sort(f(optima, s0) / f(line.optimum(s0), s0))[-2]
    assert expected > 1.05
    assert tuner._score(line, posterior, s0, 1000) == pytest.approx(expected, rel=1e-8)
    risen = posterior._replace(slope=np.where(np.arange(100) < 2, 0.1, posterior.slope))
    assert tuner._score(line, risen, s0, 1000) == np.inf


@pytest.mark.parametrize(("truth", "edge", "nu"), [(0.2, "low", 1), (900, "high", 64)])
def test_edges_are_said(truth, edge, nu):
    model = Lognormal(sigma=0.05)
    got = tune(model, model.target(truth), nu_max=64, seed=0)
    assert (got.nu, got.edge, got.rising) == (nu, edge, False)
    assert "in a row" in got.stop
    assert len(got.evaluations) < 100
    assert all(1 <= e.nu <= 64 for e in got.evaluations)


def test_a_rising_scale_is_no_optimum():
    model = Lognormal(slope=0.5, log_b=0.0, sigma=0.02)
    got = tune(model, 4.0, nu_max=100, seed=0)
    assert got.rising
    assert "did not fall" in got.stop
    means = {nu: np.mean([e.scale[0] for e in got.evaluations if e.nu == nu]) for nu in {e.nu for e in got.evaluations}}
    assert got.nu == min(means, key=lambda nu: abs(np.log(means[nu] / 4.0)))
    assert 12 <= got.nu <= 22  # 16 by the true line


def test_a_scale_that_does_not_depend_on_nu_ends_too():
    """Slopes of either sign: optima at both edges and none at all, with fillers between."""
    told = []
    got = tune(Lognormal(slope=0.0), 1.0, nu_max=100, seed=0, on_round=lambda number, score, nu: told.append(score))
    assert told[0] == np.inf
    assert got.rising or got.edge
    assert len({e.nu for e in got.evaluations if e.round}) > 2


def test_zeros_are_dropped_and_counted():
    model = Lognormal(points=4)

    def with_zeros(nu, k):
        scale = model(nu, k)
        scale[0] *= nu < 50
        return scale

    got = tune(with_zeros, model.target(20), nu_max=200, seed=0)
    assert got.dropped == sum(e.nu >= 50 for e in got.evaluations) > 0
    assert got.fit.count == 4 * len(got.evaluations) - got.dropped
    with pytest.raises(CalibrationError, match="0 points"):
        tune(lambda nu, k: 0.0, 1.0, nu_max=200, seed=0)


def test_small_ranges():
    model = Lognormal()
    got = tune(model, model.target(2), nu_max=2, seed=0)
    assert (got.nu, len({e.nu for e in got.evaluations})) == (2, 2)
    assert len(got.evaluations) >= 10
    with pytest.raises(CalibrationError, match="ν = 1"):
        tune(model, 1.0, nu_max=1, seed=0)
    with pytest.raises(ValueError, match="nu_max 0"):
        tune(model, 1.0, nu_max=0, seed=0)


@pytest.mark.parametrize("target", [0.0, -1.0, np.nan, np.inf])
def test_a_target_must_be_above_zero(target):
    with pytest.raises(CalibrationError, match="target"):
        tune(Lognormal(), target, nu_max=100, seed=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1])
def test_a_scale_must_be_a_norm(bad):
    with pytest.raises(CalibrationError, match="ν = 5, pass 0"):
        tune(lambda nu, k: bad if nu == 5 else 1.0 / nu, 0.5, nu_max=1000, seed=0)


def test_passes_without_noise_end_the_search():
    got = tune(lambda nu, k: 3.0 * nu**-0.5, 0.5, nu_max=100, seed=0)
    assert (got.nu, got.rounds) == (36, 2)


def record(cases=40, evaluations=60, truth=24, seed=0):
    """R = c_i χ / √ν and Z alike at the true ν, c_i the case's own scale."""
    rng = np.random.default_rng(seed)
    nu = np.concatenate([np.rint(np.geomspace(1, 200, 10)), rng.integers(18, 32, evaluations - 10)])
    own = np.exp(0.3 * rng.standard_normal(cases))
    scales = own * np.sqrt(rng.chisquare(20, (evaluations, cases)) / 20 / nu[:, None])
    return nu, scales, own * np.sqrt(rng.chisquare(20, cases) / 20 / truth)


@pytest.mark.parametrize("reading", ["scale", "per_example"])
@pytest.mark.parametrize("zeros", [False, True])
def test_refits_are_those_of_a_loop(reading, zeros):
    nu, scales, _ = record(cases=9)
    if zeros:
        scales[3, 2] = scales[20] = 0.0
    weights = resample(9, 2, 25, 0)
    still = SimpleNamespace(chisquare=lambda freedom: freedom, standard_normal=np.zeros)  # the posterior's centre
    got = tuner._refit(np.log(nu), scales, weights, reading, still)
    for b, row in enumerate(weights.astype(int)):
        picked = np.repeat(scales, row, axis=1)
        x, y = (nu, picked.mean(1)) if reading == "scale" else (np.repeat(nu, picked.shape[1]), picked.ravel())
        line = fit(x[y > 0], y[y > 0])
        assert (got.slope[b], got.intercept[b], got.sigma[b]) == pytest.approx((line.slope, line.intercept, line.sigma), rel=1e-9)


def test_refit_draws_have_the_posteriors_spread():
    nu, scales, _ = record(cases=9)
    weights = np.ones((40_000, 9))
    got = tuner._refit(np.log(nu), scales, weights, "scale", np.random.default_rng(0))
    own = fit(nu, scales.mean(1)).draw(40_000, np.random.default_rng(1))
    for one, other in zip(got, own, strict=True):  # a standard deviation of 40 000 draws has an error near 0.4 %
        assert one.std() == pytest.approx(other.std(), rel=0.03)
        assert one.mean() == pytest.approx(other.mean(), abs=5 * other.std() / 200)


@pytest.mark.parametrize("reading", ["scale", "per_example"])
def test_interval_is_deterministic_and_holds_the_estimate(reading):
    nu, scales, residual = record()
    got = interval(nu, scales, residual, seed=4, nu_max=200, reading=reading)
    again = interval(nu, scales, residual, seed=4, nu_max=200, reading=reading)
    assert (got.low, got.high) == (again.low, again.high)
    np.testing.assert_array_equal(got.replicates, again.replicates)
    assert not np.array_equal(got.replicates, interval(nu, scales, residual, seed=5, nu_max=200, reading=reading).replicates)
    assert got.replicates.shape == (1000,)
    assert got.low < np.median(got.replicates) < got.high
    half = (np.log(got.high) - np.log(got.low)) / 2
    percentile = (np.log(np.quantile(got.replicates, 0.975)) - np.log(np.quantile(got.replicates, 0.025))) / 2
    assert half > percentile
    wide = interval(nu, scales, residual, blocks=10, seed=4, nu_max=200, reading=reading)
    assert wide.high / wide.low > got.high / got.low  # four blocks: t(3) instead of about t(39)


@pytest.mark.parametrize("reading", ["scale", "per_example"])
@pytest.mark.parametrize(("cases", "blocks"), [(6, 2), (8, 3), (40, 10), (40, 1)])
def test_the_interval_is_students(reading, cases, blocks):
    """Over B = cases / blocks: t(B − 1) · √(B/(B − 1)) standard deviations of ln ν on both sides, rounded outward.

    At B = 3 the normal's 1.96 in place of t would make it 2.2 times too narrow, percentiles of the replicates 2.7 times.
    """
    nu, scales, residual = record(cases=cases)
    got = interval(nu, scales, residual, blocks=blocks, seed=4, nu_max=10**6, reading=reading)
    points = (nu, scales.mean(1)) if reading == "scale" else (np.repeat(nu, cases), scales.ravel())
    middle = np.log(fit(*points).optimum(residual.mean()))
    effective = cases / blocks
    half = stats.t(effective - 1).ppf(0.975) * np.log(got.replicates).std() * np.sqrt(effective / (effective - 1))
    assert (got.low, got.high) == (max(1, np.floor(np.exp(middle - half))), min(10**6, np.ceil(np.exp(middle + half))))


def test_interval_stays_inside_the_range():
    nu, scales, residual = record()
    got = interval(nu, scales, residual / 10, seed=0, nu_max=200)
    assert (got.low, got.high) == (200, 200)
    got = interval(nu, scales, residual * 10, seed=0, nu_max=200)
    assert (got.low, got.high) == (1, 1)
    rising = interval(nu, scales[::-1] * nu[:, None], residual, seed=0, nu_max=200)
    assert (rising.low, rising.high) == (1, 200)


def test_interval_refusals():
    nu, scales, residual = record(cases=6)
    with pytest.raises(CalibrationError, match="1 cases"):
        interval(nu, scales[:, :1], residual[:1], seed=0, nu_max=200)
    with pytest.raises(CalibrationError, match="at least two blocks"):
        interval(nu, scales, residual, blocks=4, seed=0, nu_max=200)
    with pytest.raises(CalibrationError, match="residuals"):
        interval(nu, scales, np.zeros(6), seed=0, nu_max=200)
    scales[4, 1] = np.nan
    with pytest.raises(CalibrationError, match=f"ν = {int(nu[4])}"):
        interval(nu, scales, residual, seed=0, nu_max=200)
    with pytest.raises(ValueError, match="evaluation, case"):
        interval(nu, scales[:, :5], residual, seed=0, nu_max=200)


def test_interval_is_fast():
    nu, scales, residual = record(cases=100, evaluations=300)
    interval(nu, scales, residual, seed=0, nu_max=200)  # the first call imports the block length's package
    began = time.perf_counter()
    interval(nu, scales, residual, seed=0, nu_max=200)
    assert time.perf_counter() - began < 0.8  # 0.02 s on one core; the rest is for a busy machine


def test_fit_is_the_last_one():
    model = Lognormal()
    got = tune(model, model.target(20), nu_max=1000, seed=3)
    own = fit([e.nu for e in got.evaluations], [e.scale[0] for e in got.evaluations])
    assert isinstance(got.fit, LogLinear)
    assert got.fit == own
    assert got.nu == round(own.optimum(model.target(20)))
