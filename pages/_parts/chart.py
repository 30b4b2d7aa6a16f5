"""A figure on a page: the picture, its words for those who do not see it, export, and where it comes from."""

import html
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

import engine
from engine.errors import EngineError
from pages._parts.cards import error_card
from pages._parts.header import Looked
from pages._parts.lineage import Shown, lineage
from pages._parts.results import verification_of
from pages._parts.theme import FONT, is_dark

CONFIG = {"displayModeBar": False, "displaylogo": False, "scrollZoom": False, "doubleClick": False, "showTips": False}
MAP_HEIGHT = 204
FORMATS = {"png": "PNG picture", "svg": "SVG picture", "csv": "CSV table", "nc": "NetCDF data"}


@st.cache_data(max_entries=256, show_spinner=False)
def _drawn(key: str, stamp: int, figure: str, dark: bool, select: str) -> Any:
    picture = engine.draw(figure, verification_of(key), dark=dark, **json.loads(select))
    return picture.update_layout(font_family=FONT, hoverlabel_font_family=FONT)


def chart(
    figure: str, looked: Shown, *, on_point: Callable[[list[dict[str, Any]]], None] | None = None, name: str | None = None,
    box: tuple[float, float, float, float] | None = None, **select: Any,
) -> None:  # fmt: skip
    """Draw a figure of the catalogue at what is looked at; `select` adds or overrides selections, `on_point` gets clicked points,
    `box` (south, north, west, east) is the part of a latitude-longitude map to look at.
    """
    dark = is_dark()
    chosen = looked.select | {k: v for k, v in select.items() if v is not None}
    # stable over ν, region and theme: the browser then changes the picture in place instead of building it anew
    place = name or "_".join([figure, *(str(select[k]) for k in ("which",) if k in select)])
    try:
        picture = _drawn(looked.key, looked.stamp, figure, dark, json.dumps(chosen, sort_keys=True))
    except EngineError as refusal:
        error_card(refusal, key=f"error_{place}")
        return
    if figure == "field_map":
        # half a page wide, and a map twice as wide as high: the drawing's own height is for a whole page
        picture.update_layout(height=picture.layout.margin.t + picture.layout.margin.b + MAP_HEIGHT, margin_l=44, margin_r=66)
    if box is not None:
        picture.update_layout(yaxis_range=box[:2], xaxis_range=box[2:])
    texts = {name: str(text) for name, text in (picture.layout.meta or {}).items()}
    options: dict[str, Any] = {"on_select": "ignore"}
    if on_point is not None:

        def clicked() -> None:
            points = st.session_state[f"chart_{place}"].selection.points
            if points:
                on_point(list(points))

        options = {"on_select": clicked, "selection_mode": "points"}
    with st.container(key=f"figure_{place}", gap=None):
        title, subtitle = (html.escape(texts.get(name, "")) for name in ("title", "subtitle"))
        st.html(f"<h3 class='nu-figure'>{title}</h3><p class='nu-note'>{subtitle}</p>")
        st.plotly_chart(picture, theme=None, config=CONFIG, key=f"chart_{place}", alt=texts.get("words") or figure, **options)
        st.html(f"<p class='nu-foot'>{html.escape(texts.get('footer', ''))}</p>")
        _beneath(figure, looked, chosen, texts.get("words", ""), dark, place)


def common_range(looked: Looked, asked: Sequence[dict[str, Any]], figure: str = "field_map") -> list[float]:
    """One colour range for maps that are compared, from the range that each would take alone."""
    ends: list[float] = []
    for select in asked:
        picture = _drawn(looked.key, looked.stamp, figure, is_dark(), json.dumps(looked.select | select, sort_keys=True))
        for trace in picture.data:
            if trace.type == "heatmap":
                ends += [float(trace.zmin), float(trace.zmax)]
    return [min(ends), max(ends)]


def _beneath(figure: str, looked: Shown, chosen: dict[str, Any], words: str, dark: bool, place: str) -> None:
    """Export, description and origin: one quiet row."""
    with st.container(horizontal=True, gap="small", key=f"beneath_{place}"):
        with st.popover("Export", type="tertiary", key=f"export_{place}"):
            _links(figure, looked, chosen, dark)
        with st.popover("In words", type="tertiary", key=f"words_{place}"):
            st.text(words)
        with st.popover("Where it comes from", type="tertiary", key=f"lineage_{place}"):
            lineage(looked)


def _links(figure: str, looked: Shown, chosen: dict[str, Any], dark: bool) -> None:
    """Plain links to the file route: a picture is made when one is followed, and nothing is drawn again on the page."""
    flat = {k: v for k, v in chosen.items() if k != "narrow" and not isinstance(v, list | tuple)}
    flat |= {k: ",".join(map(str, v)) for k, v in chosen.items() if isinstance(v, list | tuple)}
    query = urlencode(flat | ({"dark": 1} if dark else {}))
    links = "".join(
        f"<a class='nu-export' href='export/{looked.key}/{figure}.{fmt}?{html.escape(query)}' download>{label}</a>"
        for fmt, label in FORMATS.items()
    )
    st.html(f"<div class='nu-exports'>{links}</div>")
