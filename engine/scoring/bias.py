"""Bias: the mean error of the ensemble mean."""

from collections.abc import Mapping

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score


class Bias(Score):
    """Mean of (ensemble mean − observed); positive where the forecast is too high; unit of the variable."""

    key = "bias"
    title = "Bias of the ensemble mean"
    symbol = "bias"
    range = (float("-inf"), float("inf"))
    better = "nominal"
    reference = "WMO (2019), Manual on the GDPFS, WMO-No. 485"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean error."""
        return {"bias": case_means(view, view.mean - view.observed, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["bias"]


ENTRIES = (Bias(),)
