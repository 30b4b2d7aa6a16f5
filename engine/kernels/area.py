"""Area weights and regions of a latitude-longitude grid, and weighted means over them.

Weights are normalised to sum 1 over the valid points of each case, so that a constant field scores its constant
whatever is missing and wherever the grid ends (poles included).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.errors import ScoreError
from engine.types import Array, EnsembleView

REGIONS: dict[str, tuple[float, float, float, float]] = {
    "globe": (-90, 90, -180, 180),
    "tropics": (-20, 20, -180, 180),
    "northern extratropics": (20, 90, -180, 180),
    "southern extratropics": (-90, -20, -180, 180),
    "europe": (35, 75, -12.5, 42.5),
}
"""The default regions, [south, north, west, east] in degrees."""


def cell_area(latitude: ArrayLike, bounds: ArrayLike | None = None) -> Array:
    """Relative cell area of each row of a grid, `(latitude,)`, sum 1.

    From the sines of the cell bounds `(latitude, 2)` where given (exact on the sphere), else cos φ, with which a row of
    points exactly at a pole has no area.
    """
    phi = np.deg2rad(np.asarray(latitude, dtype=np.float64))
    if bounds is None:
        area = np.maximum(np.cos(phi), 0.0)
        area[np.abs(np.abs(phi) - np.pi / 2) < 1e-9] = 0.0  # cos(90°) is 6e-17 in floating point
    else:
        edges = np.sin(np.deg2rad(np.asarray(bounds, dtype=np.float64)))
        if edges.shape != (phi.size, 2):
            raise ScoreError(
                "latitude bounds",
                found=f"shape {edges.shape}",
                expected=f"({phi.size}, 2)",
                remedy="Give lower and upper bound of each row.",
            )
        area = np.abs(edges[:, 1] - edges[:, 0])
    if phi.size == 1 and area.sum() == 0:
        area = np.ones(1)
    return area / area.sum()


def region_mask(latitude: ArrayLike, longitude: ArrayLike, box: Sequence[float]) -> NDArray[np.bool_]:
    """Points inside a box [south, north, west, east], `(latitude, longitude)`.

    Edges belong to the box. Longitudes count modulo 360 in any convention, and the box runs eastwards from west to east:
    across Greenwich or the dateline it needs no splitting. East − west ≥ 360 is the full circle.
    """
    south, north, west, east = (float(v) for v in box)
    if not south <= north:
        raise ScoreError(
            "region", found=f"south {south:g}, north {north:g}", expected="south ≤ north", remedy="Give [south, north, west, east]."
        )
    rows = np.asarray(latitude, dtype=np.float64)
    columns = np.asarray(longitude, dtype=np.float64)
    slack = 1e-6  # degrees: float32 coordinates of a box edge stay inside it
    inside_rows = (rows >= south - slack) & (rows <= north + slack)
    if east - west >= 360:
        inside_columns = np.ones(columns.shape, dtype=bool)
    else:
        span = (east - west) % 360
        offset = (columns - west + slack) % 360
        inside_columns = offset <= span + 2 * slack
    return inside_rows[:, None] & inside_columns[None, :]


def region_weights(
    latitude: ArrayLike,
    longitude: ArrayLike,
    regions: Mapping[str, Sequence[float]] | None = None,
    *,
    bounds: ArrayLike | None = None,
) -> Array:
    """Area weights of each region, `(region, latitude, longitude)`, each summing to 1; default regions: `REGIONS`.

    Raises `ScoreError` for a region that holds no grid point, with the extent of the grid.
    """
    columns = np.asarray(longitude, dtype=np.float64)
    area = np.broadcast_to(cell_area(latitude, bounds)[:, None], (np.size(latitude), columns.size))
    weights = []
    for name, box in (REGIONS if regions is None else regions).items():
        inside = np.where(region_mask(latitude, columns, box), area, 0.0)
        if inside.sum() == 0:
            rows = np.asarray(latitude, dtype=np.float64)
            grid = f"latitudes {rows.min():g} … {rows.max():g}, longitudes {columns.min():g} … {columns.max():g}"
            raise ScoreError(
                f"region {name!r}",
                found=f"no grid point in [south, north, west, east] = {list(box)}; the grid covers {grid}",
                expected="at least one point with area",
                remedy="Widen the region, or leave it out.",
            )
        weights.append(inside / inside.sum())
    return np.stack(weights)


def flat(values: NDArray, cases: int) -> NDArray:
    """`(case, *event)` to `(case, point)`."""
    return np.reshape(values, (cases, -1))


def point_weights(view: EnsembleView, weights: Array) -> Array:
    """Weights over the valid points of each case, `(case or 1, region, point)`, sum 1; NaN where none is valid.

    `weights` `(region, *space)` is repeated over the leading part of the event where the event is larger than the space.
    """
    return view.once("point_weights", weights, _point_weights)


def _point_weights(view: EnsembleView, weights: Array) -> Array:
    valid = flat(view.valid, len(view.observed))
    space = np.reshape(np.asarray(weights, dtype=np.float64), (len(weights), -1))
    if valid.shape[1] % space.shape[1]:
        raise ScoreError(
            "weights",
            found=f"space {np.shape(weights)[1:]}",
            expected=f"the end of {view.observed.shape[1:]}",
            remedy="Give one weight a point.",
        )
    space = np.tile(space, (1, valid.shape[1] // space.shape[1]))
    masked = space[None] if valid.all() else np.where(valid[:, None, :], space[None], 0.0)
    total = masked.sum(-1, keepdims=True)
    return masked / np.where(total > 0, total, np.nan)


def valid_share(view: EnsembleView, weights: Array) -> Array:
    """Share of each region's area that is valid, `(case, region)` in [0, 1]."""
    valid = flat(view.valid, len(view.observed))
    space = np.reshape(np.asarray(weights, dtype=np.float64), (len(weights), -1))
    space = np.tile(space, (1, valid.shape[1] // space.shape[1]))
    return np.where(valid[:, None, :], space[None], 0.0).sum(-1) / space.sum(-1)


def case_means(view: EnsembleView, values: NDArray[Any], weights: Array) -> Array:
    """Area-weighted means over the valid points by case and region, `(case, region)`.

    Summed point by point in a fixed order (no BLAS): a case's number does not depend on the cases beside it.
    """
    clean = np.where(flat(view.valid, len(view.observed)), flat(values, len(view.observed)), 0.0)
    share = point_weights(view, weights)
    if np.isfinite(clean).all():
        return np.stack([(clean * share[:, r]).sum(-1) for r in range(share.shape[1])], axis=-1)
    with np.errstate(invalid="ignore"):  # an infinite score counts in its own regions only: 0 × ∞ is not their business
        return np.stack([np.where(share[:, r] == 0, 0.0, clean * share[:, r]).sum(-1) for r in range(share.shape[1])], axis=-1)
