"""Sums over cases at each gridpoint, and the maps that come of them.

A sum is a pair (sum, carried rounding error) `(2, *k, *space)`: what each addition rounds away is kept (Knuth's exact two-sum), so
that the order of addition shows in the 32nd digit, not in the 16th.
"""

from collections.abc import Mapping

import numpy as np

from engine.errors import ScoreError
from engine.kernels.area import flat
from engine.kernels.pit import bins_that_divide, pit_interval
from engine.runs.verification import LEVELS
from engine.scoring.coverage import quantile_interval
from engine.types import Array, EnsembleView


def add_exactly(total: Array, term: Array) -> None:
    """Exact two-sum: total[0] becomes the rounded sum, and what rounding took goes to total[1]."""
    summed = total[0] + term
    shadow = summed - total[0]
    total[1] += (total[0] - (summed - shadow)) + (term - shadow)
    total[0] = summed


class GridSums:
    """Sums over cases at each gridpoint: coverage, width, bias, squared error, spread, ranks, and the number of valid cases."""

    def __init__(self, members: int, space: tuple[int, ...]) -> None:
        self.members, self.space = members, space
        shapes: dict[str, tuple[int, ...]] = {"count": (), "cases": (), "bias": (), "error2": ()}
        if members > 1:
            self.bins = bins_that_divide(members, int(np.prod(space)))
            shapes |= {"spread2": (), "width_95": (), "coverage": (len(LEVELS),), "rank": (self.bins,)}
        self.sums = {name: np.zeros((2, *k, *space)) for name, k in shapes.items()}

    def add(self, view: EnsembleView) -> None:
        """One case after the other, so that the sums do not depend on how cases are batched."""
        if view.observed.shape[1:] != self.space:
            raise ScoreError(
                "gridpoint sums",
                found=f"event {view.observed.shape[1:]}",
                expected=f"{self.space}",
                remedy="Give weights of the event's shape.",
            )
        valid = view.valid
        fields = {
            "count": valid.astype(np.float64),
            "cases": np.ones(valid.shape),
            "bias": view.mean - view.observed,
            "error2": view.error2,
        }
        if self.members > 1:
            inside = []
            for level in LEVELS:
                low, high = quantile_interval(view, level)
                # an interval that a post-hoc method leaves out is unknown, which is not the same as missed
                held = ((view.observed >= low) & (view.observed <= high)).astype(np.float64)
                inside.append(np.where(np.isnan(low) & valid, np.nan, held))
            fields["coverage"] = np.stack(inside, axis=1)
            low, high = quantile_interval(view, 95)
            with np.errstate(invalid="ignore", divide="ignore"):
                fields |= {"width_95": high - low, "spread2": view.variance * (view.count + 1) / view.count}
            fields["rank"] = self._ranks(view)
        for name, values in fields.items():
            keep = valid if values.ndim == valid.ndim else valid[:, None]
            if name != "cases":
                values = np.where(keep, values, 0.0)
            for case in values:
                add_exactly(self.sums[name], case)

    def _ranks(self, view: EnsembleView) -> Array:
        """Share of each rank bin at each point, `(case, bin, *space)`: overlap of the owned interval with the bin."""
        cases = len(view.observed)
        low, high = (np.nan_to_num(flat(end, cases), nan=0.5) * self.bins for end in pit_interval(view))
        out = np.zeros((cases, self.bins, low.shape[1]))
        wide = view.equal.any() or not view.complete
        if wide:
            edges = np.arange(self.bins + 1)[None, :, None]
            below = np.clip((edges - low[:, None]) / np.maximum(high - low, 1e-12)[:, None], 0.0, 1.0)
            out = np.diff(below, axis=1)
        else:  # the owned interval is one rank, and bins hold whole ranks
            index = flat(view.below, cases) * self.bins // (self.members + 1)
            np.put_along_axis(out, index[:, None], 1.0, axis=1)
        return out.reshape(cases, self.bins, *self.space)


def maps(grid: Mapping[str, Array]) -> dict[str, Array]:
    """Means over cases at each gridpoint, float32; NaN where no case is valid."""
    if not grid:
        return {}
    total = {name: pair[0] + pair[1] for name, pair in grid.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = {name: np.where(total["count"] > 0, value / total["count"], np.nan) for name, value in total.items()}
    named = {"bias_map": mean["bias"], "rmse_map": np.sqrt(mean["error2"]), "valid_map": total["count"] / total["cases"]}
    if "rank" in mean:
        named |= {
            "coverage_map": mean["coverage"],
            "width_map": mean["width_95"],
            "rank_map": mean["rank"],
            "spread_map": np.sqrt(mean["spread2"]),
        }
    return {name: value.astype(np.float32) for name, value in named.items()}
