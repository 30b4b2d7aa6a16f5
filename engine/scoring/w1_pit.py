"""First Wasserstein distance of the PIT from uniform: calibration in one number, without bins of choice."""

from collections.abc import Mapping

from engine.kernels.pit import rank_share
from engine.kernels.wasserstein import w1_uniform
from engine.types import Array, EnsembleView, Score


class W1Pit(Score):
    """∫₀¹ |F_PIT(u) − u| du, [0, 0.5], 0 is perfect.

    F_PIT is the expected CDF of the randomised PIT, piecewise linear through the cumulated rank shares. Under perfect
    calibration the value is still about 0.3133/√n for n independent points: read it beside its interval.
    """

    key = "w1_pit"
    title = "Miscalibration (Wasserstein-1 of the PIT)"
    symbol = "W₁(PIT)"
    unit = "1"
    range = (0.0, 0.5)
    reference = "Dawid (1984), doi:10.2307/2981683, for the PIT; the distance in closed form from rank counts"
    headline = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Shares by rank."""
        return {"rank_share": rank_share(view, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Exact from the mean shares."""
        return w1_uniform(means["rank_share"])


ENTRIES = (W1Pit(),)
