"""Maps without a network: coastlines from our own asset, and the projections of the screen by their formulas, in NumPy.

A projection is drawn by resampling: each pixel of a regular x/y raster asks, by the inverse formula, which cell it lies in. So no cell is
ever stretched across the dateline, and the picture is an ordinary heatmap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from engine.errors import ExportError
from engine.types import Array

COASTLINES = Path(__file__).parents[2] / "assets" / "coastlines.npz"
MAX_CELLS = 200_000
"""More cells than this are thinned before they are sent to a browser."""

# Robinson's own table (1974) at 0°, 5°, … 90°: relative length of the parallel, and its distance from the equator
_LENGTH = np.array(
    [
        1,
        0.9986,
        0.9954,
        0.99,
        0.9822,
        0.973,
        0.96,
        0.9427,
        0.9216,
        0.8962,
        0.8679,
        0.835,
        0.7986,
        0.7597,
        0.7186,
        0.6732,
        0.6213,
        0.5722,
        0.5322,
    ]
)
_HEIGHT = np.array(
    [0, 0.062, 0.124, 0.186, 0.248, 0.31, 0.372, 0.434, 0.4958, 0.5571, 0.6176, 0.6769, 0.7346, 0.7903, 0.8435, 0.8936, 0.9394, 0.9761, 1]
)
_PARALLELS = np.arange(0.0, 91.0, 5.0)


@cache
def coastlines() -> tuple[Array, Array]:
    """(longitude, latitude) in degrees, pieces separated by NaN."""
    if not COASTLINES.exists():
        raise ExportError(
            "coastlines",
            found="no assets/coastlines.npz",
            expected="the file that comes with the program",
            remedy="Restore it, or run engine.demo.coastlines.",
        )
    with np.load(COASTLINES) as file:
        return file["longitude"], file["latitude"]


@dataclass(frozen=True)
class Projection:
    """Forward `(lon, lat) → (x, y)`, NaN where unseen, and inverse; `extent` is (x, y) half-widths of the raster."""

    key: str
    title: str
    extent: tuple[float, float]
    forward: Callable[[Array, Array], tuple[Array, Array]]
    inverse: Callable[[Array, Array], tuple[Array, Array]]


def _robinson(lon: Array, lat: Array) -> tuple[Array, Array]:
    a = np.abs(lat)
    return 0.8487 * np.interp(a, _PARALLELS, _LENGTH) * np.deg2rad(lon), 1.3523 * np.interp(a, _PARALLELS, _HEIGHT) * np.sign(lat)


def _robinson_inverse(x: Array, y: Array) -> tuple[Array, Array]:
    a = np.interp(np.abs(y) / 1.3523, _HEIGHT, _PARALLELS, right=np.nan)
    lon = np.rad2deg(x / (0.8487 * np.interp(a, _PARALLELS, _LENGTH)))
    outside = np.abs(lon) > 180
    return np.where(outside, np.nan, lon), np.where(outside, np.nan, a * np.sign(y))


def _polar(pole: int) -> tuple[Callable[[Array, Array], tuple[Array, Array]], Callable[[Array, Array], tuple[Array, Array]]]:
    """Lambert's equal-area view of one hemisphere from above its pole, Greenwich pointing down (north) or up (south)."""

    def forward(lon: Array, lat: Array) -> tuple[Array, Array]:
        r = np.where(pole * lat >= 0, np.sqrt(2) * np.sin(np.deg2rad(90 - pole * lat) / 2), np.nan)
        return r * np.sin(np.deg2rad(lon)), -pole * r * np.cos(np.deg2rad(lon))

    def inverse(x: Array, y: Array) -> tuple[Array, Array]:
        r = np.hypot(x, y)
        with np.errstate(invalid="ignore"):
            lat = pole * (90 - 2 * np.rad2deg(np.arcsin(np.where(r <= 1, r, np.nan) / np.sqrt(2))))
        return np.where(r <= 1, np.rad2deg(np.arctan2(x, -pole * y)), np.nan), lat

    return forward, inverse


def _plain(a: Array, b: Array) -> tuple[Array, Array]:
    return a, b


PROJECTIONS = {
    p.key: p
    for p in (
        Projection("equirectangular", "latitude by longitude", (180.0, 90.0), _plain, _plain),
        Projection("robinson", "Robinson", (0.8487 * np.pi, 1.3523), _robinson, _robinson_inverse),
        Projection("north_polar", "northern hemisphere, equal area", (1.0, 1.0), *_polar(1)),
        Projection("south_polar", "southern hemisphere, equal area", (1.0, 1.0), *_polar(-1)),
    )
}


def outline(projection: Projection) -> tuple[Array, Array]:
    """The rim of the map in projected coordinates, one closed line."""
    turn = np.linspace(0, 2 * np.pi, 181)
    if projection.key.endswith("polar"):
        return np.sin(turn), np.cos(turn)
    lat = np.linspace(-90, 90, 91)
    return projection.forward(
        np.concatenate([np.full(91, -180.0), np.full(91, 180.0), [-180.0]]), np.concatenate([lat, lat[::-1], [-90.0]])
    )


