"""Bring a classifier: its checkpoint, labelled data in up to four roles, a look at both, the methods to compare, then the run."""

from typing import Any

import streamlit as st

import engine
from engine.errors import EngineError
from pages._parts import choice
from pages._parts.cards import error_card, plain
from pages._parts.form import form
from pages._parts.model_look import model_look
from pages._parts.preflight_table import passed, preflight_table
from pages._parts.uploader import bring

NEEDS = {
    "temperature_scaling": "calibrate", "stochastic_attention": "", "mc_dropout": "", "director": "fit", "deep_ensemble": "fit",
    "kep_svgp": "fit", "sgpa": "fit",
}  # fmt: skip
"""Methods for classes, and the role of the data that each learns from."""
LEARN = {"": "", "calibrate": "needs data to calibrate on", "fit": "needs data to learn from"}
LABELS = {
    "members": "Members M", "max_cases": "Examples of each set", "bootstrap": "Bootstrap draws", "examples": "Examples kept to be shown",
    "corruptions": "Corruptions of the images", "params": "Parameters of the methods", "title": "Name of the run",
}  # fmt: skip
READING = {
    "text": "Column of the text", "label": "Column of the label", "encoding": "Encoding of the text", "size": "Size of the images",
}  # fmt: skip


def labelled() -> None:
    """The three steps; the page ends here."""
    with st.container(border=True, key="step_classifier"):
        st.html("<h2 class='nu-section nu-first'>1 · The model</h2>")
        kinds = "A vision transformer, or a transformer encoder for text; a Hugging Face folder goes as a zip. It stays frozen."
        checkpoint = bring("classifier", "Checkpoint", kind="model of labels", hint=kinds)
        with st.expander("What the file may not say"):
            facts = form(engine.ClassifySpec, ("architecture",), labels={"architecture": "Facts (JSON)"}, prefix="facts")
        first_look = st.container(key="look_classifier")
    with st.container(border=True, key="step_labelled"):
        st.html("<h2 class='nu-section nu-first'>2 · The data</h2>")
        how = "Images and labels (.npz), a zip with a folder for each class, or a table of texts (.csv, .tsv, .parquet)."
        data = bring("verify_labels", "To verify on", several=True, kind="labels", hint=how)
        for_choosing = "Other examples: for temperatures and for choosing ν."
        calibrate = bring("calibrate_labels", "To calibrate on", several=True, kind="labels", hint=for_choosing)
        with st.expander("To learn from, and examples from outside"):
            fit = bring("fit_labels", "To learn from", several=True, kind="labels", hint="For methods that train: DIRECTOR, ensembles.")
            outside = bring("outside_labels", "From outside the classes", several=True, kind="labels", hint="Their labels do not count.")
        with st.expander("How the files are read"):
            plain("For files that do not say it themselves.")
            reading = form(engine.ClassifySpec, READING, labels=READING, prefix="reading_labels")
    if checkpoint:
        with first_look:
            model_look({"checkpoint": checkpoint[0], **facts})
    with st.container(border=True, key="step_compare"):
        st.html("<h2 class='nu-section nu-first'>3 · Check, then run</h2>")
        if not (checkpoint and data):
            plain("Bring a checkpoint and data to verify on first.")
            return
        asked = {"checkpoint": checkpoint[0], "data": data, "calibrate": calibrate, **facts, **reading}
        if not _checked(asked):
            return
        entries = _methods({"calibrate": bool(calibrate), "fit": bool(fit)})
        settings = form(engine.ClassifySpec, ("members", "max_cases"), labels=LABELS, prefix="labels")
        with st.expander("More settings"):
            more = [*(n for n in LABELS if n not in ("members", "max_cases")), "seed"]
            settings |= form(engine.ClassifySpec, more, labels=LABELS, prefix="labels")
        if st.button("Run", key="run_labels", type="primary"):
            files = asked | {"fit": fit, "outside": {path.stem: path for path in outside}}
            key = engine.submit({"task": "classification", "entries": entries, **files, **settings})
            choice.put(run=key)
            st.switch_page("45_classify.py", query_params={"run": key})


def _checked(asked: dict[str, Any]) -> bool:
    """Whether the files were looked at as they are now, and nothing forbids a run."""
    if st.button("Check the files", key="check_labels", type="primary" if "_preflight_labels" not in st.session_state else "secondary"):
        with st.spinner("Reading the files in a process of their own …"):
            try:
                st.session_state["_preflight_labels"] = (asked, engine.preflight(**asked), None)
            except EngineError as refusal:
                st.session_state["_preflight_labels"] = (asked, None, refusal.as_dict())
    known, document, refused = st.session_state.get("_preflight_labels", (None, None, None))
    if known != asked:
        plain(
            "Checks weights, attention, labels and sizes. Takes some seconds." if known is None else "The files have changed. Check again."
        )
        return False
    if refused is not None:
        error_card(refused, key="error_preflight")
        return False
    preflight_table(document)
    return passed(document)


def _methods(there: dict[str, bool]) -> list[str]:
    """The methods to compare; what cannot work with this data is named with its reason. The frozen model always stands beside them."""
    titles = {entry.key: entry.title for entry in engine.catalogue("methods")}
    can = [m for m, role in NEEDS.items() if m in titles and there.get(role, True)]
    lacking = [f"{titles[m]} {LEARN[role]}" for m, role in NEEDS.items() if m in titles and m not in can]
    quick = [m for m in can if NEEDS[m] != "fit" and m != "mc_dropout"]  # not every model has dropout
    chosen = st.pills(
        "Methods to compare", can, selection_mode="multi", default=quick, format_func=titles.__getitem__, key="labels_methods",
        help="The frozen model is always among them. Methods that learn take much longer.",
    )  # fmt: skip
    if lacking:
        plain(f"Not with this data: {'; '.join(lacking)}.")
    return ["deterministic", *chosen]
