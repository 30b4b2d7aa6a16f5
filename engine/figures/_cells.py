"""What a Chart's layers cannot hold: a grid of coloured cells with a number in each, and a small picture; and columns of unequal width."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.figures._chart import Chart, Panel
from engine.figures._charted import Charted
from engine.figures._style import Theme, mix, theme
from engine.types import Array

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Cells:
    """Values `(row, column)` at places 0, 1, … of the panel's axes, coloured by `scale` between `limits`; a NaN stays paper."""

    values: Array
    text: Sequence[Sequence[str]]
    hover: Sequence[Sequence[str]]
    scale: Sequence[str]
    limits: tuple[float, float]

    def colour(self, value: float) -> str:
        """The colour of a value."""
        return mix(self.scale, (value - self.limits[0]) / ((self.limits[1] - self.limits[0]) or 1.0))


@dataclass(frozen=True)
class Picture:
    """An image `(row, column, channel)` uint8 of one or three channels, alone in its panel."""

    pixels: NDArray[np.uint8]

    @property
    def rgb(self) -> NDArray[np.uint8]:
        """Three channels."""
        return np.repeat(self.pixels, 3, axis=-1) if self.pixels.shape[-1] == 1 else self.pixels[..., :3]


@dataclass(frozen=True)
class CellPanel(Panel):
    """A panel that holds cells or a picture beside its layers."""

    content: Cells | Picture | None = None


@dataclass(frozen=True)
class Divided(Chart):
    """A chart whose columns have unequal widths."""

    widths: tuple[float, ...] = (1.0,)

    def place(self, panel: Panel, gap_x: float, gap_y: float) -> tuple[float, float, float, float]:
        """As for any chart, with columns by their widths."""
        _, bottom, _, top = super().place(panel, gap_x, gap_y)
        room = (1 - gap_x * (len(self.widths) - 1)) / sum(self.widths)
        left = sum(self.widths[: panel.column]) * room + gap_x * panel.column
        return left, bottom, min(1.0, left + self.widths[panel.column] * room), top


class Celled(Charted):
    """A figure some of whose panels hold cells or a picture."""

    def screen(self, verification: Any, *, dark: bool = False, **options: Any) -> Any:
        """The plotly figure."""
        from engine.figures import _screen

        s = self.choose(verification, options)
        chart = self.chart(self._table(s), s)
        figure = _screen.draw(chart, dark=dark, narrow=bool(s.options.get("narrow")))
        for index, content in _contents(chart):
            _on_screen(figure, str(index + 1) if index else "", content, theme(dark))
        return figure

    def page(self, verification: Any, *, dark: bool = False, **options: Any) -> Any:
        """The matplotlib figure."""
        from engine.figures import _print

        s = self.choose(verification, options)
        chart = self.chart(self._table(s), s)
        page = _print.draw(chart, dark=dark)
        for index, content in _contents(chart):
            _on_page(page.axes[index], content, theme(dark))
        return page


def _contents(chart: Chart) -> list[tuple[int, Cells | Picture]]:
    return [(i, p.content) for i, p in enumerate(chart.panels) if isinstance(p, CellPanel) and p.content is not None]


def _on_screen(figure: "go.Figure", suffix: str, content: Cells | Picture, look: Theme) -> None:
    """A heatmap with its numbers; an image without axes."""
    import plotly.graph_objects as go

    axes: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    if isinstance(content, Picture):
        figure.add_trace(go.Image(z=content.rgb, hoverinfo="skip", **axes))
        bare = {"visible": False, "constrain": "domain"}
        figure.update_layout(
            {
                f"xaxis{suffix}": bare,
                f"yaxis{suffix}": bare | {"range": [content.pixels.shape[0] - 0.5, -0.5], "constraintoward": "top"},
            }
        )
        return
    colourscale = [[i / (len(content.scale) - 1), c] for i, c in enumerate(content.scale)]
    values = [[float(v) if np.isfinite(v) else None for v in row] for row in content.values]
    figure.add_trace(
        go.Heatmap(
            z=values,
            zmin=content.limits[0],
            zmax=content.limits[1],
            colorscale=colourscale,
            showscale=False,
            xgap=2,
            ygap=2,
            hovertext=[list(row) for row in content.hover],
            hoverinfo="text",
            hoverongaps=False,
            **axes,
        )
    )
    figure.update_layout({f"xaxis{suffix}": {"showgrid": False, "ticks": ""}, f"yaxis{suffix}": {"showgrid": False, "ticks": ""}})
    for ink, places in _inks(content, look).items():
        figure.add_trace(
            go.Scatter(
                x=[column for _, column in places],
                y=[row for row, _ in places],
                mode="text",
                text=[content.text[row][column] for row, column in places],
                textfont={"size": 13, "color": ink},
                hoverinfo="skip",
                showlegend=False,
                **axes,
            )
        )


def _on_page(axes: "Axes", content: Cells | Picture, look: Theme) -> None:
    """Cells are vectors, each with a number in black or white, whichever stands out."""
    if isinstance(content, Picture):
        axes.imshow(content.rgb, interpolation="nearest", aspect="equal")
        axes.set_anchor("N")
        axes.set_axis_off()
        return
    from matplotlib.patches import Rectangle

    axes.grid(False)
    axes.tick_params(length=0)
    for (row, column), value in np.ndenumerate(content.values):
        if np.isfinite(value):
            axes.add_patch(Rectangle((column - 0.48, row - 0.47), 0.96, 0.94, facecolor=content.colour(float(value)), edgecolor="none"))
    for ink, places in _inks(content, look).items():
        for row, column in places:
            axes.text(column, row, content.text[row][column], ha="center", va="center", fontsize=9.5, color=ink)


def _inks(content: Cells, look: Theme) -> dict[str, list[tuple[int, int]]]:
    """Places by the colour of the number that stands there: black or white, whichever stands out; muted on bare paper."""
    found: dict[str, list[tuple[int, int]]] = {}
    for (row, column), value in np.ndenumerate(content.values):
        ink = look.muted if not np.isfinite(value) else "#101820" if _bright(content.colour(float(value))) else "#ffffff"
        found.setdefault(ink, []).append((row, column))
    return found


def _bright(colour: str) -> bool:
    """Whether black stands out on it better than white does."""
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2 > 0.18
