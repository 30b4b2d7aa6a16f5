"""Negative log-likelihood of the observation under a Gaussian with the ensemble's mean and variance."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score

RELATIVE_FLOOR = 1e-6


class NllGaussian(Score):
    """Mean of ½ log(2π s²) + (y − x̄)²/(2 s²), in nats; depends on the unit of the variable through log s.

    s² is the ensemble variance (ddof 1), not below a floor of 1e-6 times the case's mean variance over valid points
    (without which one point of collapsed members decides the mean). Where every member agrees everywhere the variance and
    the floor are zero and the score is infinite, as it should be.
    """

    key = "nll_gaussian"
    title = "Gaussian negative log-likelihood"
    symbol = "NLL (Gaussian)"
    unit = "nat"
    range = (float("-inf"), float("inf"))
    perfect = float("-inf")
    reference = "Gneiting and Raftery (2007), doi:10.1198/016214506000001437"
    estimator = "ddof 1, variance floor 1e-6 of the case's mean variance"
    min_members = 2

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean negative log-likelihood."""
        variance = np.where(view.valid, view.variance, np.nan)
        space = tuple(range(1, variance.ndim))
        number = np.maximum(view.valid.sum(axis=space, keepdims=True), 1)
        floor = RELATIVE_FLOOR * np.nansum(variance, axis=space, keepdims=True) / number
        variance = np.maximum(variance, floor)
        with np.errstate(invalid="ignore", divide="ignore"):
            nll = 0.5 * (np.log(2 * np.pi * variance) + view.error2 / variance)
        nll = np.where(variance == 0, np.where(view.error2 == 0, -np.inf, np.inf), nll)
        with np.errstate(invalid="ignore"):
            return {"nll_gaussian": case_means(view, nll, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["nll_gaussian"]


ENTRIES = (NllGaussian(),)
