"""Statistics of the spread-skill diagram: error of the ensemble mean where the ensemble is narrow, and where it is wide."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import flat, point_weights
from engine.types import Array, EnsembleView, Score


class SpreadSkillBins(Score):
    """Weight, corrected variance and squared error by bin of the local spread √((M + 1)/M · variance), `(..., bin)`.

    Bins lie between the view's `spread_edges`: n edges make n + 1 bins, [edge, next edge). Variance over weight against
    error over weight lies on the diagonal when the ensemble knows where it is uncertain.
    """

    key = "spread_skill_bins"
    title = "Spread-skill diagram"
    symbol = "spread-skill"
    range = (0.0, float("inf"))
    perfect = float("nan")
    better = "nominal"
    reference = "Leutbecher and Palmer (2008), doi:10.1016/j.jcp.2007.02.014"
    estimator = "(M+1)/M, ddof 1"
    min_members = 2
    profile = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Sums by bin of weights that sum 1 over a region's valid points."""
        share = point_weights(view, weights)
        cases, regions, bins = len(view.observed), share.shape[1], len(view.spread_edges) + 1
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.where(view.valid, view.variance * (view.count + 1) / view.count, 0.0)
        index = flat(np.searchsorted(np.asarray(view.spread_edges), np.sqrt(variance), side="right"), cases)
        index = (index + np.arange(cases)[:, None] * bins).ravel()
        error2 = np.where(view.valid, view.error2, 0.0)
        out = {}
        for name, values in (("spread_weight", None), ("spread_variance", flat(variance, cases)), ("spread_error2", flat(error2, cases))):
            sums = np.empty((cases, regions, bins))
            for r in range(regions):
                weight = np.broadcast_to(np.nan_to_num(share[:, r]), (cases, index.size // cases))
                mass = weight if values is None else weight * values
                sums[:, r] = np.bincount(index, weights=mass.ravel(), minlength=cases * bins).reshape(cases, bins)
            sums[np.broadcast_to(np.isnan(share).any(-1), (cases, regions))] = np.nan
            out[name] = sums
        return out

    def combine(self, means: Mapping[str, Array]) -> dict[str, Array]:
        """`weight`, `variance` and `error2`: sums by bin, whose ratios are the diagram's points."""
        return {"weight": means["spread_weight"], "variance": means["spread_variance"], "error2": means["spread_error2"]}


ENTRIES = (SpreadSkillBins(),)
