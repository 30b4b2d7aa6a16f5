"""Coverage and width of central prediction intervals, by linear quantiles and between order statistics."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.kernels.pit import rank_share
from engine.kernels.quantiles import central, linear_quantiles, rank_interval
from engine.types import Array, EnsembleView, Score

LEVELS = (50, 80, 90, 95)


def quantile_interval(view: EnsembleView, level: int) -> tuple[Array, Array]:
    """Ends of the central interval, each `(case, *event)`: those that the view was given, else linear quantiles, once a view."""
    if level in view.intervals:
        return view.intervals[level]

    def ends(view: EnsembleView, _: Array) -> tuple[Array, Array]:
        low, high = central(level)
        count = None if view.complete else view.count
        return linear_quantiles(view.ordered, low, count), linear_quantiles(view.ordered, high, count)

    return view.once(f"quantile_interval_{level}", view.members, ends)


class Coverage(Score):
    """Share of observations inside the closed central interval of linear quantiles, or inside the one that a post-hoc method gave.

    A perfect ensemble of M members covers less than the level (for 95 % at M = 20: 87.2 % of a Gaussian law, 86.0 % of a uniform one):
    `engine.kernels.quantiles.perfect_coverage` gives the level to hold it against. A given interval is held against the level
    itself; NaN where its ends are.
    """

    unit = "1"
    range = (0.0, 1.0)
    better = "nominal"
    reference = "Gneiting, Balabdaoui and Raftery (2007), doi:10.1111/j.1467-9868.2007.00587.x"
    estimator = "quantile"
    min_members = 2

    def __init__(self, level: int) -> None:
        self.level, self.key = level, f"coverage_{level}"
        self.title, self.symbol = f"Coverage of the {level} % interval (quantiles)", f"coverage {level} %"
        self.perfect, self.headline = level / 100, level == 95

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Share inside."""
        low, high = quantile_interval(view, self.level)
        inside = np.where(np.isnan(low), np.nan, (view.observed >= low) & (view.observed <= high))  # an unknown interval misses nothing
        return {self.key: case_means(view, inside, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The share itself."""
        return means[self.key]


class Width(Score):
    """Mean width of the central interval of linear quantiles, unit of the variable; at equal coverage, narrower is sharper."""

    reference = "Gneiting, Balabdaoui and Raftery (2007), doi:10.1111/j.1467-9868.2007.00587.x"
    estimator = "quantile"
    min_members = 2

    def __init__(self, level: int) -> None:
        self.level, self.key = level, f"width_{level}"
        self.title, self.symbol = f"Width of the {level} % interval (quantiles)", f"PI-{level}"
        self.headline = level == 95

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean width."""
        low, high = quantile_interval(view, self.level)
        return {self.key: case_means(view, high - low, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """The mean itself."""
        return means[self.key]


class CoverageRank(Score):
    """Share of observations between two order statistics, whose exact level under calibration is (k₂ − k₁)/(M + 1).

    k₁ and k₂ come nearest to the named level (M = 20: ranks 1 and 20 for 95 %, exactly 90.5 %). Ties are shared as in the
    rank histogram, so the level is exact with ties too.
    """

    unit = "1"
    range = (0.0, 1.0)
    better = "nominal"
    reference = "exchangeability of observation and members"
    estimator = "rank"
    min_members = 2

    def __init__(self, level: int) -> None:
        self.level, self.key, self.perfect = level, f"coverage_rank_{level}", level / 100
        self.title, self.symbol = f"Coverage of the {level} % interval (order statistics)", f"coverage {level} % (rank)"

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Shares by rank."""
        return {"rank_share": rank_share(view, weights)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Ranks k₁ … k₂ − 1 lie between the k₁-th and the k₂-th order statistic."""
        share = means["rank_share"]
        chosen = rank_interval(share.shape[-1] - 1, self.level)
        return share[..., chosen.low : chosen.high].sum(-1)

    def nominal(self, members: int) -> float:
        """The exact level at this member count."""
        return rank_interval(members, self.level).nominal


ENTRIES = (*(Coverage(n) for n in LEVELS), *(CoverageRank(n) for n in LEVELS), *(Width(n) for n in LEVELS))
