"""Draws a Chart with matplotlib for export: `Figure` objects only, since pyplot's state is shared between sessions."""

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.figures._chart import Axis, Band, Bars, Chart, Layer, Line, Note, Points, Rule
from engine.figures._style import Theme, theme, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Page

WIDTH = 7.6
_SYMBOLS = {"circle": "o", "ring": "o", "star": "*", "diamond": "D", "none": "none"}


def paper(
    title: str, subtitle: str, footer: str, *, dark: bool, height: float, above: float = 0.0
) -> tuple["Page", tuple[float, float, float, float]]:
    """A page with message, subject and footer, and the rectangle (left, bottom, width, height) that is left for the drawing.

    `height` of the drawing and room `above` it (for a legend, for panels' titles) are in inches.
    """
    from matplotlib.figure import Figure as Page

    colours = theme(dark)
    titles, subs, feet = wrap(title, 66), wrap(subtitle, 98), wrap(footer, 112)
    head, foot = 0.26 * len(titles) + 0.2 * len(subs) + 0.3 + above, 0.15 * len(feet) + 0.68
    total = height + head + foot
    page = Page(figsize=(WIDTH, total), facecolor=colours.paper)
    page.text(
        0.015, 1 - 0.1 / total, "\n".join(titles), ha="left", va="top", fontsize=13, fontweight="bold", color=colours.ink, linespacing=1.25
    )
    page.text(0.015, 1 - (0.16 + 0.26 * len(titles)) / total, "\n".join(subs), ha="left", va="top", fontsize=10, color=colours.muted)
    page.text(0.015, 0.07 / total, "\n".join(feet), ha="left", va="bottom", fontsize=7.5, color=colours.muted, linespacing=1.3)
    return page, (0.105, foot / total, 0.865, height / total)


def draw(chart: Chart, *, dark: bool) -> "Page":
    """The chart as a matplotlib figure."""
    colours = theme(dark)
    titled = any(p.title for p in chart.panels)
    named = any(getattr(layer, "label", "") and not isinstance(layer, Rule) for p in chart.panels for layer in p.layers)
    above = 0.14 * titled + 0.14 * named
    page, (left, bottom, width, height) = paper(
        chart.title, chart.subtitle, chart.footer, dark=dark, height=chart.height / 105, above=above
    )
    for panel in chart.panels:
        x0, y0, x1, y1 = chart.place(panel, 0.085, 0.12)
        axes = page.add_axes((left + x0 * width, bottom + y0 * height, (x1 - x0) * width, (y1 - y0) * height))
        _dress(axes, panel.x, panel.y, colours)
        if panel.title:
            axes.set_title(panel.title, loc="left", fontsize=10, color=colours.ink)
        for layer in panel.layers:
            _layer(axes, layer, colours)
        handles, labels = axes.get_legend_handles_labels()
        if handles and not page.legends:
            corner = (left + width, bottom + height + (0.22 * titled + 0.02) / page.get_figheight())
            page.legend(
                handles,
                labels,
                loc="lower right",
                bbox_to_anchor=corner,
                ncols=len(labels),
                frameon=False,
                fontsize=9,
                labelcolor=colours.ink,
                borderaxespad=0,
                borderpad=0.1,
            )
    return page


def _dress(axes: "Axes", x: Axis, y: Axis, colours: Theme) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_facecolor("none")
    axes.grid(True, color=colours.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=colours.muted, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colours.muted)
    for axis, spec, name in ((axes.xaxis, x, "x"), (axes.yaxis, y, "y")):
        axis.set_label_text(spec.label, fontsize=10, color=colours.ink)
        if spec.ticks is not None:
            axis.set_ticks(list(spec.ticks), None if spec.tick_text is None else list(spec.tick_text))
        else:
            axis.set_major_locator(MaxNLocator(6))
            if spec.percent:
                axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.4g}%".replace("-", "\N{MINUS SIGN}")))
        if spec.range is not None:
            (axes.set_xlim if name == "x" else axes.set_ylim)(*spec.range)


