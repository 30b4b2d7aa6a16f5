"""Moments of the PIT: where the observations lie in the ensemble on average, and how widely they scatter."""

from collections.abc import Mapping

from engine.kernels.area import case_means
from engine.kernels.pit import pit_interval
from engine.types import Array, EnsembleView, Score


class PitMoments(Score):
    """Mean and variance of the randomised PIT, exact expectations over its randomisation V.

    Uniform PIT: mean 1/2, variance 1/12. A mean below 1/2 says that observations lie low in the ensemble (forecast too
    high); a larger variance that the ensemble is too narrow. The PIT values themselves: `engine.kernels.pit.randomised_pit`.
    """

    key = "pit"
    title = "PIT mean and variance"
    symbol = "E u, Var u"
    unit = "1"
    range = (0.0, 1.0)
    perfect = 0.5
    better = "nominal"
    reference = "Gneiting, Balabdaoui and Raftery (2007), doi:10.1111/j.1467-9868.2007.00587.x"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """E u and E u² over V: u is uniform on the interval that the observation owns."""
        low, high = pit_interval(view)
        return {
            "pit_mean": case_means(view, (low + high) / 2, weights),
            "pit_square": case_means(view, (low * low + low * high + high * high) / 3, weights),
        }

    def combine(self, means: Mapping[str, Array]) -> dict[str, Array]:
        """`mean` (1/2 when uniform) and `variance` (1/12)."""
        return {"mean": means["pit_mean"], "variance": means["pit_square"] - means["pit_mean"] ** 2}


ENTRIES = (PitMoments(),)
