"""Maps: one forecast beside what was observed, or the score at each place over all forecasts; a click on a place opens it."""

import json
from typing import Any

import streamlit as st

from engine.errors import EngineError
from pages._parts import choice
from pages._parts.cards import error_card, plain
from pages._parts.chart import chart, common_range
from pages._parts.header import Looked, header
from pages._parts.results import map_cases
from pages._parts.words import moment

TITLE = "Maps"
ICON = ":material/public:"
ONE, ALL = "One forecast", "All forecasts"
MAPS = {
    ONE: {
        "observed": "Observed", "mean": "Forecast mean", "width": "95% width", "error": "Error",
        "lower": "Lower bound", "upper": "Upper bound", "deterministic": "Frozen model",
    },
    ALL: {
        "coverage": "Local coverage", "mean_width": "95% width", "rmse": "Error size", "bias": "Bias",
        "spread": "Spread", "valid": "Valid data",
    },
}  # fmt: skip
SAME_SCALE = ("observed", "mean", "lower", "upper", "deterministic")
"""Fields of one quantity: they share one colour scale, so that colours can be compared."""
WITHOUT_NU = ("observed", "deterministic", "valid")
PROJECTIONS = {
    "equirectangular": "Latitude and longitude",
    "robinson": "Robinson",
    "north_polar": "North pole",
    "south_polar": "South pole",
}
FIRST_PLACE = (50.0, 10.0)


def open_place(points: list[dict[str, Any]]) -> None:
    """A clicked cell carries its latitude and longitude."""
    data = points[0].get("customdata")
    values = list(data.values()) if isinstance(data, dict) else data
    if values is not None and len(values) >= 2:
        choice.put_place(float(values[0]), float(values[1]))


def box_of(looked: Looked, projection: str) -> tuple[float, float, float, float] | None:
    """The chosen region as a part of the map; None for the whole one."""
    if projection != "equirectangular":
        return None
    south, north, west, east = json.loads(looked.verification.attrs.get("regions") or "{}").get(looked.region, (-90, 90, 0, 360))
    west, east = ((v + 180) % 360 - 180 for v in (west, east))
    whole = north - south >= 180 or east <= west  # across the dateline the map would fall apart in two
    return None if whole and north - south >= 180 else (south, north, -180.0, 180.0) if whole else (south, north, west, east)


looked = header("Maps", "Where the forecast is unsure, and whether it has reason to be. Click a place: its own record opens below.")
cases = map_cases(looked.key)
first, second, third, fourth = st.columns([3, 3, 2, 2], vertical_alignment="bottom")
with first:
    views = [ONE, ALL] if cases else [ALL]
    view = st.segmented_control("Show", views, default=views[0], required=True, key="map_view", persist_state="session") or views[0]
    if view not in views:
        view = ALL
with second:
    position = 0
    if view == ONE:
        if st.session_state.get("map_case", 0) not in range(len(cases)):
            st.session_state["map_case"] = 0
        position = st.selectbox(
            "Forecast from",
            range(len(cases)),
            format_func=lambda i: f"{moment(cases[i][0])}, for {moment(cases[i][1])}",
            key="map_case",
            persist_state="session",
        )
with third:
    projection = st.selectbox("Projection", list(PROJECTIONS), format_func=PROJECTIONS.get, key="map_projection", persist_state="session")
with fourth:
    others = [nu for nu in looked.grid if nu != looked.nu]
    beside = st.selectbox(
        "Compare with",
        [0, *others],
        format_func=lambda nu: "no other ν" if not nu else f"ν = {nu}",
        key="map_second",
        persist_state="session",
        disabled=not others,
    )
names = MAPS[view]
shown = st.pills(
    "Maps",
    list(names),
    selection_mode="multi",
    default=list(names)[:4],
    format_func=names.get,
    key=f"maps_{view}",
    persist_state="session",
    label_visibility="collapsed",
)
if not cases:
    plain("This run kept no maps of single forecasts; the maps over all forecasts are there.")

place = choice.place(FIRST_PLACE)
choice.put_place(*place)
spot = {"latitude": place[0], "longitude": place[1]}
base: dict[str, Any] = {"projection": projection, "narrow": True} | ({"case": position} if view == ONE else {})
rows: list[list[tuple[str, int]]] = []
for which in names:
    if which in (shown or ()):
        both = bool(beside) and beside != looked.nu and which not in WITHOUT_NU
        # a pair has a row of its own; maps without a partner share one while nothing stands between them
        if both:
            rows.append([(which, looked.nu), (which, beside)])
        elif rows and len(rows[-1]) == 1:
            rows[-1].append((which, looked.nu))
        else:
            rows.append([(which, looked.nu)])
wanted = [one for row in rows for one in row]


def group(which: str) -> str:
    """Maps of one group share a colour range."""
    return "field" if which in SAME_SCALE else which


ranges: dict[str, list[float]] = {}
try:
    for key in {group(which) for which, _ in wanted}:
        together = [(which, nu) for which, nu in wanted if group(which) == key]
        if len(together) > 1:
            ranges[key] = common_range(looked, [base | {"which": which, "nu": nu} for which, nu in together])
except EngineError as refusal:
    error_card(refusal, key="error_range")

for row in rows:  # a row at a time, so that neighbours begin at one height
    for column, (which, nu) in zip(st.columns(2), row, strict=False):
        with column:
            chart(
                "field_map", looked, name=f"map_{which}{'' if nu == looked.nu else '_second'}", on_point=open_place,
                box=box_of(looked, projection), which=which, nu=nu, limits=ranges.get(group(which)), **base, **spot,
            )  # fmt: skip
if not wanted:
    plain("Choose a map above.")

st.html("<h2 class='nu-section'>This place</h2>")
plain("The circle on the maps. Left: what was forecast and what happened, forecast by forecast. Right: whether its ranges are honest here.")
left, right = st.columns([3, 2])
with left:
    if cases:
        chart("cell_series", looked, **spot)
with right:
    chart("cell_pit", looked, narrow=True, **spot)
