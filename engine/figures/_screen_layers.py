"""How each layer of a Chart looks in plotly."""

from typing import TYPE_CHECKING, Any

from engine.figures._chart import Band, Bars, Layer, Line, Note, Points, Rule
from engine.figures._style import Theme, rgba

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SYMBOLS = {"circle": "circle", "ring": "circle-open", "star": "star", "diamond": "diamond", "none": "circle"}


def _bars(low: Any, mid: Any, high: Any, colour: str) -> dict[str, Any] | None:
    """plotly's error bars from interval ends; a bar never has a negative length, even where an interval misses its value."""
    if low is None or high is None:
        return None
    up, down = (
        [max(float(h - m), 0.0) for h, m in zip(high, mid, strict=True)],
        [max(float(m - lo), 0.0) for lo, m in zip(low, mid, strict=True)],
    )
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": colour, "thickness": 1.4, "width": 3}


def add(figure: "go.Figure", layer: Layer, suffix: str, colours: Theme) -> None:
    """Add one layer to the axes with this suffix."""
    import plotly.graph_objects as go

    axes: dict[str, Any] = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    colour = colours.colour(layer.colour)
    named = {
        "name": getattr(layer, "label", "") or "",
        "showlegend": bool(getattr(layer, "label", "")),
        "legendgroup": getattr(layer, "label", ""),
    }
    hover = {"hovertext": list(layer.hover), "hoverinfo": "text"} if getattr(layer, "hover", None) is not None else {"hoverinfo": "skip"}  # type: ignore[union-attr]
    if isinstance(layer, Line):
        line = {"color": colour, "width": layer.width, "dash": "dash" if layer.dash else "solid"}
        figure.add_trace(go.Scatter(x=list(layer.x), y=list(layer.y), mode="lines", line=line, **hover, **named, **axes))
    elif isinstance(layer, Band):
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", **axes}
        figure.add_trace(go.Scatter(x=list(layer.x), y=list(layer.low), showlegend=False, **edge))
        figure.add_trace(
            go.Scatter(x=list(layer.x), y=list(layer.high), fill="tonexty", fillcolor=rgba(colour, layer.strength), **edge, **named)
        )
    elif isinstance(layer, Points):
        marker = {
            "color": colour,
            "size": layer.size,
            "symbol": _SYMBOLS[layer.symbol],
            "opacity": 0 if layer.symbol == "none" else 1,
            "line": {"width": 2 if layer.symbol == "ring" else 0},
        }
        text = (
            {
                "text": list(layer.text),
                "textposition": list(layer.place or ["top right"] * len(layer.text)),
                "textfont": {"color": colour, "size": 12},
            }
            if layer.text is not None
            else {}
        )
        kept = {
            "selected": {"marker": {"opacity": marker["opacity"]}},
            "unselected": {"marker": {"opacity": marker["opacity"]}, "textfont": {"color": colour}},
        }
        figure.add_trace(
            go.Scatter(
                x=list(layer.x),
                y=list(layer.y),
                mode="markers+text" if text else "markers",
                marker=marker,
                cliponaxis=False,
                error_y=_bars(layer.low, layer.y, layer.high, colour),
                error_x=_bars(layer.x_low, layer.x, layer.x_high, colour),
                customdata=None if layer.values is None else [[v] for v in layer.values],
                **text,
                **kept,
                **hover,
                **named,
                **axes,
            )
        )
    elif isinstance(layer, Bars):
        figure.add_trace(
            go.Bar(
                x=list(layer.x),
                y=list(layer.y),
                width=layer.width,
                marker={"color": rgba(colour, 0.75), "line": {"width": 0}},
                error_y=_bars(layer.low, layer.y, layer.high, colours.ink),
                **hover,
                **named,
                **axes,
            )
        )
        figure.update_layout(barmode="overlay")
    elif isinstance(layer, Rule):
        across = {"x": f"x{suffix}", "y": f"y{suffix} domain"} if layer.axis == "x" else {"x": f"x{suffix} domain", "y": f"y{suffix}"}
        ends = (
            {"x0": layer.value, "x1": layer.value, "y0": 0, "y1": 1}
            if layer.axis == "x"
            else {"x0": 0, "x1": 1, "y0": layer.value, "y1": layer.value}
        )
        figure.add_shape(
            type="line",
            xref=across["x"],
            yref=across["y"],
            line={"color": colour, "width": 1.4, "dash": "dash" if layer.dash else "solid"},
            layer="below",
            **ends,
        )
        if layer.label:
            late = 1 if layer.end == "end" else 0
            spot: dict[str, Any] = {"x": layer.value, "y": late, "xanchor": "left", "yanchor": "top" if late else "bottom", "xshift": 3}
            if layer.axis == "y":
                spot = {"x": late, "y": layer.value, "xanchor": "right" if late else "left", "yanchor": "top" if layer.below else "bottom"}
            figure.add_annotation(
                text=layer.label, xref=across["x"], yref=across["y"], showarrow=False, font={"color": colour, "size": 12}, **spot
            )
    else:
        assert isinstance(layer, Note)
        anchor = {"left": "left", "right": "right", "middle": "center"}[layer.anchor]
        text = f"<b>{layer.text}</b>" if layer.bold else layer.text
        figure.add_annotation(
            text=text.replace("\n", "<br>"),
            x=layer.x,
            y=layer.y,
            xref=f"x{suffix}",
            yref=f"y{suffix}",
            xanchor=anchor,
            yanchor="middle",
            yshift=layer.shift,
            align="left",
            showarrow=False,
            font={"color": colour, "size": layer.size},
        )
