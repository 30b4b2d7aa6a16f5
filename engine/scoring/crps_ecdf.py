"""CRPS of the empirical CDF: the ensemble itself taken as the forecast, so that size counts."""

from collections.abc import Mapping

from engine.kernels.area import case_means
from engine.kernels.crps import crps
from engine.types import Array, EnsembleView, Score


class CrpsEcdf(Score):
    """Mean over area and cases of mean |x_i − y| − Σ_iΣ_j |x_i − x_j| / (2M²).

    Unit of the variable, ≥ 0. Biased by ensemble size: never rank runs of unequal M by it.
    Missing members: M is the number present at each point.
    """

    key = "crps_ecdf"
    title = "CRPS of the empirical CDF"
    symbol = "CRPS ecdf"
    reference = "Hersbach (2000), doi:10.1175/1520-0434(2000)015<0559:DOTCRP>2.0.CO;2"
    estimator = "empirical CDF"
    min_members = 1

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean CRPS."""
        return {"crps_ecdf": case_means(view, crps(view.members, view.observed, fair=False, count=view.count), weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["crps_ecdf"]


ENTRIES = (CrpsEcdf(),)
