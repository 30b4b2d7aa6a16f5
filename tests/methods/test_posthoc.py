"""What each post-hoc method is for: known faults mended on fresh data, and the conformal guarantee at any number of cases."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.errors import CalibrationError, EngineError, SpecError
from engine.kernels.area import region_weights
from engine.kernels.quantiles import perfect_coverage
from engine.methods import _pool
from engine.methods.conformal import LEVELS, Conformal, needed
from engine.methods.isotonic import Isotonic
from engine.methods.temperature_variance import BOUNDS, TemperatureVariance
from engine.runs.accumulate import Accumulator, finalise
from engine.runs.plan import make_plan
from engine.runs.posthoc import after, fit_state, load_state, save_state, settle
from engine.runs.score import score
from engine.types import EnsembleView

ONE = np.ones(1)
LAT, LON = np.linspace(75, -75, 6), np.arange(0.0, 360.0, 45.0)
CONFORMAL, ISOTONIC, SPREAD = Conformal(), Isotonic(), TemperatureVariance()


def exact(members, n, seed, spread=1.0):
    """n independent scalar cases; members and observation from one law, then their spread about their own mean times `spread`."""
    rng = np.random.default_rng(seed)
    centre, scale = 3 * rng.standard_normal(n), np.exp(0.3 * rng.standard_normal(n))
    x = centre + scale * rng.standard_normal((members, n))
    return x.mean(0) + spread * (x - x.mean(0)), centre + scale * rng.standard_normal(n)


# --- spread scaling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [5, 20])
@pytest.mark.parametrize("inflation", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("rule", ["coverage", "w1_pit", "nll"])
def test_every_rule_undoes_a_known_inflation(rule, inflation, members):
    params = SPREAD.Params(rule=rule)
    state = fit_state(SPREAD, *exact(members, 20_000, 1, inflation), ONE, params)
    # 20,000 cases: four standard errors of T are 3 % by coverage and w1; 1/s² of five members has no variance, so nll is noisier
    assert state["temperature_variance"] == pytest.approx(1 / inflation, rel=0.1 if rule == "nll" and members == 5 else 0.03)
    assert not state["at_bound"]
    x, y = exact(members, 20_000, 2, inflation)
    view = after(SPREAD, params, state, x, y, ONE)
    assert score("coverage_95", view.members, y) == pytest.approx(perfect_coverage(members, 95), abs=0.03)
    np.testing.assert_allclose(view.mean, x.mean(0), atol=1e-12)


def test_the_plain_likelihood_widens_a_perfect_ensemble_and_ours_does_not():
    state = fit_state(SPREAD, *exact(10, 40_000, 3), ONE, SPREAD.Params(rule="nll"))
    assert state["plain"] == pytest.approx(np.sqrt(11 * 9 / (10 * 7)), rel=0.03)  # 1.19: what (M + 1)(M − 1)/(M (M − 3)) says
    assert state["temperature_variance"] == pytest.approx(1, rel=0.03)


def test_plain_likelihood_is_the_minimum_of_the_score():
    x, y = exact(12, 3000, 4, 0.4)
    plain = float(fit_state(SPREAD, x, y, ONE, SPREAD.Params(rule="nll"))["plain"])
    mean, variance = x.mean(0), x.var(0, ddof=1)

    def nll(t):
        return np.mean(0.5 * np.log(t * t * variance) + (y - mean) ** 2 / (2 * t * t * variance))

    assert nll(plain) < min(nll(plain * 1.01), nll(plain / 1.01))


def test_w1_rule_finds_no_worse_than_a_fine_grid():
    x, y = exact(9, 500, 5, 0.5)
    state = fit_state(SPREAD, x, y, ONE, SPREAD.Params(rule="w1_pit"))
    grid = [score("w1_pit", x.mean(0) + t * (x - x.mean(0)), y) for t in np.geomspace(1, 4, 120)]
    assert state["reached"] <= min(grid) + 2e-3  # a step of the grid is 1.2 % of T
    assert state["before"] == pytest.approx(score("w1_pit", x, y), abs=1e-12)


def test_spread_without_bound_stops_at_the_bound_and_says_so():
    x, y = exact(8, 400, 6, 1e-4)
    for rule in ("coverage", "w1_pit", "nll"):
        state = fit_state(SPREAD, x, y, ONE, SPREAD.Params(rule=rule))
        assert state["at_bound"]
        assert state["temperature_variance"] == pytest.approx(BOUNDS[1])
        assert "stopped at a bound" in SPREAD.report(state, SPREAD.Params(rule=rule))


@pytest.mark.parametrize("rule", ["coverage", "w1_pit", "nll"])
def test_members_that_agree_are_refused(rule):
    x, y = exact(8, 50, 7)
    with pytest.raises(CalibrationError, match="agree everywhere"):
        fit_state(SPREAD, np.repeat(x[:1], 8, axis=0), y, ONE, SPREAD.Params(rule=rule))
    x[:, 3] = x[0, 3]
    if rule == "nll":
        with pytest.raises(CalibrationError, match="Use the rule coverage"):
            fit_state(SPREAD, x, y, ONE, SPREAD.Params(rule=rule))
    else:
        assert fit_state(SPREAD, x, y, ONE, SPREAD.Params(rule=rule))["temperature_variance"] > 0


# --- isotonic ---------------------------------------------------------------------------------------------------------


def distorted(members, n, seed, fault):
    rng = np.random.default_rng(seed)
    centre = 3 * rng.standard_normal(n)
    x, y = rng.standard_normal((members, n)), rng.standard_normal(n)
    faults = {
        "narrow": (0.3 * x, y),
        "wide": (2.5 * x, y),
        "biased": (x + 0.8, y),
        "skewed": (x, np.exp(0.8 * y) - 1.3),
        "narrow and biased": (0.5 * x - 1, y),
    }
    return tuple(part + centre for part in faults[fault])


@pytest.mark.parametrize("fault", ["narrow", "wide", "biased", "skewed", "narrow and biased"])
def test_isotonic_mends_a_known_fault_on_fresh_data(fault):
    n, floor = 4000, 0.3133 / np.sqrt(4000)
    state = fit_state(ISOTONIC, *distorted(20, n, 1, fault), ONE, ISOTONIC.Params())
    x, y = distorted(20, n, 2, fault)
    view = after(ISOTONIC, ISOTONIC.Params(), state, x, y, ONE)
    before, now = score("w1_pit", x, y), score("w1_pit", view.members, y)
    assert before > 0.05
    # noise of two records, √2 floors, at three standard errors of w1 (0.45 of its mean); 0.004 for the shape within a rank
    assert now < 2.4 * np.sqrt(2) * floor + 0.004
    assert score("coverage_95", view.members, y) == pytest.approx(perfect_coverage(20, 95), abs=0.03)


def test_isotonic_leaves_a_perfect_ensemble_nearly_alone():
    state = fit_state(ISOTONIC, *exact(20, 20_000, 1), ONE, ISOTONIC.Params())
    np.testing.assert_allclose(state["frequency"], state["level"], atol=0.015)  # four standard errors of a frequency
    x, y = exact(20, 2000, 2)
    assert score("crps_fair", after(ISOTONIC, ISOTONIC.Params(), state, x, y, ONE).members, y) == pytest.approx(
        score("crps_fair", x, y), rel=0.01
    )


def test_frequency_is_scikit_learns_isotonic_regression():
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 9, (7, 300)).astype(float), rng.integers(-2, 11, 300).astype(float)  # with ties
    state = fit_state(ISOTONIC, x, y, ONE, ISOTONIC.Params())
    below, equal = (x < y).sum(0), (x == y).sum(0)
    low, high = below / 8, (below + equal + 1) / 8
    indicator = np.clip((state["level"][:, None] - low) / (high - low), 0, 1)  # E over V of PIT ≤ u
    stated = np.repeat(state["level"], 300)
    fitted = IsotonicRegression().fit(stated, indicator.ravel()).predict(state["level"])
    np.testing.assert_allclose(state["frequency"], fitted, atol=1e-6)  # scikit-learn works in steps of about that
    assert np.abs(state["frequency"] - state["level"]).max() > 0.05


@pytest.mark.parametrize("fault", ["narrow", "wide", "narrow and biased"])
def test_isotonic_keeps_the_order_of_members_and_with_it_what_hangs_together(fault):
    x, y = distorted(12, 800, 4, fault)
    state = fit_state(ISOTONIC, x, y, ONE, ISOTONIC.Params())
    new = ISOTONIC.apply(x, state, ISOTONIC.Params(), ONE)
    np.testing.assert_array_equal(np.argsort(new, axis=0), np.argsort(x, axis=0))
    assert np.abs(new - x).mean() > 0.1


def test_isotonic_refuses_another_number_of_members_and_too_few_values():
    state = fit_state(ISOTONIC, *exact(12, 100, 1), ONE, ISOTONIC.Params())
    with pytest.raises(CalibrationError, match="found 6 members; expected 12"):
        ISOTONIC.apply(exact(6, 3, 1)[0], state, ISOTONIC.Params(), ONE)
    with pytest.raises(CalibrationError, match="found 12 valid values; expected at least 13"):
        fit_state(ISOTONIC, *exact(12, 12, 1), ONE, ISOTONIC.Params())


# --- conformal --------------------------------------------------------------------------------------------------------


def fields(members, n, seed, weights):
    """Cases whose points share most of their error: 4,800 values say hardly more than 100."""
    rng = np.random.default_rng(seed)
    space = weights.shape[1:]
    size = np.exp(0.5 * rng.standard_normal(n)).reshape(n, *[1] * len(space))  # some cases are worse than others
    error = size * (rng.standard_normal(size.shape) + 0.2 * rng.standard_normal((n, *space)))
    return 0.4 * rng.standard_normal((members, n, *space)), error


def covered(view, weights):
    """Share of each level, over cases and area of the first region."""
    sums = Accumulator(tuple(f"coverage_{level}" for level in LEVELS), weights[:1], len(view.members), grid=False)
    sums.add(view, range(len(view.observed)))
    return np.array([sums.result().statistics[f"coverage_{level}"][:, 0].mean() for level in LEVELS])


@pytest.mark.parametrize("given", [{}, {"kind": "split"}, {"kind": "split", "normalised": True}])
@pytest.mark.parametrize("space", ["scalar", "field"])
def test_conformal_covers_at_least_nominally_in_a_thousand_repetitions(space, given):
    cases, fresh, params = 19, 10, CONFORMAL.Params(**given)
    weights = region_weights(LAT[::2], LON[::2], {"globe": (-90, 90, -180, 180)}) if space == "field" else ONE
    held, naive = [], []
    for seed in range(1000):
        x, y = fields(6, cases + fresh, seed, weights)
        state = fit_state(CONFORMAL, x[:, :cases], y[:cases], weights, params)
        view = after(CONFORMAL, params, state, x[:, cases:], y[cases:], weights)
        held.append(covered(view, weights))
        error = np.abs(y - x.mean(0))  # gridpoints taken for exchangeable units, as one must not
        naive.append((error[cases:] <= np.quantile(error[:cases], 0.95)).mean())
    mean, noise = np.mean(held, axis=0), np.std(held, axis=0) / np.sqrt(1000)
    nominal = np.array(LEVELS) / 100
    assert (mean >= nominal - 3 * noise).all()
    # and no more than it must: 20 × level is whole, so scalars cover exactly nominally; fields by up to a case's mass above it
    assert (mean <= nominal + (space == "field") / (cases + 1) + 3 * noise).all()
    assert np.mean(naive) < 0.95 - 3 * np.std(naive) / np.sqrt(1000), "the data would not tell cases from gridpoints"


def test_split_is_the_textbook_on_scalars():
    x, y = exact(10, 57, 3, 0.5)
    state = fit_state(CONFORMAL, x, y, ONE, CONFORMAL.Params(kind="split"))
    residual = np.sort(np.abs(y - x.mean(0)))
    for level, margin in zip(LEVELS, state["margin"][:, 0], strict=True):
        assert margin == residual[int(np.ceil(58 * level / 100 - 1e-9)) - 1]


@pytest.mark.parametrize("holes", [False, True])
def test_margins_are_the_smallest_that_the_definition_allows(holes):
    weights = region_weights(LAT, LON, {"globe": (-90, 90, -180, 180)})
    x, y = fields(5, 25, 4, weights)
    if holes:
        y[np.random.default_rng(0).random(y.shape) < 0.3] = np.nan
        y[7] = np.nan
    state = fit_state(CONFORMAL, x, y, weights, CONFORMAL.Params())
    n = 24 if holes else 25
    assert state["cases"].tolist() == [n]
    for level, margin in zip(LEVELS, state["margin"][:, 0], strict=True):
        low, high = np.quantile(x, [(1 - level / 100) / 2, (1 + level / 100) / 2], axis=0)
        values = np.maximum(low - y, y - high)

        def mass(t, values=values):
            share = [weights[0][(v <= t)].sum() / weights[0][~np.isnan(v)].sum() for v in values if not np.isnan(v).all()]
            return sum(share) / (n + 1)

        assert mass(margin + 1e-12) >= level / 100 - 1e-9 > mass(margin - 1e-9)


def test_levels_with_too_few_cases_are_left_out_and_have_no_score():
    assert [needed(level) for level in LEVELS] == [1, 4, 9, 19]
    x, y = exact(8, 18, 5)
    state = fit_state(CONFORMAL, x, y, ONE, CONFORMAL.Params())
    assert np.isfinite(state["margin"][:, 0]).tolist() == [True, True, True, False]
    assert "found 18 calibration cases, expected at least 19 for 95 %" in CONFORMAL.report(state, CONFORMAL.Params())
    names = ("coverage_90", "coverage_95", "width_95", "coverage_rank_95")
    sums = Accumulator(names, ONE[None], 8, grid=False)
    sums.add(after(CONFORMAL, CONFORMAL.Params(), state, x[..., None], y[:, None], ONE[None]), range(18))
    out = finalise(sums.result(), names, members=8, replicates=20, block=1)
    assert np.isnan([out["coverage_95"][0], out["width_95"][0]]).all()
    assert np.isfinite([out["coverage_90"][0], out["coverage_rank_95"][0]]).all()
    assert np.isfinite(fit_state(CONFORMAL, *exact(8, 19, 5), ONE, CONFORMAL.Params())["margin"]).all()
    with pytest.raises(CalibrationError, match="found 0 calibration cases"):
        fit_state(CONFORMAL, x, np.full(18, np.nan), ONE, CONFORMAL.Params())


def test_each_region_has_its_own_margin_and_the_guarantee_with_it():
    weights = region_weights(LAT, LON)  # globe, tropics, two extratropics, Europe
    params, held = CONFORMAL.Params(per="region", kind="split"), []
    size = np.where(np.abs(LAT) < 20, 0.2, np.where(LAT > 0, 1.0, 3.0))[:, None]
    for seed in range(300):
        x, y = fields(5, 30, seed, weights)
        y = y * size
        state = fit_state(CONFORMAL, x[:, :25], y[:25], weights, params)
        view = after(CONFORMAL, params, state, x[:, 25:], y[25:], weights)
        sums = Accumulator(("coverage_90",), weights, 5, grid=False)
        sums.add(view, range(5))
        held.append(sums.result().statistics["coverage_90"].mean(0))
    assert state["part"][:, 0].tolist() == [1, 1, 0, 0, 2, 2]
    assert state["margin"].shape == (4, 3)
    assert state["margin"][3, 0] < state["margin"][3, 1] < state["margin"][3, 2]
    mean, noise = np.mean(held, axis=0), np.std(held, axis=0) / np.sqrt(300)
    assert (mean >= 0.9 - 3 * noise)[:4].all()
    assert (mean <= 0.9 + 1 / 26 + 3 * noise)[1:4].all()


def test_parts_with_points_of_no_region_and_of_no_area():
    pole = np.array([90.0, 30.0, -30.0, -90.0])
    boxes = {"globe": (-90, 90, -180, 180), "north": (10, 90, -180, 180)}
    weights = region_weights(pole, LON, boxes)
    x, y = fields(5, 20, 1, weights)
    state = fit_state(CONFORMAL, x, y, weights, CONFORMAL.Params(per="region", kind="split"))
    assert state["part"][:, 0].tolist() == [-1, 0, 1, -1]
    low, high = CONFORMAL.intervals(x, state, CONFORMAL.Params(per="region", kind="split"), weights)[90]
    half = ((high - low) / 2)[0, :, 0]
    np.testing.assert_allclose(half, state["margin"][2][[0, 0, 1, 0]] if half[1] > half[2] else state["margin"][2][[1, 0, 1, 1]])


@pytest.mark.parametrize("given", [{}, {"kind": "split"}, {"kind": "split", "normalised": True}])
def test_closed_intervals_hold_the_scores_that_made_their_margin(given):
    """One ensemble for all cases and few values that are observed: a whole share of the cases lies exactly on an end."""
    params = CONFORMAL.Params(**given)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        x, y = np.repeat(rng.normal(0, 1, (6, 1)), 100, axis=1), rng.choice(rng.normal(0, 3, 6), 100)  # about 0, where differences round
        state = fit_state(CONFORMAL, x, y, ONE, params)
        share = covered(after(CONFORMAL, params, state, x[..., None], y[:, None], ONE[None]), ONE[None])
        assert (share >= np.array(LEVELS) / 100).all()


def test_a_negative_margin_never_turns_an_interval_over():
    x, y = exact(20, 200, 7, 20.0)
    params = CONFORMAL.Params()
    state = fit_state(CONFORMAL, x, y, ONE, params)
    assert (state["margin"] < 0).all()
    narrow = x.mean(0) + 1e-3 * (x - x.mean(0))
    for low, high in CONFORMAL.intervals(narrow, state, params, ONE).values():
        np.testing.assert_allclose(low, high, atol=1e-9)
        assert (low <= high).all()


def test_conformal_refuses_another_number_of_members():
    state = fit_state(CONFORMAL, *exact(8, 30, 8), ONE, CONFORMAL.Params())
    with pytest.raises(CalibrationError, match="found 4 members; expected 8"):
        after(CONFORMAL, CONFORMAL.Params(), state, *exact(4, 3, 8), ONE)


def test_sd_that_is_zero_makes_no_level_of_normalised_split_but_those_that_need_it():
    x, y = exact(8, 40, 9)
    x[:, :3] = x[0, :3]
    params = CONFORMAL.Params(kind="split", normalised=True)
    state = fit_state(CONFORMAL, x, y, ONE, params)
    assert np.isfinite(state["margin"][:, 0]).tolist() == [True, True, True, False]  # 3 of 40 cases are infinitely wrong
    assert "95 %" in CONFORMAL.report(state, params).split("Left out")[1]


# --- what all share ---------------------------------------------------------------------------------------------------


def test_large_splits_are_thinned_evenly_and_teach_the_same(monkeypatch):
    weights = region_weights(LAT, LON, {"globe": (-90, 90, -180, 180)})
    x, y = fields(6, 300, 10, weights)
    full = {e.key: fit_state(e, x, y, weights, e.Params()) for e in (CONFORMAL, ISOTONIC, SPREAD)}
    monkeypatch.setattr(_pool, "LIMIT", 300 * 48 // 2)
    seen, held = np.zeros(48, dtype=int), 0
    where = np.broadcast_to(np.arange(48.0).reshape(6, 8), y.shape)
    for view, area in _pool.pooled(EnsembleView(x, where), weights):
        assert view.members.shape == (6, *view.observed.shape) and area.shape == (1, view.observed.shape[1])
        assert view.members.size <= max(_pool.LIMIT, 6 * view.observed.shape[1])
        held += view.observed.size
        seen += np.bincount(view.observed.ravel().astype(int), minlength=48)
    assert held <= _pool.LIMIT
    assert (seen == 150).all()  # every second, and each in its turn
    thin = {e.key: fit_state(e, x, y, weights, e.Params()) for e in (CONFORMAL, ISOTONIC, SPREAD)}
    assert thin["conformal"]["cases"] == 300
    np.testing.assert_allclose(thin["conformal"]["margin"], full["conformal"]["margin"], rtol=0.05)
    np.testing.assert_allclose(thin["isotonic"]["frequency"], full["isotonic"]["frequency"], atol=0.02)
    np.testing.assert_allclose(
        thin["temperature_variance"]["temperature_variance"], full["temperature_variance"]["temperature_variance"], rtol=0.05
    )


@pytest.mark.parametrize("entry", [CONFORMAL, ISOTONIC, SPREAD], ids=lambda e: e.key)
def test_what_is_learned_is_learned_on_the_first_region(entry):
    weights = region_weights(LAT, LON, {"tropics": (-20, 20, -180, 180), "globe": (-90, 90, -180, 180)})
    x, y = fields(6, 40, 11, weights)
    state = fit_state(entry, x, y, weights, entry.Params())
    y[:, :2] += 50
    for name, value in fit_state(entry, x, y, weights, entry.Params()).items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)


def test_names_and_parameters_are_settled_or_refused():
    entry, params = settle("conformal", {"kind": "split"})
    assert (entry.key, params.kind) == ("conformal", "split")
    for key, given in [("stochastic_attention", {}), ("nothing", {}), ("conformal", {"kind": "best"}), ("conformal", {"normalised": True})]:
        with pytest.raises(SpecError) as refusal:
            settle(key, given)
        assert refusal.value.expected and refusal.value.remedy
    with pytest.raises(SpecError, match="--posthoc isotonic"):
        make_plan(SimpleNamespace(method="isotonic"))


def test_a_state_that_is_damaged_or_of_something_else_is_learned_again(tmp_path):
    path, params = tmp_path / "state.npz", CONFORMAL.Params()
    save_state(path, CONFORMAL, params, fit_state(CONFORMAL, *exact(8, 30, 8), ONE, params))
    assert load_state(path, CONFORMAL, params) is not None
    assert load_state(path, CONFORMAL, CONFORMAL.Params(kind="split")) is None
    assert load_state(path, ISOTONIC, ISOTONIC.Params()) is None
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"rubbish", whole[:200] + b"\0" * 50 + whole[250:]):
        path.write_bytes(damaged)
        assert load_state(path, CONFORMAL, params) is None
    np.save(tmp_path / "state.npy", np.zeros(3))
    assert load_state(tmp_path / "state.npy", CONFORMAL, params) is None
    with pytest.raises(ValueError, match="pickle"):
        save_state(path, CONFORMAL, params, {"bad": np.array([{}], dtype=object)})
    assert not list(tmp_path.glob("*.part"))


def test_without_a_method_the_view_is_the_ensemble():
    x, y = exact(8, 30, 8)
    view = after(None, None, {}, x, y, ONE)
    assert view.members is x and not view.intervals
    assert issubclass(CalibrationError, EngineError)
