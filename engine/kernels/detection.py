"""How well a score tells positives from negatives, and what abstaining gains: AUROC, AUPR, FPR at 95 % TPR, risk and coverage.

A sample may be weighted in many ways at once, `(..., case)`: sorting is done once, and a replicate costs a few running sums.
Tied scores, which includes those that differ by rounding alone, are one step of every curve: no order among them matters.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.kernels.binning import tie_starts, tie_tolerance
from engine.types import Array

TPR = 0.95
"""True-positive rate at which the false-positive rate is read."""


class Detection(NamedTuple):
    """`(...)` each, in [0, 1]; NaN where positives or negatives have no weight."""

    auroc: Array
    aupr: Array
    fpr95: Array


class RiskCoverage(NamedTuple):
    """`(step,)` each, by ascending coverage: share of cases answered, and share of mistakes among them."""

    coverage: Array
    risk: Array


def detection(positive: ArrayLike, negative: ArrayLike, positive_weights: ArrayLike, negative_weights: ArrayLike) -> Detection:
    """Positives are to score high: `positive` `(p,)`, `negative` `(n,)`, weights `(..., p)` and `(..., n)`.

    AUROC: probability that a positive scores above a negative, ties one half (Fawcett 2006, doi:10.1016/j.patrec.2005.10.010).
    AUPR: average precision, Σ (R_k − R_{k−1}) P_k over the distinct scores, without interpolation (the step rule of scikit-learn).
    FPR95: share of negatives at or above the highest threshold that keeps at least 95 % of the positives (Liang et al. 2018,
    arXiv:1706.02690; no interpolation between thresholds is our choice).
    """
    scores = np.concatenate([np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)])
    up, down = (np.asarray(w, dtype=np.float64) for w in (positive_weights, negative_weights))
    if len(scores) == 0:
        nothing = np.full(up.shape[:-1], np.nan)
        return Detection(nothing, nothing, nothing)
    tolerance = max(tie_tolerance(positive), tie_tolerance(negative))
    order = np.argsort(-scores, kind="stable")
    starts = tie_starts(scores[order], tolerance)
    hits = np.add.reduceat(np.concatenate([up, np.zeros_like(down)], axis=-1)[..., order], starts, axis=-1)
    alarms = np.add.reduceat(np.concatenate([np.zeros_like(up), down], axis=-1)[..., order], starts, axis=-1)
    true, false = np.cumsum(hits, axis=-1), np.cumsum(alarms, axis=-1)
    hit_total, alarm_total = true[..., -1], false[..., -1]
    defined = (hit_total > 0) & (alarm_total > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        auroc = (alarms * (true - hits / 2)).sum(-1) / (hit_total * alarm_total)
        aupr = np.where(hits > 0, hits * true / (true + false), 0.0).sum(-1) / hit_total
        first = (true >= TPR * hit_total[..., None] * (1 - 1e-12)).argmax(-1)  # 0.95 × 60 is a hair above 57
        fpr95 = np.take_along_axis(false, first[..., None], axis=-1)[..., 0] / alarm_total
    return Detection(*(np.where(defined, v, np.nan) for v in (auroc, aupr, fpr95)))


def risk_coverage(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike | None = None) -> RiskCoverage:
    """Share of mistakes among the most confident cases, at every coverage that a threshold on the confidence can reach.

    `confidence`, `correct`, `weights` `(case,)`. One step for each distinct confidence that carries weight; the last has coverage 1.
    Source: El-Yaniv and Wiener (2010), JMLR 11:1605.
    """
    stated = np.asarray(confidence)
    weights = np.ones(len(stated)) if weights is None else np.asarray(weights, dtype=np.float64)
    answered, mistaken = _running(stated, np.asarray(correct, dtype=bool), weights)
    kept = np.diff(answered, prepend=0.0) > 0
    return RiskCoverage(answered[kept] / answered[-1], mistaken[kept] / answered[kept])


def aurc(confidence: ArrayLike, correct: ArrayLike, weights: ArrayLike) -> Array:
    """Area under the risk-coverage curve, `(...)` in [0, 1]: mean over i = 1 … n of the risk among the i most confident cases.

    `weights` `(..., case)` count cases: weight 3 is three cases. Among g tied cases with e mistakes, after N with E mistakes, the
    mistakes are spread evenly: Σ_j (E + je/g)/(N + j) = e + (E − Ne/g)(H(N + g) − H(N)), H the harmonic numbers, written through
    the digamma function for weights that are no whole numbers. NaN without weight.

    Source: Geifman, Uziel and El-Yaniv (2019), arXiv:1805.08206; even spreading of ties is our choice.
    """
    from scipy.special import digamma

    answered, mistaken = _running(np.asarray(confidence), np.asarray(correct, dtype=bool), np.asarray(weights, dtype=np.float64))
    size, errors = np.diff(answered, prepend=0.0), np.diff(mistaken, prepend=0.0)
    before, errors_before = answered - size, mistaken - errors
    harmonic = digamma(answered + 1.0)
    step = np.diff(harmonic, prepend=digamma(1.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(size > 0, errors / size, 0.0)
        total = answered[..., -1]
        return (errors + (errors_before - before * rate) * step).sum(-1) / np.where(total > 0, total, np.nan)


def _running(confidence: Array, correct: NDArray[np.bool_], weights: Array) -> tuple[Array, Array]:
    """Weight and weight of mistakes down to each distinct confidence, descending, `(..., step)`."""
    order = np.argsort(-confidence, kind="stable")
    starts = tie_starts(confidence[order])
    sorted_weights = weights[..., order]
    mistakes = np.add.reduceat(sorted_weights * ~correct[order], starts, axis=-1)
    return np.cumsum(np.add.reduceat(sorted_weights, starts, axis=-1), axis=-1), np.cumsum(mistakes, axis=-1)
