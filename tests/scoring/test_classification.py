"""Scores of class probabilities through the public functions: against packages, refusals, and bootstrap intervals."""

from types import SimpleNamespace

import numpy as np
import pytest
from netcal.metrics import ECE
from sklearn import metrics

from engine.errors import EngineError, ScoreError
from engine.kernels.corp import decompose
from engine.kernels.corp_classes import decompose_classes
from engine.labelled import ClassScore, ClassView
from engine.registry import entries
from engine.runs.accumulate import chosen
from engine.runs.classify import scores as module
from engine.runs.classify.scores import class_scores, differences, score_table
from engine.runs.plan import _scores as of_fields
from engine.runs.score import score

OUTSIDE = tuple(class_scores(outside=True))
INSIDE = tuple(class_scores())


def forecasts(cases=400, classes=4, seed=0, members=3, temperature=0.6):
    """Members' softmaxes `(member, case, class)`, too bold, and labels drawn from the law that they scatter about."""
    rng = np.random.default_rng(seed)
    truth = 1.5 * rng.normal(size=(cases, classes))
    p = np.exp(truth) / np.exp(truth).sum(-1, keepdims=True)
    labels = (p.cumsum(-1) > rng.random(cases)[:, None]).argmax(-1)
    logits = (truth + 0.5 * rng.normal(size=(members, cases, classes))) / temperature
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), labels


P, Y = forecasts()
MEAN = P.mean(0)
OUT = np.random.default_rng(9).dirichlet(np.ones(4), 150)
WEIGHTS = np.random.default_rng(8).integers(0, 4, 400)


def entropy(p):
    return -(p * np.log(p)).sum(-1)


OURS_AND_THEIRS = {
    "accuracy": lambda w: metrics.accuracy_score(Y, MEAN.argmax(-1), sample_weight=w),
    "mcc": lambda w: metrics.matthews_corrcoef(Y, MEAN.argmax(-1), sample_weight=w),
    "nll": lambda w: metrics.log_loss(Y, MEAN, sample_weight=w),
    "brier_multiclass": lambda w: metrics.brier_score_loss(Y, MEAN, sample_weight=w, scale_by_half=False),
    "ece": lambda w: ECE(15).measure(np.repeat(MEAN, w, 0), np.repeat(Y, w)),
    "auroc_failure": lambda w: metrics.roc_auc_score(MEAN.argmax(-1) == Y, MEAN.max(-1), sample_weight=w),
}


@pytest.mark.parametrize("key", OURS_AND_THEIRS)
def test_against_packages(key):
    assert score(key, P, Y) == pytest.approx(OURS_AND_THEIRS[key](np.ones(400, int)), rel=1e-10)
    assert score(key, MEAN, Y, weights=WEIGHTS) == pytest.approx(OURS_AND_THEIRS[key](WEIGHTS), rel=1e-10)


@pytest.mark.parametrize(("signal", "of"), [("max_softmax", lambda p: p.max(-1)), ("entropy", lambda p: -entropy(p))])
def test_detection_of_what_lies_outside(signal, of):
    truth, stated = np.r_[np.ones(400), np.zeros(150)], np.r_[of(MEAN), of(OUT)]
    fpr, tpr, _ = metrics.roc_curve(truth, stated, drop_intermediate=False)
    expected = {
        "auroc": metrics.roc_auc_score(truth, stated),
        "aupr": metrics.average_precision_score(truth, stated),
        "fpr95": fpr[tpr >= 0.95][0],
    }
    for measure, value in expected.items():
        assert score(f"{measure}_ood_{signal}", P, Y, outside=OUT) == pytest.approx(value, abs=1e-12)


def test_nll_is_of_the_mean_softmax_and_has_a_floor():
    members = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
    assert score("nll", members, [0]) == pytest.approx(np.log(2), rel=1e-12)
    assert score("nll", [[0.0, 1.0]], [0]) == pytest.approx(126 * np.log(2), rel=1e-12)
    assert score("nll", np.array([[0.0, 1.0]], dtype=np.float32), [1]) == 0


