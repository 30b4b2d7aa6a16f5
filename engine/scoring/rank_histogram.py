"""Rank histogram: how often the observation takes each rank among the members."""

from collections.abc import Mapping

from engine.kernels.pit import rank_share
from engine.types import Array, EnsembleView, Score


class RankHistogram(Score):
    """Area-weighted share of each rank 0 … M, `(..., M + 1)`, sum 1; flat, 1/(M + 1), when calibrated.

    Ties are shared equally. Where members are missing, the interval that the observation owns is laid over the M + 1 bins.
    """

    key = "rank_histogram"
    title = "Rank histogram"
    symbol = "rank"
    unit = "1"
    range = (0.0, 1.0)
    perfect = float("nan")
    better = "nominal"
    reference = "Hamill (2001), doi:10.1175/1520-0493(2001)129<0550:IORHFV>2.0.CO;2"
    profile = True

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Shares by rank."""
        return {"rank_share": rank_share(view, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The shares themselves."""
        return means["rank_share"]


ENTRIES = (RankHistogram(),)
