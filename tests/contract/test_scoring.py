"""One contract for every score of the catalogue: what it declares, and what merging, perfection and constants must give."""

import subprocess
import sys

import numpy as np
import pytest

from engine.kernels.area import region_weights
from engine.labelled import ClassScore, ClassView
from engine.registry import entries
from engine.types import EnsembleView, Score

SCORES = {key: score for key, score in entries("scoring").items() if isinstance(score, Score)}
LAT, LON = np.linspace(75, -75, 6), np.arange(0.0, 360.0, 45.0)
WEIGHTS = region_weights(LAT, LON, {"globe": (-90, 90, -180, 180), "europe": (35, 75, -50, 50)})
HEADLINE = {"w1_pit", "coverage_95", "width_95", "crps_fair", "rmse", "acc", "spread_skill_ratio"}


def view(cases=6, members=9, holes=False, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(cases, 6, 8))
    x = (centre + scale * rng.normal(size=(members, cases, 6, 8))).astype(np.float32)
    y = (centre + rng.normal(size=(cases, 6, 8))).astype(np.float32)
    if holes:
        x[rng.random(x.shape) < 0.1] = np.nan
        y[rng.random(y.shape) < 0.2] = np.nan
    return EnsembleView(
        x, y, climatology=np.zeros((cases, 6, 8)), reference=np.nan_to_num(x[0]), thresholds=(-0.5, 0.5), spread_edges=(0.8, 1.0)
    )


def part(whole, cases):
    return EnsembleView(
        whole.members[:, cases],
        whole.observed[cases],
        whole.climatology[cases],
        whole.reference[cases],
        whole.thresholds,
        whole.spread_edges,
    )


def parts(value):
    return value if isinstance(value, dict) else {"": value}


def test_headline():
    assert {k for k, s in SCORES.items() if s.headline} == HEADLINE


def test_importing_the_family_stays_light():
    heavy = "{'torch', 'sklearn', 'skopt', 'arch', 'streamlit'}"
    code = f"import sys; from engine.registry import entries; entries('scoring'); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("key", SCORES)
def test_declares_what_axes_and_tables_are_written_from(key):
    score = SCORES[key]
    assert score.key == key
    assert score.title
    assert score.symbol
    assert score.reference
    assert score.unit
    assert score.better in ("lower", "higher", "nominal")
    assert score.range[0] < score.range[1]
    assert score.profile or score.range[0] <= score.perfect <= score.range[1] or score.perfect == float("-inf")
    assert score.needs <= {"climatology", "reference", "thresholds"}
    assert type(score).__doc__
    assert type(score).statistics.__doc__
    assert type(score).combine.__doc__


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("key", SCORES)
def test_statistics_by_case_and_region_whatever_the_batch(key, holes):
    score, whole = SCORES[key], view(holes=holes)
    together = score.statistics(whole, WEIGHTS)
    for name, values in together.items():
        assert values.shape[:2] == (6, 2), name
        assert values.dtype == np.float64
        # a member with a hole anywhere has no place in a multivariate score: with holes everywhere none may be left
        assert np.isfinite(values).all() or (holes and key in ("energy_score_fair", "variogram_score"))
        shards = [score.statistics(part(whole, slice(a, b)), WEIGHTS)[name] for a, b in ((0, 1), (1, 4), (4, 6))]
        np.testing.assert_array_equal(np.concatenate(shards), values, err_msg=name)  # bit for bit


@pytest.mark.parametrize("key", SCORES)
def test_equal_names_mean_equal_statistics(key):
    whole = view(holes=True)
    mine = SCORES[key].statistics(whole, WEIGHTS)
    for other in SCORES.values():
        theirs = other.statistics(view(holes=True), WEIGHTS)
        for name in mine.keys() & theirs.keys():
            np.testing.assert_array_equal(mine[name], theirs[name], err_msg=f"{name} of {key} and {other.key}")


@pytest.mark.parametrize("key", SCORES)
def test_combine_takes_any_leading_shape_and_stays_in_range(key):
    score = SCORES[key]
    stats = score.statistics(view(), WEIGHTS)
    stacked = score.combine({n: np.stack([s, s]) for n, s in stats.items()})
    for name, values in parts(score.combine(stats)).items():
        np.testing.assert_array_equal(parts(stacked)[name][1], values)
        if score.profile:
            assert values.shape[:2] == (6, 2)
            continue
        assert values.shape == (6, 2)
        slack = 0.2 if score.estimator.startswith("fair") else 1e-12  # a fair score is below zero by chance
        assert values.min() >= score.range[0] - slack
        assert values.max() <= score.range[1] + 1e-12


