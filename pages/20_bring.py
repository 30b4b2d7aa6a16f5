"""Bring: a checkpoint and data of your own, a look at both before anything runs, then the run."""

from typing import Any

import streamlit as st

import engine
from engine.errors import EngineError, SpecError
from pages._parts import choice
from pages._parts.cards import error_card, plain
from pages._parts.classification_bring import labelled
from pages._parts.form import form, read_json
from pages._parts.model_look import model_look
from pages._parts.nu_grid import nu_grid
from pages._parts.preflight_table import passed, preflight_table, time_of
from pages._parts.uploader import bring

TITLE = "Bring your own"
ICON = ":material/upload_file:"

LABELS = {
    "members": "Members M", "max_cases": "Cases", "calibrate_cases": "Cases to choose ν on",
    "calibrate_members": "Members to choose ν with", "lead_hours": "Lead times in hours", "variables": "Variables to verify",
    "regions": "More regions (JSON)", "bootstrap": "Bootstrap draws", "params": "Parameters of the methods",
    "maps": "Keep maps of single cases", "title": "Name of the run", "thresholds": "Events: standard deviations from climatology",
}  # fmt: skip
READING = {
    "rename": "Names in the files", "read": "Variables to read", "calendar": "Calendar to convert to", "select": "GRIB messages to read",
    "step_hours": "Hours of a time step", "missing": "Missing values",
}  # fmt: skip
FACTS = "What the file may not say"
RECORDED, CLIMAX, OWN = "as the file records", "ClimaX, 48 variables", "my own list"


def kept(widget: Any, label: str, key: str, **more: Any) -> Any:
    """A widget whose value outlives errors and page changes."""
    return widget(label, key=key, persist_state="session", **more)


def architecture() -> dict[str, Any]:
    """What a checkpoint may not record about itself; nothing where it is left alone."""
    found: dict[str, Any] = {}
    left, right = st.columns(2)
    with left:
        preset = kept(st.selectbox, "Variables, in the model's order", "arch_variables", options=[RECORDED, CLIMAX, OWN])
        if preset == CLIMAX:
            found["variables"] = list(engine.CLIMAX_48)
        elif preset == OWN:
            names = kept(st.text_area, "Names, comma separated", "arch_names", value="", placeholder="2m_temperature, geopotential_500, …")
            found["variables"] = [n.strip() for n in names.replace("\n", ",").split(",") if n.strip()]
    with right:
        heads = kept(
            st.number_input, "Attention heads", "arch_heads", value=None, min_value=1, max_value=256, placeholder="as the file records"
        )
        grid = kept(st.text_input, "Grid, rows × columns", "arch_grid", value="", placeholder="as the file records, e.g. 32 × 64")
        weights = kept(st.text_input, "Entry of the weights", "arch_weights", value="", placeholder="the plain one, not an average")
    others = kept(st.text_input, "Anything else (JSON)", "arch_others", value="", placeholder='{"out_variables": ["geopotential_500"]}')
    found |= read_json(others, "anything else") if others.strip() else {}
    if weights.strip():
        found["weights"] = weights.strip()
    if heads:
        found["num_heads"] = int(heads)
    if grid.strip():
        parts = grid.lower().replace("×", "x").replace(",", "x").split("x")
        if len(parts) != 2 or not all(p.strip().isdigit() for p in parts):
            raise SpecError(
                "grid",
                found=repr(grid[:40]),
                expected="rows × columns, as in 32 × 64",
                remedy=f"Correct it under “{FACTS}”.",
            )
        found["grid"] = [int(p) for p in parts]
    return found


def look(asked: dict[str, Any]) -> None:
    """Start the preflight and keep its answer, or its refusal, beside what was asked."""
    with st.spinner("Reading the files in a process of their own …"):
        try:
            st.session_state["_preflight"] = (asked, engine.preflight(**asked), None)
        except EngineError as refusal:
            st.session_state["_preflight"] = (asked, None, refusal.as_dict())


def run(fields: dict[str, Any]) -> None:
    """Queue the run and go where it can be watched."""
    key = engine.submit(fields)
    choice.put(run=key)
    st.switch_page("30_sweep.py", query_params={"run": key})


