"""A map for the screen: a heatmap under one coastline, in plotly; nothing is fetched."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.figures import _geo, _screen
from engine.figures._style import Theme, pretty_units, theme
from engine.types import Array

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr

CLICKABLE = 4_000
"""At most about so many unseen markers: more would make the page slow, and nobody aims finer than this."""


def draw(
    data: "xr.Dataset",
    texts: tuple[str, str, str],
    projection: _geo.Projection,
    scale: Sequence[str],
    limits: tuple[float, float],
    *,
    dark: bool,
    narrow: bool,
) -> "go.Figure":
    """Heatmap, coastline, rim, and unseen markers that carry the cells' places, since a heatmap itself cannot be selected."""
    import plotly.graph_objects as go

    look, plain = theme(dark), projection.key == "equirectangular"
    lat, lon, values = data["latitude"].values, data["longitude"].values, next(iter(data.data_vars.values())).values
    shown, shown_lat, shown_lon, step = _geo.thin(values, lat, lon)
    title, subtitle, footer = texts
    footer += f" · one cell in {step * step} drawn" if step > 1 else ""
    below, height = (34, 450) if plain else (14, 500)
    figure = _screen.empty(title, subtitle, footer, dark=dark, height=height, narrow=narrow, below=below)
    if plain:
        x, y, z = _geo.columns_to_draw(shown, shown_lat, shown_lon)
        x_range, y_range = (float(x[0]), float(x[-1])), (float(min(y[0], y[-1])), float(max(y[0], y[-1])))
    else:
        half_x, half_y = projection.extent
        x, y, z = _geo.raster(shown, shown_lat, shown_lon, projection, 600 if half_x > half_y else 440)
        x_range, y_range = (-1.02 * half_x, 1.02 * half_x), (-1.02 * half_y, 1.02 * half_y)
    unit = str(data.attrs["units"])
    bar: dict[str, Any] = {"title": {"text": pretty_units(unit), "font": {"color": look.ink}}, "tickfont": {"color": look.ink}}
    bar |= {"thickness": 14, "len": 0.95, "outlinewidth": 0, "nticks": 7, "x": 1.01} | ({"tickformat": ".0%"} if unit == "1" else {})
    rim_x, rim_y = _geo.outline(projection)
    if plain:
        figure.update_layout(plot_bgcolor=look.missing)
    elif not np.isfinite(values).all():
        ground = {"fill": "toself", "fillcolor": look.missing, "line": {"width": 0}, "zorder": -1}
        figure.add_scatter(x=rim_x, y=rim_y, mode="lines", hoverinfo="skip", **ground)
    colourscale = [[i / (len(scale) - 1), c] for i, c in enumerate(scale)]
    colours = {"zmin": limits[0], "zmax": limits[1], "colorscale": colourscale, "colorbar": bar}
    figure.add_trace(go.Heatmap(x=x, y=y, z=z.astype(np.float32), zsmooth=False, hoverinfo="skip", **colours))
    coast_x, coast_y = _coast(projection, x_range)
    # black on both papers: the coast lies on the colours of the map, never on the paper
    figure.add_scatter(x=coast_x, y=coast_y, mode="lines", line={"color": "#101820", "width": 0.9}, hoverinfo="skip", name="coast")
    if not plain:
        figure.add_scatter(x=rim_x, y=rim_y, mode="lines", line={"color": look.muted, "width": 1}, hoverinfo="skip")
    _cells(figure, values, lat, lon, projection, unit)
    _axes(figure, plain, x_range, y_range, look)
    return figure


def mark(figure: "go.Figure", data: "xr.Dataset", projection: _geo.Projection, latitude: float, longitude: float) -> None:
    """A ring around the cell that holds a place, seen on light and on dark colours."""
    lat, lon = data["latitude"].values, data["longitude"].values
    row, column = (int(i) for i in _geo.nearest(lat, lon, np.asarray(latitude), np.asarray(longitude)))
    x, y = _forward(projection, lon[column : column + 1], lat[row : row + 1], lon)
    for size, colour in ((18, "#000000"), (14, "#ffffff")):
        ring = {"symbol": "circle-open", "size": size, "color": colour, "line": {"width": 2.5}}
        figure.add_scatter(x=x.tolist(), y=y.tolist(), mode="markers", marker=ring, hoverinfo="skip", name="marked")