@pytest.mark.parametrize("key", SCORES)
def test_region_without_a_valid_point_is_nan(key):
    whole = view()
    y = whole.observed.copy()
    y[:, :2] = np.nan
    empty = EnsembleView(whole.members, y, whole.climatology, whole.reference, whole.thresholds, whole.spread_edges)
    north = region_weights(LAT, LON, {"north": (40, 90, -180, 180), "globe": (-90, 90, -180, 180)})
    for values in SCORES[key].statistics(empty, north).values():
        assert np.isnan(values[:, 0]).all()
        assert np.isfinite(values[:, 1]).all()


PERFECT_WHEN_EVERY_MEMBER_IS_RIGHT = (
    "crps_fair", "crps_ecdf", "rmse", "rmse_pooled", "rmse_case_mean", "bias", "acc", "acc_pooled", "acc_case_mean",
    "energy_score_fair", "variogram_score", "brier", "mean_shift_rmse", "width_50", "width_80", "width_90", "width_95",
)  # fmt: skip


@pytest.mark.parametrize("key", PERFECT_WHEN_EVERY_MEMBER_IS_RIGHT)
def test_perfect_forecast_gets_the_perfect_value(key):
    rng = np.random.default_rng(1)
    y = rng.normal(size=(4, 6, 8))
    right = EnsembleView(np.stack([y] * 5), y, climatology=np.zeros((4, 6, 8)), reference=y, thresholds=(0.0,))
    score = SCORES[key]
    value = score.combine({n: s.mean(0) for n, s in score.statistics(right, WEIGHTS).items()})
    np.testing.assert_allclose(value, score.perfect, atol=1e-12)


CONSTANT = {"rmse": 3.0, "rmse_pooled": 3.0, "rmse_case_mean": 3.0, "bias": 3.0, "crps_fair": 3.0, "crps_ecdf": 3.0, "mean_shift_rmse": 2.0}


@pytest.mark.parametrize("key", CONSTANT)
@pytest.mark.parametrize("holes", [False, True])
def test_constant_error_scores_its_constant(key, holes):
    y = np.random.default_rng(2).normal(size=(3, 6, 8))
    x = np.stack([y + 3] * 4)
    if holes:
        y[:, 2:4, ::3] = np.nan
    score = SCORES[key]
    value = score.combine({n: s.mean(0) for n, s in score.statistics(EnsembleView(x, y, reference=x[0] - 2), WEIGHTS).items()})
    np.testing.assert_allclose(value, CONSTANT[key], rtol=1e-12)


@pytest.mark.parametrize("key", [k for k in SCORES if k not in ("mean_shift_rmse", "variogram_score") and not SCORES[k].profile])
def test_tells_a_good_ensemble_from_a_bad_one(key):
    """A score that cannot tell them apart would pass every other test here."""
    score = SCORES[key]
    good, bad = view(40, 20), view(40, 20, scale=0.2)
    shifted = EnsembleView(bad.members + 1.5, bad.observed, bad.climatology, bad.reference, bad.thresholds, bad.spread_edges)
    first, second = (score.combine({n: s.mean(0) for n, s in score.statistics(v, WEIGHTS).items()}) for v in (good, shifted))
    if isinstance(first, dict):
        assert any(np.abs(first[k] - second[k]).min() > 0.02 for k in first)
        return
    if key.startswith("width"):
        assert (first > 2 * second).all()  # narrower, which is better at equal coverage only
    elif score.better == "nominal":
        assert (np.abs(first - score.perfect) < np.abs(second - score.perfect)).all()
    elif score.better == "lower":
        assert (first < second).all()
    else:
        assert (first > second).all()


CLASS_SCORES = {key: score for key, score in entries("scoring").items() if isinstance(score, ClassScore)}


