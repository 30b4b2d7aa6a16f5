"""Variogram score: are differences between places right?"""

from collections.abc import Mapping

from engine.kernels.multivariate import over_regions, variogram
from engine.types import Array, EnsembleView, Score


class VariogramScore(Score):
    """Mean over cases of Σ_a Σ_b w_a w_b (|y_a − y_b|^½ − mean_i |x_ia − x_ib|^½)² over all pairs of points.

    Order p = 0.5; area weights scaled to mean 1. Sensitive to correlations, blind to a shift of the whole field. Cost
    grows with the square of the number of points: refused above 8192.
    """

    key = "variogram_score"
    optional = True
    title = "Variogram score (p = 0.5)"
    symbol = "VS½"
    reference = "Scheuerer and Hamill (2015), doi:10.1175/MWR-D-14-00269.1"
    estimator = "p = 0.5, area-weighted pairs"
    min_members = 2

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Score of each case's field."""
        return {"variogram_score": over_regions(view, weights, variogram)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["variogram_score"]


ENTRIES = (VariogramScore(),)