def test_ece_at_the_edges_by_hand():
    p = np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.4], [0.61, 0.39]])
    # bin (14/15, 1]: ½ right, stated 1; 0.6 lies on the edge 9/15 and in the bin below it, right; 0.61 in the bin above, wrong
    assert score("ece", p, [0, 1, 0, 1]) == pytest.approx((2 * 0.5 + 0.4 + 0.61) / 4, abs=1e-12)
    assert score("ece", p.astype(np.float32), [0, 1, 0, 1]) == pytest.approx((2 * 0.5 + 0.4 + 0.61) / 4, abs=1e-6)
    assert score("ece", p[None].astype(np.float32), [0, 1, 0, 1]) == score("ece", p.astype(np.float32), [0, 1, 0, 1])


def test_mcc_is_over_the_full_set_and_nan_without_two_classes():
    assert score("mcc", np.eye(3)[[0, 1, 2, 2]], [0, 1, 2, 2]) == pytest.approx(1)
    assert np.isnan(score("mcc", np.eye(3)[[0, 1, 2]], [1, 1, 1]))
    assert np.isnan(score("mcc", np.eye(3)[[1, 1, 1]], [0, 1, 2]))


@pytest.mark.parametrize("digits", [1, 16])
def test_corp_by_class_is_corp_of_each_class(digits):
    """Merging neighbours that no block divides changes nothing, with ties and with cases of no weight."""
    p, y = MEAN.round(digits), Y
    weights = np.random.default_rng(1).integers(0, 3, size=(5, 400)).astype(float)
    weights[4] = 0
    weights[4, :7] = 1
    found = decompose_classes(p, y, weights)
    for r in range(5):
        total = dict.fromkeys(("brier", "mcb", "dsc", "unc"), 0.0)
        for k in range(4):
            knots, at = np.unique(p[:, k], return_inverse=True)
            weight = np.bincount(at, weights[r], len(knots))
            parts = decompose(weight, np.bincount(at, weights[r] * (y == k), len(knots)), knots)
            total = {name: total[name] + float(parts[name]) for name in total}
        for name, value in total.items():
            assert found[name][r] == pytest.approx(value, abs=1e-12), name
        assert found["mcb"][r] - found["dsc"][r] + found["unc"][r] == pytest.approx(found["brier"][r], abs=1e-12)


def test_decomposition_adds_up_to_the_brier_score():
    mcb, dsc, unc, whole = (score(k, P, Y) for k in ("brier_mcb", "brier_dsc", "brier_unc", "brier_multiclass"))
    assert mcb - dsc + unc == pytest.approx(whole, abs=1e-12)
    frequency = np.bincount(Y) / 400
    assert unc == pytest.approx(1 - (frequency**2).sum(), abs=1e-12)
    calm, _ = forecasts(temperature=1.0)
    assert score("brier_mcb", calm, Y) < mcb  # the bold forecast is the less calibrated


TABLE = score_table(P, Y, [*INSIDE, *OUTSIDE], outside=OUT, replicates=60, seed=1)


def test_table_has_the_values_and_intervals_around_them():
    assert list(TABLE) == [*INSIDE, *OUTSIDE]
    for key, found in TABLE.items():
        assert found.value == pytest.approx(score(key, P, Y, outside=OUT), abs=1e-12), key
        assert found.low < found.value < found.high, key
        assert found.replicates.shape == (60,)


def test_replicates_are_the_scores_of_resampled_cases(monkeypatch):
    from engine.kernels.bootstrap import resample

    counts = resample(400, 1, 60, 1)
    for key in INSIDE:
        for r in (0, 59):
            again = score(key, P, Y, weights=counts[r])
            assert TABLE[key].replicates[r] == pytest.approx(again, rel=1e-10, abs=1e-13), key
    monkeypatch.setattr(module, "BLOCK", 7 * 550)
    parts = score_table(P, Y, [*INSIDE, *OUTSIDE], outside=OUT, replicates=60, seed=1)
    for key, found in parts.items():
        np.testing.assert_allclose(found.replicates, TABLE[key].replicates, rtol=1e-12, err_msg=key)


