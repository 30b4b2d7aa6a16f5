"""How far the ensemble mean has moved from the deterministic forecast it came from."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score


class MeanShiftRmse(Score):
    """Root-mean-square difference between ensemble mean and deterministic forecast, over the scored points; unit of the variable."""

    key = "mean_shift_rmse"
    title = "RMSE of the ensemble mean against the deterministic forecast"
    symbol = "RMSE(mean, deterministic)"
    reference = "definition of this engine"
    estimator = "pooled"
    needs = frozenset({"reference"})

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean squared difference."""
        return {"mean_shift2": case_means(view, (view.mean - np.asarray(view.reference, dtype=np.float64)) ** 2, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Its root."""
        return np.sqrt(means["mean_shift2"])


ENTRIES = (MeanShiftRmse(),)
