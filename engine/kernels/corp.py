"""CORP: recalibration of probabilities by isotonic regression, and the decomposition of the Brier score that it gives.

An ensemble of M members has M + 1 probabilities k/M, so the regression runs on M + 1 sums and needs no case at hand.

Source: Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118.
"""

import numpy as np
from numpy.typing import ArrayLike

from engine.types import Array


def recalibrate(weight: ArrayLike, event: ArrayLike) -> Array:
    """Recalibrated event frequency of each probability, `(..., k)` in [0, 1], non-decreasing; NaN where no weight lies.

    `weight` and `event` (weight × event) are sums `(..., k)` by ascending probability. Pool-adjacent-violators, run over all
    leading places at once (a bootstrap asks for thousands): knots are pushed one by one, and blocks that fall are merged.
    The same curve as `scipy.optimize.isotonic_regression`.
    """
    weight, event = np.broadcast_arrays(np.asarray(weight, dtype=np.float64), np.asarray(event, dtype=np.float64))
    shape, knots = weight.shape, weight.shape[-1]
    weight, event = weight.reshape(-1, knots), event.reshape(-1, knots)
    held = weight > 0
    block_weight, block_event = np.zeros_like(weight), np.zeros_like(event)
    last = np.zeros(weight.shape, dtype=np.int64)  # last knot of each block
    top = np.full(len(weight), -1)
    for k in range(knots):
        rows = np.flatnonzero(held[:, k])
        top[rows] += 1
        block_weight[rows, top[rows]], block_event[rows, top[rows]], last[rows, top[rows]] = weight[rows, k], event[rows, k], k
        while rows.size:
            rows = rows[top[rows] > 0]
            here = top[rows]
            falls = block_event[rows, here - 1] * block_weight[rows, here] >= block_event[rows, here] * block_weight[rows, here - 1]
            rows, here = rows[falls], here[falls]
            block_weight[rows, here - 1] += block_weight[rows, here]
            block_event[rows, here - 1] += block_event[rows, here]
            last[rows, here - 1] = k
            top[rows] -= 1
    ends = np.zeros((len(weight), knots + 1), dtype=np.int64)
    row, block = np.nonzero(np.arange(knots) <= top[:, None])
    ends[row, last[row, block] + 1] = 1
    place = np.minimum(np.cumsum(ends[:, :-1], axis=-1), np.maximum(top, 0)[:, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.take_along_axis(block_event / block_weight, place, axis=-1)
    return np.where(held, np.clip(level, 0.0, 1.0), np.nan).reshape(shape)


def decompose(weight: ArrayLike, event: ArrayLike, probability: ArrayLike) -> dict[str, Array]:
    """Brier score = MCB − DSC + UNC from sums `(..., k)` at `probability` `(k,)`; each part `(...)`.

    Miscalibration MCB ≥ 0 is what recalibration gains, discrimination DSC ≥ 0 what the recalibrated forecast gains over
    the base rate, uncertainty UNC the score of the base rate. NaN without weight.
    """
    weight, event = np.asarray(weight, dtype=np.float64), np.asarray(event, dtype=np.float64)
    probability = np.asarray(probability, dtype=np.float64)
    total = weight.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):

        def score(forecast: Array) -> Array:
            # (p − o)² summed with o² = o: w p² − 2 p e + e
            return np.where(weight > 0, weight * forecast**2 - 2 * forecast * event + event, 0.0).sum(-1) / np.where(
                total > 0, total, np.nan
            )

        base = event.sum(-1) / np.where(total > 0, total, np.nan)
        raw, recalibrated, reference = score(probability), score(recalibrate(weight, event)), score(base[..., None])
    return {"brier": raw, "mcb": raw - recalibrated, "dsc": reference - recalibrated, "unc": reference}