st.html(
    "<h1 class='nu-title'>Bring your own</h1><p class='nu-claim'>A checkpoint and the data it is checked on. "
    "Files are read in a process of their own; nothing in them is run, and nothing leaves this server.</p>"
)
FORECASTS, CLASSES = "Fields: a ClimaX checkpoint", "Classes: of images or texts"
usual = CLASSES if st.query_params.get("bring") == "classes" else FORECASTS
if kept(st.segmented_control, "What it forecasts", "bring_kind", options=[FORECASTS, CLASSES], default=usual, required=True) == CLASSES:
    st.query_params["bring"] = "classes"  # a reload comes back to what was being brought
    labelled()
    st.stop()
st.query_params.pop("bring", None)


def brought() -> dict[str, Any]:
    """Steps 1 and 2: the files, what they may not say, and how they are to be read; as the preflight asks for them."""
    with st.container(border=True, key="step_model"):
        st.html("<h2 class='nu-section nu-first'>1 · The model</h2>")
        checkpoint = bring("checkpoint", "Checkpoint", kind="model of fields")
        needed = "Mean and standard deviation of each variable, as the model was trained with. A run needs it."
        normalisation = bring("normalisation", "Normalisation", several=True, kind="normalisation", hint=needed)
        with st.expander(FACTS):
            facts = architecture()
        first_look = st.container(key="look_model")
    with st.container(border=True, key="step_data"):
        st.html("<h2 class='nu-section nu-first'>2 · The data</h2>")
        held = "Files holding the model's variables at several times. A Zarr store goes as a zip."
        data = bring("data", "To verify on", several=True, kind="fields", hint=held)
        other = "Other times than above. Without it, both operating points are read off the verification itself, and said so."
        calibrate = bring("calibrate", "To choose ν on", several=True, kind="fields", hint=other)
        with st.expander("A climatology"):
            climatology = bring("climatology", "Climatology", kind="climatology", hint="For the anomaly correlation.")
        with st.expander("How the files are read"):
            plain("For files that do not say it themselves.")
            reading = form(engine.RunSpec, READING, labels=READING, prefix="reading")
    model = {"architecture": facts, "normalisation": next(iter(normalisation), None)}
    if checkpoint:
        with first_look:
            model_look({"checkpoint": checkpoint[0], **model})
    return {
        "checkpoint": next(iter(checkpoint), None), "data": data, "calibrate": calibrate, **model,
        "climatology": next(iter(climatology), None), **reading,
    }  # fmt: skip


def checked(asked: dict[str, Any]) -> bool:
    """Step 3 up to the verdict: whether the files were looked at as they are now, and nothing forbids a run."""
    if asked["checkpoint"] is None or not asked["data"]:
        plain("Bring a checkpoint and data first." if asked["checkpoint"] is None else "Bring data to verify on first.")
        return False
    if st.button("Check the files", key="check", type="primary" if "_preflight" not in st.session_state else "secondary"):
        look(asked)
    known, document, refused = st.session_state.get("_preflight", (None, None, None))
    if known is None:
        plain("Checks units, grid, calendar, missing values, weights, attention and memory. Takes some seconds.")
        return False
    if known != asked:
        plain("The files or facts have changed since the last check. Check again.")
        return False
    if refused is not None:
        error_card(refused, key="error_preflight")
        return False
    preflight_table(document)
    if not passed(document):
        plain("A run cannot start before this is mended. What you brought is kept.")
    return passed(document)


asked = brought()
with st.container(border=True, key="step_run"):
    st.html("<h2 class='nu-section nu-first'>3 · Check, then run</h2>")
    if checked(asked):
        settings = {"nu": nu_grid()} | form(engine.RunSpec, ("members", "max_cases"), labels=LABELS)
        with st.expander("More settings"):
            settings |= form(engine.RunSpec, [n for n in LABELS if n not in ("members", "max_cases")] + ["seed"], labels=LABELS)
        if told := time_of(st.session_state["_preflight"][1], settings):
            plain(told)
        if st.button("Run", key="run", type="primary"):
            run(asked | settings)