def place(lat: float, lon: float) -> str:
    """`52.1°N 10.5°W`."""
    east = (lon + 180) % 360 - 180
    return f"{abs(lat):.1f}°{'N' if lat >= 0 else 'S'} {abs(east):.1f}°{'E' if east >= 0 else 'W'}"


def edges(centres: Array, low: float | None = None, high: float | None = None) -> Array:
    """Cell edges half way between centres; the outer ones mirrored, then kept within [low, high]."""
    middle = (centres[1:] + centres[:-1]) / 2
    both = np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
    return both if low is None and high is None else np.clip(both, low, high)


def unwrapped(longitude: Array) -> Array:
    """Longitudes rising without a jump from the first one, whatever the file's convention."""
    return longitude[0] + (longitude - longitude[0]) % 360


def is_global(longitude: Array) -> bool:
    """The columns go all the way round: one more step from the last is the first again."""
    steps = np.diff(unwrapped(longitude))
    return len(longitude) > 2 and bool(np.allclose(steps, steps[0], rtol=0.02)) and abs(len(longitude) * steps[0] - 360) < 0.5 * steps[0]


def centred(longitude: Array, field: Array) -> tuple[Array, Array]:
    """Columns re-ordered to rise from −180 to 180; a global field gets its cell at the seam on both sides, so that no gap is left.

    A regional field keeps its columns together, also across the dateline: it may then reach beyond 180.
    """
    if not is_global(longitude):
        lon = unwrapped(longitude)
        return lon - 360 * round(float(lon.mean()) / 360), field
    lon = (longitude + 180) % 360 - 180
    order = np.argsort(lon)
    lon, field = lon[order], field[..., order]
    return np.concatenate([[lon[-1] - 360], lon, [lon[0] + 360]]), np.concatenate([field[..., -1:], field, field[..., :1]], -1)


def columns_to_draw(field: Array, latitude: Array, longitude: Array) -> tuple[Array, Array, Array]:
    """(x edges, y edges, cells) of a latitude-longitude map: a global one fills −180 … 180 exactly, cells cut at the seam."""
    centres, cells = centred(longitude, field)
    if not is_global(longitude):
        return edges(centres), edges(latitude, -90, 90), cells
    x = edges(centres, -180, 180)
    kept = np.diff(x) > 1e-9
    return np.concatenate([x[:-1][kept], x[-1:]]), edges(latitude, -90, 90), cells[:, kept]


def thin(field: Array, latitude: Array, longitude: Array, limit: int = MAX_CELLS) -> tuple[Array, Array, Array, int]:
    """Every n-th row and column, n the smallest that brings the field below `limit` cells; returns n too."""
    n = int(np.ceil(np.sqrt(field.size / limit))) if field.size > limit else 1
    # a step that divides the columns keeps a global grid global: the last column is still one step from the first
    n = next((k for k in range(n, 2 * n) if field.shape[1] % k == 0), n)
    return field[::n, ::n], latitude[::n], longitude[::n], n


def nearest(latitude: Array, longitude: Array, lat: Array, lon: Array) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the cell that holds each place, longitudes modulo 360."""
    rows = np.argsort(latitude)
    row = rows[np.searchsorted((latitude[rows][1:] + latitude[rows][:-1]) / 2, lat)]
    turn = longitude % 360
    columns = np.argsort(turn)
    ordered = turn[columns]
    wrapped = np.concatenate([ordered, [ordered[0] + 360]])
    at = np.searchsorted((wrapped[1:] + wrapped[:-1]) / 2, np.mod(lon, 360)) % len(ordered)
    # left of the first middle between the last (minus a turn) and the first column lies the last column's cell
    at = np.where(np.mod(lon, 360) < (ordered[0] + ordered[-1] - 360) / 2, len(ordered) - 1, at)
    return row, columns[at]


def raster(field: Array, latitude: Array, longitude: Array, projection: Projection, width: int = 600) -> tuple[Array, Array, Array]:
    """(x, y, values float32) of the field on the projection's regular raster; NaN outside the map and outside a regional field."""
    half_x, half_y = projection.extent
    height = round(width * half_y / half_x)
    x, y = (np.arange(width) + 0.5) / width * 2 * half_x - half_x, (np.arange(height) + 0.5) / height * 2 * half_y - half_y
    lon, lat = projection.inverse(*np.meshgrid(x, y))
    seen = np.isfinite(lon) & np.isfinite(lat)
    row, column = nearest(latitude, longitude, np.where(seen, lat, 0.0), np.where(seen, lon, 0.0))
    if not is_global(longitude):
        lon_edges, lat_edges = edges(unwrapped(longitude)), np.sort(edges(latitude))[[0, -1]]
        seen &= ((lon - lon_edges[0]) % 360 <= lon_edges[-1] - lon_edges[0]) & (lat >= lat_edges[0]) & (lat <= lat_edges[1])
    return x, y, np.where(seen, field[row, column], np.nan).astype(np.float32)
