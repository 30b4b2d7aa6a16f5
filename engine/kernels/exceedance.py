"""Exceedance of thresholds by an ensemble, as sums over the M + 1 probabilities that it can state."""

import numpy as np
from numpy.typing import NDArray

from engine.kernels.area import flat, point_weights
from engine.types import Array, EnsembleView


def exceedance(view: EnsembleView, threshold: float) -> tuple[Array, NDArray[np.bool_]]:
    """Forecast probability and outcome of x − climatology > threshold, each `(case, *event)`; strictly above.

    The probability is the share of the members present; NaN where none is.
    """
    limit = threshold if view.climatology is None else np.asarray(view.climatology, dtype=np.float64) + threshold
    number = np.count_nonzero(view.members > limit, axis=0)  # a NaN member exceeds nothing
    with np.errstate(invalid="ignore", divide="ignore"):
        return number / view.count, np.asarray(view.observed > limit)


def exceedance_sums(view: EnsembleView, weights: Array) -> dict[str, Array]:
    """Area-weighted share of points at each probability k/M, and of those with the event, each `(case, region, threshold, M + 1)`.

    Where m < M members are present, the probability lies between two of the M + 1 and its weight is split linearly between
    them, which keeps its mean. NaN where a region has no valid point.
    """
    return view.once("exceedance", weights, _exceedance_sums)


def _exceedance_sums(view: EnsembleView, weights: Array) -> dict[str, Array]:
    share = point_weights(view, weights)
    cases, regions, bins = len(view.observed), share.shape[1], len(view.members) + 1
    sums = np.empty((2, cases, regions, len(view.thresholds), bins))
    row = np.arange(cases)[:, None] * bins
    for t, threshold in enumerate(view.thresholds):
        probability, outcome = exceedance(view, threshold)
        place = flat(np.nan_to_num(probability), cases) * (bins - 1)
        if view.complete:
            parts = [(np.rint(place).astype(np.int64), None)]
        else:
            place = np.where(np.abs(place - np.rint(place)) < 1e-9, np.rint(place), place)
            lower = np.minimum(place.astype(np.int64), bins - 2) if bins > 1 else place.astype(np.int64)
            parts = [(lower, lower + 1 - place), (lower + 1, place - lower)]
        happened = flat(outcome, cases)
        for r in range(regions):
            weight = np.broadcast_to(np.nan_to_num(share[:, r]), happened.shape)
            sums[:, :, r, t] = 0.0
            for index, part in parts:
                mass = weight if part is None else weight * part
                where = (index + row).ravel()
                sums[0, :, r, t] += np.bincount(where, weights=mass.ravel(), minlength=cases * bins).reshape(cases, bins)
                sums[1, :, r, t] += np.bincount(where, weights=(mass * happened).ravel(), minlength=cases * bins).reshape(cases, bins)
    sums[:, np.broadcast_to(np.isnan(share).any(-1), (cases, regions))] = np.nan
    return {"exceedance_weight": sums[0], "exceedance_event": sums[1]}


def probabilities(members: int) -> Array:
    """The probabilities k/M, `(M + 1,)`."""
    return np.arange(members + 1) / members
