"""Fair CRPS: the estimator that does not reward or punish ensemble size."""

from collections.abc import Mapping

from engine.kernels.area import case_means
from engine.kernels.crps import crps, decoupling
from engine.types import Array, EnsembleView, Score


class CrpsFair(Score):
    """Mean over area and cases of mean |x_i − y| − Σ_iΣ_j |x_i − x_j| / (2M(M − 1)).

    Unit of the variable, 0 is perfect; unbiased, so slightly negative values occur by chance. Needs two members.
    Missing members: M is the number present at each point. Members that were spread about their mean after they were drawn
    (`EnsembleView.spread_factor`) are no independent draws; the bias that this gives is taken out by jackknife.
    """

    key = "crps_fair"
    title = "Fair CRPS"
    symbol = "CRPS fair"
    reference = "Ferro (2014), doi:10.1002/qj.2270"
    estimator = "fair"
    min_members = 2
    headline = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean CRPS."""
        each = crps(view.members, view.observed, fair=True, count=view.count)
        if view.spread_factor != 1:
            each = each + decoupling(view.members, view.observed, view.spread_factor)
        return {"crps_fair": case_means(view, each, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means["crps_fair"]


ENTRIES = (CrpsFair(),)