def test_outside_cases_are_resampled_on_their_own():
    """Were they drawn with the counts of the others, a set beside itself would never differ from chance."""
    beside = score_table(P, Y, ["auroc_ood_entropy"], outside=MEAN, replicates=60, seed=1)["auroc_ood_entropy"]
    assert beside.value == pytest.approx(0.5, abs=1e-12)
    assert beside.replicates.std() > 0.01  # √(2/(12·400)) = 0.02


def test_a_score_that_knows_one_weighting_at_a_time_is_served_too():
    class Count(ClassScore):
        """Weight of the cases of class 0."""

        key, title, symbol, range = "count", "Count", "n", (0.0, 1e9)

        def value(self, view: ClassView) -> float:
            """Their sum."""
            return float(view.w[view.labels == 0].sum())

    weights = np.array([[1.0] * 400, [2.0] * 400])
    view = module.class_view(P, Y)
    assert module._values(view, [Count()], weights, np.ones((2, 0)))["count"].tolist() == [(Y == 0).sum(), 2 * (Y == 0).sum()]


def test_paired_differences_are_sharper_than_what_two_intervals_say():
    calm, _ = forecasts(temperature=1.0)
    one, other = (score_table(p, Y, ("nll", "ece"), replicates=200, seed=3) for p in (P, calm))
    found = differences(one, other)
    assert list(found) == ["nll", "ece"]
    value, low, high = found["nll"]
    assert value == pytest.approx(one["nll"].value - other["nll"].value)
    assert 0 < low < value < high
    assert high - low < 0.7 * (one["nll"].high - one["nll"].low)
    assert differences(one, one)["nll"] == (0, 0, 0)
    with pytest.raises(ScoreError, match="same replicates"):
        differences(one, score_table(P, Y, ("nll",), replicates=10))


def test_intervals_cover():
    """A guarantee of its own: accuracy and NLL of a law that is known, 150 records."""
    truth, _ = forecasts(20_000, seed=77)
    hits = {"accuracy": 0, "nll": 0}
    rng = np.random.default_rng(5)
    p = truth.mean(0)
    labels = (p.cumsum(-1) > rng.random(20_000)[:, None]).argmax(-1)
    whole = {key: score(key, p, labels) for key in hits}
    for record in range(150):
        at = rng.integers(0, 20_000, 200)
        for key, found in score_table(p[at], labels[at], tuple(hits), replicates=200, seed=record).items():
            hits[key] += found.low <= whole[key] <= found.high
    assert all(0.89 < h / 150 < 0.995 for h in hits.values()), hits  # three standard errors of 0.018 below 0.95


def test_undefined_replicates_leave_the_interval_and_too_many_take_it_away():
    p = np.tile([0.9, 0.1], (50, 1))
    p[0] = [0.6, 0.4]
    labels = np.zeros(50, int)
    labels[:4] = 1  # four failures: a fiftieth of the replicates holds none
    few = score_table(p, labels, ("auroc_failure",), replicates=300)["auroc_failure"]
    assert np.isnan(few.replicates).any()
    assert few.low < few.value < few.high
    labels[1:4] = 0  # one failure: absent from a third of them
    assert np.isnan(score_table(p, labels, ("auroc_failure",), replicates=300)["auroc_failure"].low)
    right = score_table(np.eye(2)[[0, 1]], [0, 1], INSIDE, replicates=20)
    assert np.isnan(right["auroc_failure"][:3]).all()
    assert right["accuracy"][:3] == (1, 1, 1)


