"""Fair energy score: the CRPS of whole fields."""

from collections.abc import Mapping

from engine.kernels.multivariate import energy_fair, over_regions
from engine.types import Array, EnsembleView, Score


class EnergyScoreFair(Score):
    """Mean over cases of mean ‖x_i − y‖ − Σ_iΣ_j ‖x_i − x_j‖ / (2M(M − 1)) over the event, 0 is perfect.

    ‖d‖² = Σ w d² with area weights scaled to mean 1 over the region's valid points: with equal weights the Euclidean norm.
    It therefore grows as the root of the number of points: compare on the same grid only. A one-point event gives the fair CRPS.
    """

    key = "energy_score_fair"
    optional = True
    title = "Fair energy score"
    symbol = "ES fair"
    reference = "Gneiting and Raftery (2007), doi:10.1198/016214506000001437"
    estimator = "fair, area-weighted Euclidean norm"
    min_members = 2

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Score of each case's field."""
        return {"energy_score_fair": over_regions(view, weights, energy_fair)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["energy_score_fair"]


ENTRIES = (EnergyScoreFair(),)