def classified(cases=60, classes=4, seed=0, beyond=30, sharp=2.0):
    """Forecasts of some skill with ties, labels that some of them miss, and flatter forecasts of outside examples."""
    rng = np.random.default_rng(seed)
    logits = sharp * rng.normal(size=(cases, classes))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = (p.cumsum(-1) > rng.random(cases)[:, None]).argmax(-1)
    p[: cases // 4] = p[0]
    return ClassView(p, labels, outside=rng.dirichlet(np.full(classes, 5.0), beyond))


def weighted(view, weights, outside_weights):
    return ClassView(view.probabilities, view.labels, weights, view.outside, outside_weights)


def test_every_score_is_of_one_kind():
    assert SCORES.keys() | CLASS_SCORES.keys() == entries("scoring").keys()
    assert {k for k, s in CLASS_SCORES.items() if s.headline} == {"accuracy", "nll", "ece", "aurc"}


@pytest.mark.parametrize("key", CLASS_SCORES)
def test_class_score_declares_what_axes_and_tables_are_written_from(key):
    score = CLASS_SCORES[key]
    assert score.key == key
    assert score.title
    assert score.symbol
    assert score.reference
    assert score.unit
    assert score.better in ("lower", "higher", "nominal")
    assert score.range[0] < score.range[1]
    assert score.profile or score.better == "nominal" or score.range[0] <= score.perfect <= score.range[1]
    assert score.needs <= {"outside"}
    assert type(score).__doc__


@pytest.mark.parametrize("key", CLASS_SCORES)
def test_class_score_is_in_range_and_a_weight_is_a_repetition(key):
    score, looked_at = CLASS_SCORES[key], False
    for seed in range(5):
        view, rng = classified(seed=seed), np.random.default_rng(seed)
        weights, beyond = (rng.multinomial(n, np.full(n, 1 / n)) for n in (60, 30))
        outside = np.repeat(view.outside, beyond, 0)
        counted = score.value(weighted(view, weights.astype(float), beyond.astype(float)))
        written_out = score.value(ClassView(np.repeat(view.probabilities, weights, 0), np.repeat(view.labels, weights), outside=outside))
        for one, other in zip(*(v.values() if score.profile else [v] for v in (counted, written_out)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
        if not score.profile:
            whole = score.value(view)
            assert score.range[0] - 1e-12 <= whole <= score.range[1] + 1e-12
            looked_at |= whole != counted
    assert looked_at or score.profile


@pytest.mark.parametrize("key", CLASS_SCORES)
def test_order_of_cases_and_of_classes_does_not_show(key):
    score, view = CLASS_SCORES[key], classified()
    cases, classes = np.random.default_rng(3).permutation(60), np.array([2, 0, 3, 1])
    moved = ClassView(
        view.probabilities[cases][:, classes], np.argsort(classes)[view.labels[cases]], outside=view.outside[::-1][:, classes]
    )
    for one, other in zip(*(v.values() if score.profile else [v] for v in map(score.value, (view, moved))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


NO_PERFECT_VALUE = {"brier_unc", "brier_dsc", "auroc_failure", "fpr95_failure"}
"""A property of the labels; at most that property; defined only where something failed."""


@pytest.mark.parametrize("key", [k for k in CLASS_SCORES if k not in NO_PERFECT_VALUE and not CLASS_SCORES[k].profile])
def test_perfect_class_forecast_gets_the_perfect_value(key):
    labels = np.arange(40) % 4
    assert CLASS_SCORES[key].value(ClassView(np.eye(4)[labels], labels, outside=np.full((9, 4), 0.25))) == pytest.approx(
        CLASS_SCORES[key].perfect, abs=1e-12
    )


def test_perfect_discrimination_and_failure_detection():
    labels = np.arange(40) % 4
    right = ClassView(np.eye(4)[labels], labels)
    assert CLASS_SCORES["brier_dsc"].value(right) == pytest.approx(CLASS_SCORES["brier_unc"].value(right), abs=1e-12)
    assert CLASS_SCORES["brier_unc"].value(right) == pytest.approx(0.75, abs=1e-12)
    assert np.isnan(CLASS_SCORES["auroc_failure"].value(right))
    assert np.isnan(CLASS_SCORES["fpr95_failure"].value(right))
    unsure = np.where(np.arange(40)[:, None] < 10, 0.4 * np.eye(4)[(labels + 1) % 4] + 0.15, np.eye(4)[labels])
    assert CLASS_SCORES["auroc_failure"].value(ClassView(unsure, labels)) == 1.0
    assert CLASS_SCORES["fpr95_failure"].value(ClassView(unsure, labels)) == 0.0


@pytest.mark.parametrize("key", [k for k in CLASS_SCORES if CLASS_SCORES[k].needs])
def test_nothing_outside_is_nan(key):
    view = classified()
    assert np.isnan(CLASS_SCORES[key].value(ClassView(view.probabilities, view.labels)))


@pytest.mark.parametrize("key", [k for k in CLASS_SCORES if k != "brier_unc" and not CLASS_SCORES[k].profile])
def test_class_score_tells_a_good_forecast_from_a_bad_one(key):
    """Bad: the same forecasts for cases that they do not belong to, and more certain of what lies outside than of what does not."""
    score, good = CLASS_SCORES[key], classified(400, sharp=3.0)
    bad = ClassView(0.98 * np.roll(good.probabilities, 7, axis=0) + 0.005, good.labels, outside=np.eye(4)[np.arange(30) % 4] * 0.96 + 0.01)
    first, second = score.value(good), score.value(bad)
    assert first < second - 0.02 if score.better == "lower" else first > second + 0.02
