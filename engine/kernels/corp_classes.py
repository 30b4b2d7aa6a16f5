"""CORP for class probabilities: every class against the rest, where each case states a probability of its own.

With thousands of distinct probabilities the regression would run over thousands of knots, for every bootstrap replicate anew.
But a regression block cannot end inside most of them: between neighbours a and b (ascending probability) the fit can rise only
where the outcome of a is below that of b, so where all of a came true, or none of b, they share a block whatever the weights. Such
neighbours are merged first, which leaves about as many knots as the class has cases that are out of order, and changes nothing.
"""

import numpy as np
from numpy.typing import NDArray

from engine.kernels.binning import tie_starts, tie_tolerance
from engine.kernels.corp import recalibrate
from engine.types import Array


def mergeable(probability: Array, outcome: NDArray[np.bool_], tolerance: float | None = None) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Order of ascending probability `(case,)`, and the positions in it at which groups begin that no regression block divides.

    Probabilities that differ by rounding are ties (`engine.kernels.binning.tie_starts`, `tolerance` likewise).
    """
    order = np.argsort(probability, kind="stable")
    came, starts = outcome[order], tie_starts(probability[order], tolerance)
    all_came, some_came = np.logical_and.reduceat(came, starts), np.logical_or.reduceat(came, starts)
    return order, starts[np.r_[True, ~all_came[:-1] & some_came[1:]]]


def decompose_classes(probabilities: Array, labels: NDArray[np.int64], weights: Array) -> dict[str, Array]:
    """Σ_k (p_k − 1[y = k])² = MCB − DSC + UNC, each the sum over classes of its one-against-rest part; `(...)` each.

    `probabilities` `(case, class)`, `labels` `(case,)`, `weights` `(..., case)`. As `engine.kernels.corp.decompose` class by class:
    MCB ≥ 0 is what recalibrating every class by isotonic regression gains, DSC ≥ 0 what the recalibrated forecast gains over the
    base rates, UNC the score of the base rates. Summing over classes is our choice; the recalibrated probabilities of a case need
    not sum to 1. NaN without weight.
    """
    w = np.asarray(weights, dtype=np.float64)
    total = np.where(w.sum(-1) > 0, w.sum(-1), np.nan)
    raw, recalibrated, uncertainty = (np.zeros(w.shape[:-1]) for _ in range(3))
    for k in range(probabilities.shape[-1]):
        stated, outcome = probabilities[:, k].astype(np.float64), labels == k
        order, starts = mergeable(stated, outcome, tie_tolerance(probabilities))
        sorted_weights = w[..., order]
        weight = np.add.reduceat(sorted_weights, starts, axis=-1)
        event = np.add.reduceat(sorted_weights * outcome[order], starts, axis=-1)
        level = np.where(weight > 0, recalibrate(weight, event), 0.0)
        base = event.sum(-1) / total
        raw += w @ (stated - outcome) ** 2 / total
        recalibrated += (weight * level**2 - 2 * level * event + event).sum(-1) / total
        uncertainty += base * (1 - base)
    return {"brier": raw, "mcb": raw - recalibrated, "dsc": uncertainty - recalibrated, "unc": uncertainty}
