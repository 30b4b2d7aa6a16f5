"""Draws a Chart with plotly: transparent paper, explicit colours, nothing that would be fetched from a network."""

from typing import TYPE_CHECKING, Any

from engine.figures._chart import Axis, Chart, Points, Rule
from engine.figures._screen_layers import add
from engine.figures._style import FONT, Theme, theme, wrap

if TYPE_CHECKING:
    import plotly.graph_objects as go


def empty(chart_title: str, subtitle: str, footer: str, *, dark: bool, height: int, narrow: bool = False, below: int = 46) -> "go.Figure":
    """A figure with message, subject and footer in place, and margins that fit their lines; `below` is room for the x axis."""
    import plotly.graph_objects as go

    colours = theme(dark)
    columns = 50 if narrow else 98
    title, sub, foot = wrap(chart_title, int(columns * 0.7)), wrap(subtitle, columns), wrap(footer, int(columns * 1.17))
    top, bottom = 22 * len(title) + 18 * len(sub) + 24, below + 15 * len(foot) + 8
    heading = f"<b>{'<br>'.join(title)}</b><br><span style='font-size:13px;color:{colours.muted}'>{'<br>'.join(sub)}</span>"
    figure = go.Figure()
    figure.update_layout(
        template=go.layout.Template(),
        title={
            "text": heading,
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 20, "l": 8},
            "font": {"size": 17, "color": colours.ink},
        },
        font={"family": FONT, "size": 12, "color": colours.ink},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"t": top, "b": bottom, "l": 64, "r": 24},
        height=height + 20 * (len(title) + len(sub) - 2),
        showlegend=False,
        hoverlabel={"bgcolor": colours.paper, "font": {"color": colours.ink, "family": FONT}, "bordercolor": colours.muted},
        dragmode=False,
    )
    figure.add_annotation(
        text="<br>".join(foot),
        x=0,
        xref="paper",
        xanchor="left",
        y=0,
        yref="paper",
        yanchor="top",
        yshift=-below,
        xshift=-56,
        showarrow=False,
        align="left",
        font={"size": 11, "color": colours.muted},
    )
    return figure


def draw(chart: Chart, *, dark: bool, narrow: bool = False) -> "go.Figure":
    """The chart as a plotly figure; the first panel's axes are x and y, the next x2 and y2, …"""
    colours = theme(dark)
    figure = empty(chart.title, chart.subtitle, chart.footer, dark=dark, height=chart.height, narrow=narrow)
    for index, panel in enumerate(chart.panels):
        suffix = str(index + 1) if index else ""
        left, bottom, right, top = chart.place(panel, 0.075, 0.09)
        figure.update_layout(
            {
                f"xaxis{suffix}": _axis(panel.x, colours) | {"domain": [left, right], "anchor": f"y{suffix}"},
                f"yaxis{suffix}": _axis(panel.y, colours) | {"domain": [bottom, top], "anchor": f"x{suffix}"},
            }
        )
        if panel.title:
            figure.add_annotation(
                text=panel.title,
                x=left,
                xref="paper",
                xanchor="left",
                y=top,
                yref="paper",
                yanchor="bottom",
                showarrow=False,
                font={"size": 13, "color": colours.ink},
            )
        for layer in panel.layers:
            add(figure, layer, suffix, colours)
    titled = any(p.title for p in chart.panels)
    named = any(getattr(layer, "label", "") and not isinstance(layer, Rule) for p in chart.panels for layer in p.layers)
    layout: Any = figure.layout
    figure.update_layout(margin={"t": layout.margin.t + 20 * titled + 12 * named})
    if named:
        # above the panels' own titles, in room that is made for it
        margin = layout.margin
        lift = 20 * titled / max(1, layout.height - margin.t - margin.b)
        legend = {
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1 + lift,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"color": colours.ink, "size": 13},
        }
        figure.update_layout(showlegend=True, legend=legend | {"itemclick": False, "itemdoubleclick": False})
    if any(isinstance(layer, Points) and layer.values is not None for p in chart.panels for layer in p.layers):
        figure.update_layout(clickmode="event+select", hovermode="closest")
    return figure


def _axis(axis: Axis, colours: Theme) -> dict[str, Any]:
    """The look of an axis; fixed range, since a picture that a scroll wheel moves by accident misleads."""
    look: dict[str, Any] = {
        "title": {"text": axis.label, "font": {"color": colours.ink, "size": 13}, "standoff": 8},
        "tickfont": {"color": colours.muted, "size": 12},
        "gridcolor": colours.grid,
        "linecolor": colours.muted,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": colours.muted,
        "ticklen": 4,
        "fixedrange": True,
        "automargin": False,
    }
    if axis.range is not None:
        look["range"] = list(axis.range)
    if axis.ticks is not None:
        look |= {"tickmode": "array", "tickvals": list(axis.ticks)}
        if axis.tick_text is not None:
            look["ticktext"] = list(axis.tick_text)
    elif axis.percent:
        look |= {"tickformat": ".2~%"}
    else:
        look |= {"nticks": 7}
    return look
