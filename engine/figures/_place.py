"""One place of the map: which cell it is, and what its record over the cases is judged to be. Every caption of a place says this."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.figures import _geo
from engine.figures._select import Selection
from engine.judging import Place, place_record
from engine.kernels import bootstrap
from engine.types import Array

if TYPE_CHECKING:
    import xarray as xr

DEFAULT_CELL = (50.0, 10.0)
LEAST = 5
"""Cases that a bar of a place's histogram holds on average, at least (our choice): below, no single bar could be told from chance."""
DRAWS = 500


@dataclass(frozen=True)
class Cell:
    """A cell of the grid."""

    row: int
    column: int
    latitude: float
    longitude: float

    @property
    def name(self) -> str:
        """`52.6°N 11.2°E`."""
        return _geo.place(self.latitude, self.longitude)


def cell(s: Selection, grid: "xr.Dataset | None" = None) -> Cell:
    """The cell nearest to the chosen place, of the Verification's grid unless another one is given."""
    source = s.verification if grid is None else grid
    lat, lon = source["latitude"].values, source["longitude"].values
    wanted = [
        default if s.options.get(name) is None else float(s.options[name])
        for name, default in zip(("latitude", "longitude"), DEFAULT_CELL, strict=True)
    ]
    row, column = (int(i) for i in _geo.nearest(lat, lon, np.asarray(wanted[0]), np.asarray(wanted[1])))
    return Cell(row, column, float(lat[row]), float(lon[column]))


def valid_cases(s: Selection, at: Cell) -> int:
    """Cases that have an observation there."""
    valid = float(s.at("valid_map").values[at.row, at.column]) if "valid_map" in s.verification else 1.0
    return round(valid * int(s.verification.attrs["cases"])) if np.isfinite(valid) else 0


def shares(s: Selection, at: Cell, nu: int) -> Array:
    """Shares of the rank bins there, merged into the most bins that hold LEAST cases on average; NaN where nothing is valid."""
    found = s.at("rank_map", nu=nu).values[:, at.row, at.column].astype(float)
    divisors = [d for d in range(2, len(found) + 1) if len(found) % d == 0]
    enough = [d for d in divisors if valid_cases(s, at) / d >= LEAST]
    return found.reshape(max(enough, default=divisors[0]), -1).sum(axis=1)


def record(s: Selection, nu: int) -> Place:
    """The judgement of one ν at the chosen place, over all cases of the run."""
    at = cell(s)
    n = valid_cases(s, at)
    inside = float(s.at("coverage_map", nu=nu, level=95).values[at.row, at.column])
    bars = shares(s, at, nu)
    if not n or not np.isfinite(inside) or not np.isfinite(bars).all():
        return Place(0, 0, s.nominal, 0, 0, 0, len(bars), True)
    return place_record(inside * n, n, s.nominal, bars.tolist(), effective(s, at, nu, n))


def effective(s: Selection, at: Cell, nu: int, n: int) -> float | None:
    """Independent cases that `n` dependent ones are worth there; None where the run did not keep every case.

    By the run's own block bootstrap of two series, "inside the 95 % interval" and "above the median": the larger ratio of the
    variance of the mean over blocks to that of as many independent cases.
    """
    fields: Any = s.options.get("fields")
    attrs = s.verification.attrs
    if fields is None or fields.sizes.get("map_case") != int(attrs["cases"]) or "block_length" not in attrs:
        return None
    here = fields.isel(latitude=at.row, longitude=at.column).sel(lead_time=s.lead_time, variable=s.variable)
    observed, quantiles = here["observed"].values, here["quantiles"].sel(nu=nu).transpose("map_case", "quantile")
    low, middle, high = (quantiles.sel(quantile=q, method="nearest").values for q in (0.025, 0.5, 0.975))
    known = np.isfinite(observed) & np.isfinite(middle)
    if known.sum() != n or n < 2:
        return None
    drawn = bootstrap.resample(n, min(int(attrs["block_length"]), n), DRAWS, int(attrs["seed"]))
    ratios = [1.0]
    for series in ((low <= observed) & (observed <= high), observed > middle):
        hits = series[known].astype(float)
        if 0 < hits.mean() < 1:
            ratios.append(float((drawn @ hits / n).var()) / (hits.var() / n))
    return n / max(ratios)
