"""Sweep: the trade-off over ν, and what else changes with it. A click on a point chooses its ν for every page."""

from typing import Any

import pandas as pd
import streamlit as st

from engine import judging
from pages._parts import choice
from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.header import Looked, header
from pages._parts.words import POINTS, number, percent

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
CHOSEN_ON = {
    "calibrate": "Chosen on the calibration data, which nothing here is verified on.",
    "verify": "No calibration data were given: it is the lowest point of the curve above, and flatters itself.",
}


def meaning(name: str, point: dict[str, Any]) -> str:
    """What an operating point was chosen by."""
    if point["rule"] == "found by a calibration":  # it may have been asked for another rule, and tells itself which
        return "Found by a calibration."
    if point["chosen_on"] == "verify":
        return "The PIT is nearest to uniform." if name == "calibration_first" else "The fair CRPS is least."
    return judging.NEAREST if name == "calibration_first" else judging.LEAST_CRPS


def departed(point: dict[str, Any], grid: list[int]) -> str:
    """The scales that a point was matched by, where the run kept them."""
    curves, nu = point.get("curves") or {}, int(point["nu"])
    if not {"scale", "target_scale"} <= curves.keys() or nu not in grid or len(curves["scale"]) != len(grid):
        return ""
    at = {name: values[grid.index(nu)] for name, values in curves.items()}
    parts = {name: at[name] for name in ("shift", "spread") if name in at}
    return judging.departure(nu, at["scale"], at["target_scale"], "standard deviations", **parts)


def card(looked: Looked, name: str, chosen: dict[str, Any]) -> None:
    """One operating point: what it is for, what it was chosen on and for, and its numbers here."""
    nu = int(chosen["nu"])
    with st.container(border=True, key=f"point_{name}"):
        left, right = st.columns([5, 2], vertical_alignment="center")
        with left:
            st.html(f"<p class='nu-lead'><b>{POINTS[name]}: ν = {nu}</b></p>")
            plain(f"{meaning(name, chosen)} {CHOSEN_ON.get(chosen['chosen_on'], '')}")
            if chosen["remark"]:
                plain(f"{chosen['remark'][0].upper()}{chosen['remark'][1:]}.", "nu-callout")
            if not chosen["here"]:
                plain(f"Chosen for {chosen['chosen_for']}. What is shown here may have another best ν.", "nu-callout")
            elif said := departed(chosen, looked.grid):
                plain(said)
            if nu not in looked.grid:
                plain(f"ν = {nu} was not verified in this run.")
                return
            at = looked.verification.sel(nu=nu, **looked.where)
            unit = str(at["unit"].item())
            says = {  # a run may have been asked for fewer scores
                "crps_fair": lambda value: f"CRPS {number(value)} {unit}",
                "width_95": lambda value: f"95% range {number(value)} {unit} wide",
                "coverage_95": lambda value: f"95% range held {percent(value)}",
            }
            told = " · ".join(say(float(at[score])) for score, say in says.items() if score in at)
            plain(f"On these data: {told}" if told else "")
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
on_point = choice.put_point if looked.uses_nu else None
chart("trade_off", looked, on_point=on_point)

points = judging.operating_points(looked.verification, **looked.where)
for column, (name, chosen) in zip(st.columns(2), points.items(), strict=False):
    with column:
        card(looked, name, chosen)

if str(looked.verification.attrs.get("method")) == "stochastic_attention":
    st.page_link("35_calibrate.py", label="Find ν between these points, with its uncertainty", icon=":material/target:")

st.html(f"<h2 class='nu-section'>{'What changes with ν' if looked.uses_nu else 'What else to know of it'}</h2>")
for pair in (("width_over_nu", "coverage_over_nu"), ("spread_skill_over_nu", "rmse_over_nu")):
    for column, figure in zip(st.columns(2), pair, strict=True):
        with column:
            chart(figure, looked, narrow=True, on_point=on_point)

with st.expander("All numbers, with 95% intervals"):
    st.dataframe(table(looked), hide_index=True, width="stretch")