def _cells(figure: "go.Figure", values: Array, lat: Array, lon: Array, projection: _geo.Projection, unit: str) -> None:
    """Unseen markers at cell centres: hover, and on a click customdata = [latitude, longitude, value, place]."""
    few, few_lat, few_lon, _ = _geo.thin(values, lat, lon, CLICKABLE)
    grid_lon, grid_lat = (a.ravel() for a in np.meshgrid(few_lon, few_lat))
    x, y = _forward(projection, grid_lon, grid_lat, lon)
    seen = np.isfinite(x)
    custom = [
        [round(float(a), 4), round(float(b), 4), float(f"{v:.4g}") if np.isfinite(v) else None, _geo.place(a, b)]
        for a, b, v in zip(grid_lat[seen], grid_lon[seen], few.ravel()[seen], strict=True)
    ]
    shown = "%{customdata[2]:.1~%}" if unit == "1" else f"%{{customdata[2]:,.4~r}} {pretty_units(unit)}"
    unseen = {"marker": {"opacity": 0}}
    figure.add_scatter(
        x=np.round(x[seen], 4).tolist(),
        y=np.round(y[seen], 4).tolist(),
        mode="markers",
        marker={"size": 10, "opacity": 0, "color": "#000000"},
        customdata=custom,
        hovertemplate=f"%{{customdata[3]}}<br><b>{shown}</b><extra></extra>",
        selected=unseen,
        unselected=unseen,
        name="cells",
    )
    figure.update_layout(clickmode="event+select", hovermode="closest")


def _forward(projection: _geo.Projection, lon: Array, lat: Array, columns: Array) -> tuple[Array, Array]:
    """Places on the drawing; on a regional latitude-longitude map along its own axis."""
    east = (lon + 180) % 360 - 180
    if projection.key == "equirectangular" and not _geo.is_global(columns):
        first = _geo.edges(_geo.centred(columns, np.zeros((1, len(columns))))[0])[0]
        east = first + (lon - first) % 360
    return projection.forward(east, lat)


def _coast(projection: _geo.Projection, x_range: tuple[float, float]) -> tuple[Array, Array]:
    """The coastline on the drawing; repeated a turn away where a regional map reaches beyond ±180."""
    lon, lat = _geo.coastlines()
    if projection.key == "equirectangular" and (x_range[0] < -180 or x_range[1] > 180):
        gap = np.array([np.nan], np.float32)
        lon, lat = np.concatenate([lon - 360, gap, lon, gap, lon + 360]), np.concatenate([lat, gap, lat, gap, lat])
    x, y = projection.forward(lon, lat)
    return np.asarray(x, np.float32), np.asarray(y, np.float32)


def _axes(figure: "go.Figure", plain: bool, x_range: tuple[float, float], y_range: tuple[float, float], look: Theme) -> None:
    """Degrees along a latitude-longitude map, none on a projection; true shape in both."""
    bare: dict[str, Any] = {"showgrid": False, "zeroline": False, "showline": False, "fixedrange": True, "constrain": "domain"}
    x: dict[str, Any] = bare | {"range": list(x_range), "visible": plain}
    y: dict[str, Any] = bare | {"range": list(y_range), "visible": plain, "scaleanchor": "x", "constraintoward": "top"}
    if plain:
        step = 60 if x_range[1] - x_range[0] > 180 else 20
        lon = [v for v in range(-360, 361, step) if x_range[0] <= v <= x_range[1]]
        lat = [v for v in range(-90, 91, step // 2) if y_range[0] <= v <= y_range[1]]
        ticks = {"tickfont": {"size": 11, "color": look.muted}, "ticks": "outside", "tickcolor": look.muted, "tickmode": "array"}
        x |= ticks | {"tickvals": lon, "ticktext": [_degrees((v + 180) % 360 - 180, "E", "W") for v in lon]}
        y |= ticks | {"tickvals": lat, "ticktext": [_degrees(v, "N", "S") for v in lat]}
    figure.update_layout(xaxis=x, yaxis=y, margin={"r": 84})


def _degrees(value: int, positive: str, negative: str) -> str:
    """`60°N`; the equator, Greenwich and the dateline belong to neither side."""
    return f"{abs(value)}°" + ("" if value == 0 or abs(value) == 180 else positive if value > 0 else negative)
