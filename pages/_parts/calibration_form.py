"""What a calibration is asked for: from which model and data, and a few settings, folded away."""

from typing import Any

import streamlit as st

import engine
from pages._parts import choice, results
from pages._parts.cards import plain
from pages._parts.form import kind_of, limits
from pages._parts.words import duration

OBJECTIVES = {
    "scale": "Mean scale: members stray as far as the model errs",
    "per_example": "Scale, example by example",
    "grid": "The loss itself: least mean (R − Z)²",
    "w1_pit": "Least W₁(PIT)",
    "coverage_95": "Coverage of the 95% range",
    "crps_fair": "Least fair CRPS",
    "nll_gaussian": "Least Gaussian negative log likelihood",
}
NORMS = {"normalised": "In standard deviations of each variable", "physical": "In physical units"}


def settings() -> dict[str, Any]:
    """A few controls; what is left alone is the engine's default, from its own schema."""
    schema = kind_of(engine.RunSpec.model_fields["tune"].annotation)[0].model_fields
    kept: dict[str, Any] = {"persist_state": "session"}
    with st.expander("More settings"):
        left, right = st.columns(2)
        with left:
            objective = st.selectbox("What ν* means", list(OBJECTIVES), format_func=OBJECTIVES.__getitem__, key="tune_objective", **kept)
            largest = st.number_input(
                "Largest ν that may be chosen",
                value=int(schema["nu_max"].default),
                step=1,
                key="tune_nu_max",
                **limits(schema["nu_max"]),
                **kept,
            )
        with right:
            norm = st.selectbox("How departures are measured", list(NORMS), format_func=NORMS.__getitem__, key="tune_norm", **kept)
            scaled = st.text_input("Variables in the scales", key="tune_norm_variables", placeholder="all that are verified", **kept)
            area = st.toggle("Weigh points by their area", value=True, key="tune_area_weighted", **kept)
            layers = st.toggle(
                "Also search a ν for each block of layers", value=False, key="tune_per_layer", help="Takes several times as long.", **kept
            )
    names = tuple(n.strip() for n in (scaled or "").split(",") if n.strip())
    asked = {"objective": objective, "nu_max": int(largest), "norm": norm, "area_weighted": area, "per_layer": layers}
    return asked | ({"norm_variables": names} if names else {})


def start(spec: Any, tune: dict[str, Any]) -> None:
    """Queue the calibration and look at it."""
    key = engine.submit(engine.calibration_spec(spec, **tune))
    choice.put(run=key)
    st.rerun()


def _time(sweep: Any | None, tune: dict[str, Any]) -> str:
    """How long a calibration takes, by the time that the ensembles of its finished sweep (or of the demo's) took; "" before one."""
    of = sweep or next((r for r in results.runs_that(calibrate=False) if r.key == results.demo_key()), None)
    if not tune:
        return ""
    if of is None or of.status != "done":
        timed = engine.demo_seconds(**tune) if sweep is None else None
        return f"About {duration(timed)}, by this model's ensembles, which were timed here." if timed else ""
    seconds = engine.calibration_estimate(results.verification_of(of.key), of.spec, tune)
    return f"About {duration(seconds)}, by the time that this model's ensembles took here; less where some were made before."


def first(sweep: Any | None) -> None:
    """Where there is no calibration yet: a button for the run that is looked at, and one for the demo."""
    demo = results.demo_key()
    own = sweep is not None and bool(sweep.spec.get("calibrate"))
    with st.container(border=True, key="calibrate_card"):
        if sweep is not None:
            st.text(sweep.title)
            plain(
                "This run brought calibration data: ν* can be found on them, with its interval."
                if own
                else "This run brought no data to choose ν on. Bring some on the page “Bring your own”, or see the demo.",
                "nu-lead",
            )
        elif demo is not None:
            plain(
                "A small ClimaX forecasts the 500 hPa height 72 hours ahead; ν* is found on 18 cases that the verification never sees.",
                "nu-lead",
            )
        else:
            plain("The demo's files are not part of this copy. Bring your own model and data, and open that run here.", "nu-lead")
            st.page_link("20_bring.py", label="Bring your own model")
        with st.container(horizontal=True, gap="small"):
            asked = st.button("Find ν* for this run", type="primary", key="calibrate_run") if own else False
            wanted = demo is not None and (sweep is None or sweep.key != demo)
            shown = st.button("Find ν* for the demo", type="secondary" if own else "primary", key="calibrate_demo") if wanted else False
        tune = settings() if own or wanted else {}
        if told := _time(sweep if own else None, tune):
            plain(told)
    if asked and sweep is not None:
        start(sweep.spec, tune)
    if shown:
        start(engine.demo_spec(), tune)


def again(run: Any) -> None:
    """The same model and data with other settings; equal settings find the calibration that is there."""
    st.html("<h2 class='nu-section'>Find it another way</h2>")
    plain("By another rule, in another norm, or a ν for each block of layers. What was computed is used again.")
    tune = settings()
    if told := _time(next(iter(results.kin(run, results.runs_that(calibrate=False))), None), tune):
        plain(told)
    if st.button("Find ν* with these settings", key="calibrate_again"):
        start(run.spec | {"tune": None}, tune)
