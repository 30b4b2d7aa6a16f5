"""DIRECTOR: a frozen stack distilled into one small stochastic step; its paths, beside its teacher and its controls."""

from typing import Any

import streamlit as st

import engine
from pages._parts import choice, director, field_scores, results
from pages._parts.cards import plain
from pages._parts.chart import chart
from pages._parts.classification import Classified, holds_director, looked_at, opened
from pages._parts.director_form import distil
from pages._parts.header import Looked, best_nu, pick_run
from pages._parts.missing import other_run, unknown
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import classifications, runs_that, stamp_of, verification_of

TITLE = "DIRECTOR"
ICON = ":material/route:"


def field_runs() -> list[Any]:
    """Finished runs in which DIRECTOR forecasts fields."""
    return [r for r in runs_that(calibrate=False) if r.spec.get("method") == "director" and r.status == "done"]


def fields(run: Any) -> None:
    """A run on fields: its members' power by scale, and the way to the usual pages."""
    verification = verification_of(run.key)
    first = {"region": str(verification.region.values[0]), "lead_time": float(verification.lead_time[0])}
    looked = Looked(run.key, stamp_of(run.key), verification, best_nu(verification), variable=str(verification.variable.values[0]), **first)
    plain(f"“{run.title}”: each path through the student is one member of the ensemble.", "nu-lead")
    other = field_scores.partner(run)
    field_scores.beside(verification, verification_of(other.key) if other else None)
    if other is None:
        plain("No run of stochastic attention on the same forecasts is there to compare it with: the weather demo makes one.")
        st.page_link("10_start.py", label="Go to the start page")
    if any(str(name).startswith("spectrum") for name in verification.data_vars):
        chart("member_spectrum", looked)
    else:
        plain("This run kept no spectra of its members.")
    with st.container(horizontal=True, gap="small"):
        for page, label in (("30_sweep.py", "Scores"), ("40_diagnose.py", "Check its honesty"), ("50_maps.py", "See the maps")):
            if st.button(label, key=f"to_{page}"):
                choice.put(run=run.key)
                st.switch_page(page, query_params={"run": run.key})


def weather() -> None:
    """The demo's weather model by its student: an ensemble like that of stochastic attention, to be set beside it."""
    with st.container(border=True, key="director_weather"):
        plain("The demo's weather model, by its student as shipped: twenty paths for each of 42 starts. About a minute.", "nu-lead")
        if st.button("Run DIRECTOR on the weather demo", key="run_weather"):
            choice.put(run=engine.submit(engine.director_demo_spec()))
            st.switch_page("30_sweep.py")


def offer(run: Any | None) -> None:
    """Where no result with DIRECTOR is there: the demo, and a student of one's own."""
    demo = results.image_demo_key()
    if demo is not None and demo != (run.key if run else None):
        with st.container(border=True, key="director_demo"):
            plain(
                "The demo: a small vision transformer for pictures of clothes, and its student as shipped. Up to two minutes on two cores.",
                "nu-lead",
            )
            if st.button("Run the image demo", type="primary", key="run_image_demo"):
                choice.put(run=engine.submit(engine.classify_demo_spec()))
                st.rerun()
    weather()
    with st.container(border=True, key="distil_card"):
        st.html("<h2 class='nu-section nu-first'>Distil a student yourself</h2>")
        distil(run)


def shown(c: Classified, entry: str) -> None:
    """A finished run that holds DIRECTOR."""
    with st.container(key="strip"):
        pick_run(c.key, [r for r in classifications() if holds_director(r)])
    plain(director.headline(c, entry), "nu-headline")
    director.sizes(c, entry)
    chart("student_fidelity", c, entry=entry)
    st.html("<h2 class='nu-section'>Where do the paths part?</h2>")
    chart("path_spread", c, entry=entry)
    plain(director.telling(c, entry), "nu-lead")
    st.html("<h2 class='nu-section'>Is its noise worth anything?</h2>")
    if said := director.controls(c, entry):
        plain(said, "nu-lead")
    chart("path_controls", c)
    if st.button("See single examples and their paths", key="to_examples"):
        choice.put_entry(entry)
        st.switch_page("45_classify.py", query_params={"run": c.key, "entry": entry})


st.html(
    "<h1 class='nu-title'>DIRECTOR</h1><p class='nu-claim'>A frozen transformer's stack is cut so that each step ends in attention, and "
    "read as a path through noise. One small stochastic step learns all of them; it takes the place of the whole stack. "
    "Paths drawn with it are the ensemble: where they part, the model is unsure.</p>"
)
key = choice.current("run")
field = next((r for r in field_runs() if r.key == key), None)
if field is not None:
    fields(field)
    st.stop()
run, missing = looked_at(director=True)
if missing is not None:
    unknown(missing)
    if done := [r for r in classifications() if r.status == "done" and holds_director(r)]:
        other_run(done)
    st.page_link("10_start.py", label="Go to the start page")
    st.stop()
if run is not None and run.status in LIVE:
    follow(run.key)
    st.stop()
if run is not None and run.status != "done":
    ended_badly(run.key)
    st.stop()
c = opened(run.key) if run is not None else None
student = director.student(c) if c is not None else None
if c is not None and student is not None:
    shown(c, student)
    with st.expander("Distil a student yourself"):
        distil(run)
    if not field_runs():
        weather()
elif c is not None:
    plain(f"“{run.title if run else ''}” was not asked for DIRECTOR.", "nu-lead")
    if done := [r for r in classifications() if r.status == "done" and holds_director(r)]:
        other_run(done)
    offer(run)
else:
    offer(None)
for other in field_runs():
    if st.button(f"On fields: {other.title}", key=f"field_{other.key}", type="tertiary"):
        choice.put(run=other.key)
        st.rerun()
