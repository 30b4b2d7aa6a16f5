"""Sweep: the trade-off over ν, and what else changes with it. A click on a point chooses its ν for every page."""

from typing import Any

import pandas as pd
import streamlit as st

from pages._parts import choice
from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.header import Looked, header
from pages._parts.words import POINTS, number, operating_points, percent

TITLE = "Choose ν"
ICON = ":material/tune:"
SHOWN = {
    "w1_pit": "W₁(PIT)",
    "coverage_95": "coverage",
    "width_95": "95% width",
    "crps_fair": "fair CRPS",
    "rmse_pooled": "RMSE",
    "spread_skill_ratio": "spread/error",
}
MEANING = {
    "calibration_first": "The spread of its members matches the frozen model's own error.",
    "score_oriented": "Its forecasts are closest to what happened, as the CRPS counts.",
}


def choose(points: list[dict[str, Any]]) -> None:
    """A clicked point carries its ν."""
    data = points[0].get("customdata")
    value = data[0] if isinstance(data, list | tuple) and data else data.get("0") if isinstance(data, dict) else data
    if value is not None:
        choice.put(nu=int(value))


CHOSEN_ON = {
    "calibrate": "Chosen on the calibration data, which nothing here is verified on.",
    "verify": "No calibration data were given: it is the lowest point of the curve above, and flatters itself.",
}


def point(looked: Looked, name: str, nu: int, chosen_on: str, rule: str) -> None:
    """One operating point: what it is for, and its numbers."""
    at = looked.verification.sel(nu=nu, **looked.where)
    unit = str(at["unit"].item())
    with st.container(border=True, key=f"point_{name}"):
        left, right = st.columns([5, 2], vertical_alignment="center")
        with left:
            st.html(f"<p class='nu-lead'><b>{POINTS[name]}: ν = {nu}</b></p>")
            # a calibration may have been asked for another rule; it tells itself which
            meaning = "Found by a calibration." if rule == "found by a calibration" else MEANING[name]
            plain(f"{meaning} {CHOSEN_ON.get(chosen_on, '')}")
            says = {  # a run may have been asked for fewer scores
                "crps_fair": lambda value: f"CRPS {number(value)} {unit}",
                "width_95": lambda value: f"95% range {number(value)} {unit} wide",
                "coverage_95": lambda value: f"95% range held {percent(value)}",
            }
            plain(" · ".join(say(float(at[score])) for score, say in says.items() if score in at))
        right.button(
            f"Show ν = {nu}", key=f"show_{name}", width="stretch", disabled=nu == looked.nu, on_click=choice.put, kwargs={"nu": nu},
        )  # fmt: skip


def table(looked: Looked) -> pd.DataFrame:
    """One row a ν: value and interval of each score."""
    at = looked.verification.sel(**looked.where)
    method = str(looked.verification.attrs.get("method_title"))
    columns: dict[str, Any] = {"ν": looked.grid} if looked.uses_nu else {"method": [method]}
    for name, label in SHOWN.items():
        if name in at:
            ends = zip(at[name].values, at[f"{name}_low"].values, at[f"{name}_high"].values, strict=True)
            columns[label] = [f"{number(v)}  ({number(low)} … {number(high)})" for v, low, high in ends]
    return pd.DataFrame(columns)


looked = header(
    "Choose ν",
    "Each point is one ν. Left is more accurate, low is more honest. Click a point: every page then shows that ν.",
    without_nu=("Scores", "This method has no ν to choose: it is one point. Left is more accurate, low is more honest."),
)
on_point = choose if looked.uses_nu else None
chart("trade_off", looked, on_point=on_point)

points = operating_points(looked.verification)
for column, (name, chosen) in zip(st.columns(2), points.items(), strict=False):
    with column:
        point(looked, name, int(chosen["nu"]), str(chosen.get("chosen_on", "")), str(chosen.get("rule", "")))

if str(looked.verification.attrs.get("method")) == "stochastic_attention":
    st.page_link("35_calibrate.py", label="Find ν between these points, with its uncertainty", icon=":material/target:")

st.html(f"<h2 class='nu-section'>{'What changes with ν' if looked.uses_nu else 'What else to know of it'}</h2>")
for pair in (("width_over_nu", "coverage_over_nu"), ("spread_skill_over_nu", "rmse_over_nu")):
    for column, figure in zip(st.columns(2), pair, strict=True):
        with column:
            chart(figure, looked, narrow=True, on_point=on_point)

with st.expander("All numbers, with 95% intervals"):
    st.dataframe(table(looked), hide_index=True, width="stretch")