BAD = {
    "logits": (np.log(MEAN), Y, {}, "probabilities, not logits"),
    "nan": (np.where(np.arange(400)[:, None] == 7, np.nan, MEAN), Y, {}, r"nan at \(7, 0\)"),
    "sums": (MEAN * 0.99, Y, {}, "sum"),
    "one member's sums": (np.concatenate([P[:2], P[2:] * 0.99]), Y, {}, r"\(2, 0\)"),
    "class first": (MEAN.T, Y[:4], {}, "last axis"),
    "one dimension": (MEAN[0], Y[:1], {}, "shape"),
    "no case": (MEAN[:0], Y[:0], {}, "at least one case"),
    "one class": (np.ones((5, 1)), np.zeros(5, int), {}, "two classes"),
    "fewer labels": (MEAN, Y[1:], {}, r"\(399,\)"),
    "labels with a fraction": (MEAN, Y + 0.5, {}, "whole numbers"),
    "unknown label": (MEAN, np.where(np.arange(400) == 3, -1, Y), {}, "-1 at case 3"),
    "label too large": (MEAN, Y + 1, {}, "0 to 3"),
    "weights": (MEAN, Y, {"weights": np.ones(3)}, "weights"),
    "negative weight": (MEAN, Y, {"weights": -np.ones(400)}, "negative"),
    "outside of other classes": (MEAN, Y, {"outside": np.full((3, 3), 1 / 3)}, "3 classes"),
    "outside logits": (MEAN, Y, {"outside": np.full((3, 4), 2.0)}, "outside"),
    "an option of fields": (MEAN, Y, {"climatology": 0.0}, "Leave out climatology"),
    "thresholds": (MEAN, Y, {"thresholds": [0.5]}, "Leave out thresholds"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_refused_in_words(fault):
    p, y, options, words = BAD[fault]
    with pytest.raises(ScoreError, match=words):
        score("ece", p, y, **options)


def test_scores_of_one_kind_are_refused_where_the_other_is_meant():
    with pytest.raises(ScoreError, match="no out-of-distribution"):
        score("auroc_ood_entropy", MEAN, Y)
    with pytest.raises(ScoreError, match="Leave out outside"):
        score("crps_fair", np.zeros((3, 5)), np.zeros(5), outside=OUT)
    with pytest.raises(ScoreError, match="class probabilities"):
        chosen(["crps_fair", "ece"])
    with pytest.raises(ScoreError, match="a score of fields"):
        score_table(P, Y, ["crps_fair"])
    with pytest.raises(EngineError, match="no_such"):
        score_table(P, Y, ["no_such"])


def test_runs_of_fields_leave_class_scores_out():
    asked = SimpleNamespace(scores=(), thresholds=(), members=5)
    assert not {s.key for s in of_fields(asked, climatology=True)} & {*INSIDE, *OUTSIDE}
    asked.scores = ("rmse", "ece")
    with pytest.raises(ScoreError, match="class probabilities"):
        of_fields(asked, climatology=True)


def test_the_schemas_scores_are_there():
    expected = "accuracy mcc nll brier_multiclass ece ece_adaptive aurc auroc_failure fpr95_failure brier_mcb brier_dsc brier_unc"
    assert set(INSIDE) == set(expected.split())
    assert set(OUTSIDE) == {f"{m}_ood_{s}" for m in ("auroc", "aupr", "fpr95") for s in ("max_softmax", "entropy")}
    assert {k for k, s in entries("scoring").items() if isinstance(s, ClassScore)} >= {*INSIDE, *OUTSIDE}


def test_rounding_of_a_float32_softmax_is_no_fault():
    p = MEAN.astype(np.float32)
    p[0] = [1 + 1e-7, 0, 0, -1e-8]
    assert 0 <= score("ece", p, Y) <= 1


@pytest.mark.parametrize("given", [[[0.5, 0.5], [1.0]], [["a", "b"], ["c", "d"]], [[0.5 + 0j, 0.5], [1, 0]]])
def test_what_is_no_array_of_real_numbers_is_refused(given: object) -> None:
    from engine.runs.score import score

    with pytest.raises(ScoreError, match="real numbers"):
        score("ece", given, [0, 1])  # pyright: ignore[reportArgumentType]
