"""Statistics of the reliability diagram: how often each exceedance probability is stated, and how often the event follows."""

from collections.abc import Mapping

from engine.kernels.exceedance import exceedance_sums
from engine.types import Array, EnsembleView, Score


class ExceedanceReliability(Score):
    """Share of points at each probability k/M, and share with the event too, `(..., threshold, M + 1)`.

    Event over weight equals k/M when the probabilities are reliable.
    """

    key = "exceedance"
    title = "Exceedance reliability"
    symbol = "reliability"
    unit = "1"
    range = (0.0, 1.0)
    perfect = float("nan")
    better = "nominal"
    reference = "Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118"
    needs = frozenset({"thresholds"})
    profile = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Weight, and weight × event, at each of the M + 1 probabilities."""
        return exceedance_sums(view, weights)

    def combine(self, means: Mapping[str, Array]) -> dict[str, Array]:
        """`weight` and `event`."""
        return {"weight": means["exceedance_weight"], "event": means["exceedance_event"]}


ENTRIES = (ExceedanceReliability(),)
