"""A picture as data: panels holding layers. A figure builds one Chart; the screen and the page only draw it, so both show the same.

Colours are roles ("accent", "second", "ink", "muted", "good", "band"), turned into values by the theme that draws them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Numbers = Sequence[float]
Symbol = Literal["circle", "ring", "star", "diamond", "none"]


@dataclass(frozen=True)
class Axis:
    """One axis: what it measures and in which unit, its range, and ticks where the numbers themselves are not the ticks."""

    label: str
    range: tuple[float, float] | None = None
    ticks: Numbers | None = None
    tick_text: Sequence[str] | None = None
    percent: bool = False


@dataclass(frozen=True)
class Line:
    """A line; `label` names it in the legend, which appears only where some layer has one."""

    x: Numbers
    y: Numbers
    colour: str = "accent"
    label: str = ""
    dash: bool = False
    width: float = 2.0
    hover: Sequence[str] | None = None


@dataclass(frozen=True)
class Band:
    """A filled range of y along x: where something lies with 95%."""

    x: Numbers
    low: Numbers
    high: Numbers
    colour: str = "accent"
    strength: float = 0.18
    label: str = ""


@dataclass(frozen=True)
class Points:
    """Markers with error bars. `values` come back from a click; `text` stands beside each point, placed by `place`."""

    x: Numbers
    y: Numbers
    colour: str = "accent"
    low: Numbers | None = None
    high: Numbers | None = None
    x_low: Numbers | None = None
    x_high: Numbers | None = None
    symbol: Symbol = "circle"
    size: float = 8.0
    text: Sequence[str] | None = None
    place: Sequence[str] | None = None
    hover: Sequence[str] | None = None
    values: Sequence[Any] | None = None
    label: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars from zero, one width, with error bars where given."""

    x: Numbers
    y: Numbers
    width: float
    colour: str = "accent"
    low: Numbers | None = None
    high: Numbers | None = None
    hover: Sequence[str] | None = None
    label: str = ""


@dataclass(frozen=True)
class Rule:
    """A reference line across the panel at one value of an axis, named beside it."""

    axis: Literal["x", "y"]
    value: float
    colour: str = "muted"
    dash: bool = True
    label: str = ""
    end: Literal["start", "end"] = "end"
    below: bool = False


@dataclass(frozen=True)
class Note:
    """Words at a place of the panel; `anchor` is the side of the words that touches the place."""

    x: float
    y: float
    text: str
    colour: str = "muted"
    anchor: Literal["left", "right", "middle"] = "left"
    shift: float = 0.0
    bold: bool = False
    size: float = 12.0


Layer = Line | Band | Points | Bars | Rule | Note


@dataclass(frozen=True)
class Panel:
    """One coordinate system at (row, column) of the chart's grid."""

    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    title: str = ""
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Chart:
    """The whole picture: message, what it is about, panels, and the footer that states members, estimator and uncertainty."""

    title: str
    subtitle: str
    footer: str
    panels: tuple[Panel, ...]
    row_heights: tuple[float, ...] = (1.0,)
    height: int = 430
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """Columns of the grid."""
        return 1 + max(p.column for p in self.panels)

    def place(self, panel: Panel, gap_x: float, gap_y: float) -> tuple[float, float, float, float]:
        """(left, bottom, right, top) of a panel as fractions of the drawing area."""
        width = (1 - gap_x * (self.columns - 1)) / self.columns
        left = panel.column * (width + gap_x)
        total = sum(self.row_heights)
        usable = 1 - gap_y * (len(self.row_heights) - 1)
        heights = [usable * h / total for h in self.row_heights]
        top = 1 - sum(heights[: panel.row]) - gap_y * panel.row
        return left, max(0.0, top - heights[panel.row]), min(1.0, left + width), top
