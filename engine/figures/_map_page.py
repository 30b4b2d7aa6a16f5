"""A map for export, drawn by cartopy from our own coastline; nothing is fetched."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.figures import _geo
from engine.figures._print import paper
from engine.figures._style import pretty_units, theme

if TYPE_CHECKING:
    import xarray as xr

MAX_CELLS = 400_000
SEAM = 179.99
"""Cell edges stay this side of ±180: cartopy treats a cell on the seam as wrapped, and takes thirty times as long."""


def draw(
    data: "xr.Dataset", texts: tuple[str, str, str], projection: str, scale: Sequence[str], limits: tuple[float, float], *, dark: bool
) -> Any:
    """The page: map, colour bar, message, footer."""
    import cartopy.crs as ccrs
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import FuncFormatter

    look = theme(dark)
    crs: Any = {
        "equirectangular": ccrs.PlateCarree(),
        "robinson": ccrs.Robinson(),
        "north_polar": ccrs.LambertAzimuthalEqualArea(0, 90),
        "south_polar": ccrs.LambertAzimuthalEqualArea(0, -90),
    }[projection]
    values = next(iter(data.data_vars.values())).values
    shown, lat, lon, step = _geo.thin(values, data["latitude"].values, data["longitude"].values, MAX_CELLS)
    title, subtitle, footer = texts
    footer += f" · one cell in {step * step} drawn" if step > 1 else ""
    polar = projection.endswith("polar")
    page, (_, bottom, _, height) = paper(title, subtitle, footer, dark=dark, height=4.4 if polar else 3.6)
    lift = 0.04
    axes: Any = page.add_axes((0.03, bottom - lift, 0.83, height + lift), projection=crs)
    axes.set_facecolor(look.missing)
    world = _geo.is_global(lon)
    x, y, field = _geo.columns_to_draw(shown, lat, lon)
    x, y = np.clip(x, -SEAM, SEAM) if world else x, np.clip(y, -SEAM / 2, SEAM / 2)
    if polar:  # the other hemisphere would be drawn around the rim
        pole = 1 if projection == "north_polar" else -1
        keep = np.maximum(pole * y[:-1], pole * y[1:]) > 0
        field, y = field[keep], np.clip(pole * y, 0, None)[np.concatenate([keep, [False]]) | np.concatenate([[False], keep])] * pole
    elif world:
        axes.set_global()
    colours = LinearSegmentedColormap.from_list("scale", list(scale))
    mesh = axes.pcolormesh(
        x, y, np.ma.masked_invalid(field), transform=ccrs.PlateCarree(), cmap=colours, vmin=limits[0], vmax=limits[1], rasterized=True
    )
    if polar:
        import matplotlib.path as mpath

        turn = np.linspace(0, 2 * np.pi, 181)
        radius = float(np.sqrt(2) * 6378137.0)
        axes.set_extent((-radius, radius, -radius, radius), crs=crs)
        axes.set_boundary(mpath.Path(radius * np.stack([np.sin(turn), np.cos(turn)], 1)), transform=crs)
    coast_lon, coast_lat = _geo.coastlines()
    points = crs.transform_points(ccrs.PlateCarree(), coast_lon.astype(float), coast_lat.astype(float))
    if polar:  # what lies behind the rim would be drawn far outside the picture
        points[(1 if projection == "north_polar" else -1) * coast_lat < 0] = np.nan
    points[~np.isfinite(points)] = np.nan
    axes.plot(points[:, 0], points[:, 1], color="#000000" if dark else look.coast, linewidth=0.6, scalex=False, scaley=False)
    axes.spines["geo"].set_edgecolor(look.muted)
    bar_axes = page.add_axes((0.89, bottom + 0.08 * height, 0.018, height * 0.8))
    bar = page.colorbar(mesh, cax=bar_axes)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar_axes.tick_params(colors=look.ink, labelsize=8)
    bar_axes.set_title(pretty_units(str(data.attrs["units"])), fontsize=9, color=look.ink)
    if data.attrs["units"] == "1":
        bar_axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g}%"))
    return page
