"""Root-mean-square error of the ensemble mean, in the two conventions that are never mixed."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score


class RmsePooled(Score):
    """Root of the mean squared error over cases and area; unit of the variable."""

    key = "rmse_pooled"
    title = "RMSE of the ensemble mean (pooled)"
    symbol = "RMSE"
    reference = "Rasp et al. (2024), doi:10.1029/2023MS004019"
    estimator = "pooled"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean squared error of the ensemble mean."""
        return {"error2": case_means(view, view.error2, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Its root."""
        return np.sqrt(means["error2"])


class Rmse(RmsePooled):
    """`rmse_pooled` under the short name that tables use."""

    key = "rmse"
    headline = True


class RmseCaseMean(Score):
    """Mean over cases of each case's root-mean-square error over area (ClimaX's own convention); unit of the variable."""

    key = "rmse_case_mean"
    title = "RMSE of the ensemble mean (mean over cases)"
    symbol = "RMSE (case mean)"
    reference = "Nguyen et al. (2023), arXiv:2301.10343"
    estimator = "case mean"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Root of each case's mean squared error."""
        return {"rmse_case": np.sqrt(case_means(view, view.error2, weights))}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["rmse_case"]


ENTRIES = (RmsePooled(), Rmse(), RmseCaseMean())
