"""Distil a student of one's own: widgets from the method's own schema, and the run that they ask for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

import engine
from pages._parts import choice, results
from pages._parts.cards import plain
from pages._parts.form import read_json

LABELS = {
    "epochs": "Passes over the fit data",
    "noise": "Noise",
    "covariance": "The teacher's noise",
    "lr": "Largest learning rate",
    "matching": "Match the teacher's steps",
    "loss": "How steps are matched",
    "lambda_mean": "Weight of the means",
    "lambda_var": "Weight of the variances",
    "lambda_task": "Weight of the task",
    "batch": "Examples a step",
    "patience": "Stop after so many passes without a gain",
    "teacher": "Parameters of a Gaussian-process teacher (JSON)",
}
FIRST = ("epochs", "noise")
CONTROLS = ("director:no_noise", "director:constant_noise", "director:no_matching")


def widgets(schema: Mapping[str, Any], names: list[str], prefix: str) -> dict[str, Any]:
    """One widget a property of a JSON schema, two a row; returns what was set, only where it is not the default."""
    chosen: dict[str, Any] = {}
    columns = st.columns(2)
    for index, name in enumerate(names):
        about = schema["properties"][name]
        with columns[index % 2]:
            value = _widget(name, about, f"{prefix}_{name}")
        if value != about.get("default"):
            chosen[name] = value
    return chosen


def _widget(name: str, about: Mapping[str, Any], key: str) -> Any:
    label, default = LABELS.get(name, name.replace("_", " ").capitalize()), about.get("default")
    kind = next((k for k in (about, *about.get("anyOf", ())) if k.get("type") not in (None, "null")), about)
    more: dict[str, Any] = {"key": key, "persist_state": "session", "help": about.get("description")}
    if "enum" in kind:
        options = list(kind["enum"])
        first = None if default is None else options.index(default)
        return st.selectbox(label, options, index=first, placeholder="chosen by the kind of teacher", format_func=_words, **more)
    if kind.get("type") == "boolean":
        return st.toggle(label, value=bool(default), **more)
    if kind.get("type") in ("integer", "number"):
        number = int if kind["type"] == "integer" else float
        ends = {end: number(kind[rule]) for end, rule in (("min_value", "minimum"), ("max_value", "maximum")) if rule in kind}
        if "exclusiveMinimum" in kind:
            ends["min_value"] = number(kind["exclusiveMinimum"])  # the engine refuses the end itself
        shape: dict[str, Any] = {"step": 1} if number is int else {"step": 0.1 if ends.get("max_value") == 1.0 and name != "lr" else 1e-4}
        shape |= {} if number is int else {"format": "%g"}
        return st.number_input(label, value=default, placeholder="chosen by the kind of teacher", **shape, **ends, **more)
    if kind.get("type") == "object":
        text = st.text_area(label, value="", placeholder="{}", height=70, **more)
        return read_json(text, name) if text.strip() else default
    return st.text_input(label, value=str(default or ""), **more)


def _words(value: str) -> str:
    return str(value).replace("_", " ")


def base(run: Any | None) -> dict[str, Any] | None:
    """Model and data to distil on: those of the run looked at where it brought data to learn from, else the image demo's."""
    if run is not None and run.spec.get("fit"):
        return dict(run.spec)
    return engine.classify_demo_spec().model_dump(mode="json") if results.image_demo_key() is not None else None


def distil(run: Any | None) -> None:
    """The form and its button. The run is one like any other: it goes on with the page closed, and can be cancelled and resumed."""
    spec = base(run)
    if spec is None:
        plain("A student is distilled on data to learn from; this run brought none. Bring a classifier and its data.", "nu-lead")
        st.page_link("20_bring.py", label="Bring your own model")
        return
    schema = engine.method_schema("director")
    names = [*(n for n in LABELS if n in schema["properties"]), *(n for n in schema["properties"] if n not in LABELS)]
    plain(
        f"From {Path(spec['checkpoint']).name}, on {', '.join(Path(p).name for p in spec['fit'])}. The frozen model is never changed. "
        "On two cores a student takes minutes to hours: the progress says how long.",
    )
    params = widgets(schema, [n for n in names if n in FIRST], "distil")
    also = st.toggle(
        "Distil its three controls too", value=False, key="distil_controls", persist_state="session",
        help="Without noise, with constant noise, without matching: they show why it works. About four times as long.",
    )  # fmt: skip
    with st.expander("More settings"):
        params |= widgets(schema, [n for n in names if n not in FIRST], "distil")
    if st.button("Distil", key="distil", type="primary"):
        choice.put(run=engine.submit(student_spec(spec, params, controls=also)))
        st.rerun()


def student_spec(spec: Mapping[str, Any], params: dict[str, Any], *, controls: bool) -> dict[str, Any]:
    """The run that distils: the frozen model and the student, and its controls where they are asked for; nothing learned before."""
    entries = ["deterministic", "director", *(CONTROLS if controls else ())]
    title = f"DIRECTOR of {Path(spec['checkpoint']).stem}"
    return {**spec, "entries": entries, "states": {}, "params": {"director": params} if params else {}, "title": title}
