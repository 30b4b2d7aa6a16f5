"""Spread-skill ratio: does the ensemble's spread match the error of its mean?"""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.types import Array, EnsembleView, Score


class SpreadSkillRatio(Score):
    """√(mean of (M + 1)/M · variance, ddof = 1) over the RMSE of the ensemble mean; 1 when calibrated, below 1 too narrow.

    The factor (M + 1)/M makes it exactly 1 in expectation for a finite perfect ensemble; M is the count at each point.
    """

    key = "spread_skill_ratio"
    title = "Spread-skill ratio"
    symbol = "SSR"
    unit = "1"
    perfect = 1.0
    better = "nominal"
    reference = "Fortin et al. (2014), doi:10.1175/JHM-D-14-0008.1"
    estimator = "(M+1)/M, ddof 1"
    min_members = 2
    headline = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean corrected variance, and mean squared error of the ensemble mean."""
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = view.variance * (view.count + 1) / view.count
        return {"spread2": case_means(view, spread, weights), "error2": case_means(view, view.error2, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Ratio of the roots; infinite where there is spread without error, NaN where there is neither."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(means["spread2"] / means["error2"])


ENTRIES = (SpreadSkillRatio(),)