def _errors(low: Any, mid: Any, high: Any) -> np.ndarray | None:
    """matplotlib's (below, above) lengths, never negative."""
    if low is None or high is None:
        return None
    m = np.asarray(mid, float)
    return np.maximum(np.stack([m - np.asarray(low, float), np.asarray(high, float) - m]), 0)


def _layer(axes: "Axes", layer: Layer, colours: Theme) -> None:
    colour = colours.colour(layer.colour)
    label = getattr(layer, "label", "") or None
    if isinstance(layer, Line):
        axes.plot(layer.x, layer.y, color=colour, linewidth=layer.width * 0.8, linestyle="--" if layer.dash else "-", label=label)
    elif isinstance(layer, Band):
        axes.fill_between(
            np.asarray(layer.x, float),
            np.asarray(layer.low, float),
            np.asarray(layer.high, float),
            color=colour,
            alpha=layer.strength,
            linewidth=0,
            label=label,
        )
    elif isinstance(layer, Points):
        face = "none" if layer.symbol == "ring" else colour
        if layer.symbol != "none":
            axes.errorbar(
                np.asarray(layer.x, float),
                np.asarray(layer.y, float),
                yerr=_errors(layer.low, layer.y, layer.high),
                xerr=_errors(layer.x_low, layer.x, layer.x_high),
                fmt=_SYMBOLS[layer.symbol],
                color=colour,
                markerfacecolor=face,
                markersize=layer.size * 0.72,
                elinewidth=1,
                capsize=2,
                label=label,
                linestyle="none",
                clip_on=False,
            )
        for i, text in enumerate(layer.text or ()):
            up, side = (layer.place[i] if layer.place else "top right").split()
            offset = (6 if side == "right" else -6 if side == "left" else 0, 5 if up == "top" else -5 if up == "bottom" else 0)
            align = {"right": "left", "left": "right", "center": "center"}[side]
            va = {"top": "bottom", "bottom": "top", "middle": "center"}[up]
            axes.annotate(
                text.replace("<b>", "").replace("</b>", ""),
                (layer.x[i], layer.y[i]),
                offset,
                textcoords="offset points",
                ha=align,
                va=va,
                fontsize=9,
                color=colour,
            )
    elif isinstance(layer, Bars):
        axes.bar(
            np.asarray(layer.x, float),
            np.asarray(layer.y, float),
            width=layer.width,
            color=colour,
            alpha=0.75,
            label=label,
            yerr=_errors(layer.low, layer.y, layer.high),
            ecolor=colours.ink,
            error_kw={"elinewidth": 1, "capsize": 2},
        )
    elif isinstance(layer, Rule):
        (axes.axvline if layer.axis == "x" else axes.axhline)(
            layer.value, color=colour, linewidth=1.1, linestyle="--" if layer.dash else "-", zorder=1
        )
        if layer.label:
            late = 1 if layer.end == "end" else 0
            if layer.axis == "x":
                axes.annotate(
                    layer.label,
                    (layer.value, late),
                    (3, -1 if late else 1),
                    xycoords=axes.get_xaxis_transform(),
                    textcoords="offset points",
                    va="top" if late else "bottom",
                    fontsize=9,
                    color=colour,
                )
            else:
                axes.annotate(
                    layer.label,
                    (late, layer.value),
                    (0, -3 if layer.below else 2),
                    xycoords=axes.get_yaxis_transform(),
                    textcoords="offset points",
                    ha="right" if late else "left",
                    va="top" if layer.below else "bottom",
                    fontsize=9,
                    color=colour,
                )
    else:
        assert isinstance(layer, Note)
        align = {"left": "left", "right": "right", "middle": "center"}[layer.anchor]
        axes.annotate(
            layer.text,
            (layer.x, layer.y),
            (0, layer.shift * 0.75),
            textcoords="offset points",
            ha=align,
            va="center",
            fontsize=layer.size * 0.75,
            color=colour,
            fontweight="bold" if layer.bold else "normal",
        )
