"""Calibrate: ν*, how it was found, how surely, and whether it holds where it was not chosen."""

import html

import streamlit as st

from pages._parts.calibration import CALIBRATION, Calibration, looked_at
from pages._parts.calibration_cards import per_layer, points, table, verified
from pages._parts.calibration_form import again, first
from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.header import pick_run
from pages._parts.missing import other_run, unknown
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import runs_that, stamp_of, verification_of
from pages._parts.words import variable_title

TITLE = "Calibrate"
ICON = ":material/target:"


def strip(looked: Calibration) -> None:
    """Which calibration, and what it speaks of."""
    attrs = looked.attrs
    with st.container(key="strip"):
        left, right = st.columns([2, 3], vertical_alignment="bottom")
        with left:
            pick_run(looked.key, runs_that(calibrate=True))
        with right:
            about = f"{variable_title(str(attrs['variable']))}, {float(attrs['lead_hours']):g} h ahead, {attrs.get('region')}"
            plain(f"{about} · {attrs.get('cases')} calibration cases · ensembles of {attrs.get('members')}", "nu-note nu-right")


def answer(looked: Calibration) -> None:
    """ν*, in one glance: the number, how sure, what it was matched to; then what is to be known about it."""
    if CALIBRATION not in looked.points:
        plain("No ν could be chosen on these data.", "nu-headline")
    else:
        number, words = st.columns([2, 5], vertical_alignment="center")
        with number:
            st.html(f"<p class='nu-star'>ν* = {looked.nu}</p>")
        with words:
            plain(looked.interval(), "nu-lead")
            plain(looked.matched())
    for head, text in looked.warnings:
        st.html(f"<p class='nu-callout' role='note'><b>{html.escape(head)}</b> {html.escape(text)}</p>")


st.html(
    "<h1 class='nu-title'>Calibrate</h1><p class='nu-claim'>Finds ν* on data that the verification never sees: as a rule the ν at "
    "which the members stray from the frozen forecast as far as that forecast errs.</p>"
)
run, sweep, missing = looked_at()
if missing is not None:
    unknown(missing)
    if done := [r for r in runs_that(calibrate=True) if r.status == "done"]:
        other_run(done)
    st.page_link("10_start.py", label="Go to the start page")
    st.stop()
if run is None:
    first(sweep)
    st.stop()
if run.status in LIVE:
    follow(run.key)
    st.stop()
if run.status != "done":
    ended_badly(run.key)
    st.stop()

looked = Calibration(run.key, stamp_of(run.key), verification_of(run.key))
strip(looked)
answer(looked)
chart("scale_fit", looked)
if looked.points:
    st.html("<h2 class='nu-section'>Two choices, and what each costs</h2>")
    points(looked)
    verified(looked)
st.html("<h2 class='nu-section'>Can it be believed?</h2>")
chart("calibration_audit", looked)
chart("calibration_costs", looked)
chart("calibration_periods", looked)
per_layer(looked)
with st.expander("All numbers, with 95% intervals"):
    st.dataframe(table(looked), hide_index=True, width="stretch")
again(run)
