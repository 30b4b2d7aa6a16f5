"""What the preflight found, as a short table: what it means first, the full document folded away."""

import html
import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

import engine
from pages._parts.here import here
from pages._parts.words import duration

GOOD, BAD, SAID = "ok", "stop", ""


def rows(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(question, answer, state) of an `inspect` document; fields that are absent are left out."""
    found: list[tuple[str, str, str]] = []
    model = [str(document[k]) for k in ("backbone", "format") if document.get(k)]
    if document.get("parameters"):
        model.append(f"{count(document['parameters'])} parameters")
    if model:
        found.append(("Model", ", ".join(model), GOOD))
    keys = document.get("keys") or {}
    if keys:
        missing, unexpected = (names if isinstance(names := keys.get(k) or [], list) else [] for k in ("missing", "unexpected"))
        matched = keys.get("matched") or 0
        text = f"{len(matched) if isinstance(matched, list) else matched} matched, {len(missing)} missing, {len(unexpected)} not used"
        names = "; missing: " + ", ".join(map(str, missing[:6])) if missing else ""
        found.append(("Weights", text + names, BAD if missing else GOOD))
    sites = document.get("sites")
    if sites or (sites is not None and not document.get("refusal")):  # a model that was not opened was not looked into
        found.append(("Attention", f"{len(sites) if isinstance(sites, list) else sites} places can be sampled", GOOD if sites else BAD))
    if document.get("replay_error") is not None:
        error = float(document["replay_error"])
        found.append(("Self-test", f"with sampling switched off the model is reproduced to {error:.1e}", GOOD if error <= 1e-5 else BAD))
    attention = document.get("attention") or {}
    found += [("Not reached", str(text), BAD) for text in attention.get("unreached") or []]
    found += [("No attention", str(text), SAID) for text in attention.get("no_attention") or []]
    if document.get("refusal"):
        found.append(("Refused", here(str(document["refusal"])), BAD))
    if document.get("normalisation"):
        text = str(document["normalisation"])
        found.append(("Normalisation", text, SAID if text.startswith("missing") else GOOD))
    for name, values in (document.get("unknown") or {}).items():
        if isinstance(values, list | tuple):
            told = f"could be {', '.join(map(str, values))}"
        else:
            told = f"there are {values}" if isinstance(values, int) else str(values)
        found.append((_fact(name).capitalize(), f"not recorded: {told}", SAID))
    found += [("Assumed", str(line), SAID) for line in document.get("assumed") or []]
    found += [("Note", str(line), SAID) for line in document.get("notes") or []]
    data = document.get("data") or {}
    if data.get("sets"):
        found.append(("Examples", ", ".join(f"{number:,} to {role}" for role, number in data["sets"].items()), GOOD))
        classes = data.get("labels") or {}
        text = f"{len(classes)}: " + ", ".join(f"{name} {number:,}" for name, number in list(classes.items())[:12])
        found.append(("Classes", text + (", …" if len(classes) > 12 else ""), GOOD))
        found += [("Changed", str(line), SAID) for line in data.get("changes") or []]
    return found + _findings(data.get("findings") or [])


def _fact(name: str) -> str:
    """What is not known of an architecture, as the form above the table calls it."""
    return {"num_heads": "attention heads"}.get(name, str(name).replace("_", " "))


def _findings(findings: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """One row a finding on the data. What is merely fine about each variable is one row: it is the rest that is to be read."""
    groups = {"units of ": "Units", "missing values of ": "Missing values"}
    fine: dict[str, list[str]] = {}
    found = []
    for row in findings:
        what, answer = str(row.get("what", "")), str(row.get("found", ""))
        stem = next((s for s in groups if what.startswith(s)), None)
        if stem and row.get("level") == "ok":
            fine.setdefault(stem, []).append(answer)
            continue
        if row.get("level") == "problem":
            answer += f" (expected {row.get('expected')}). {here(str(row.get('remedy')))}"
        state = {"ok": GOOD, "problem": BAD}.get(str(row.get("level")), SAID)
        found.append((what[:1].upper() + what[1:], answer, state))
    for stem, answers in fine.items():
        kinds = ", ".join(dict.fromkeys(answers))
        found.append((groups[stem], f"{len(answers)} variables: {kinds}", GOOD))
    return found


def verdict(document: dict[str, Any]) -> str:
    """One line: whether it may run."""
    if not passed(document):
        return "Not ready: see what is marked stop."
    return "Ready to run."


def time_of(document: dict[str, Any], fields: Mapping[str, Any]) -> str:
    """How long what the form asks for takes here, by the forward that was measured; "" where none was, or a field is no number yet."""
    plan = document.get("plan") or {}
    if not plan.get("cost") or not plan.get("cases"):
        return ""
    try:
        seconds = engine.estimate(plan, fields)
    except (TypeError, ValueError):  # a wrong word in a field is the schema's to refuse, by name
        return ""
    memory = f" and {plan['memory']} of memory" if plan.get("memory") else ""
    return f"About {duration(seconds)}{memory} when this computer does nothing else, by ensembles of this model that were timed here."


def count(value: Any) -> str:
    """`3.2 million`."""
    number = float(value)
    return f"{number / 1e9:.1f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,.0f}"


def passed(document: dict[str, Any]) -> bool:
    """Whether nothing forbids a run."""
    return all(state != BAD for _, _, state in rows(document))


def model_table(document: dict[str, Any]) -> None:
    """A checkpoint without data: what it is, and what has to be said before it can run."""
    unknown = ", ".join(map(_fact, document.get("unknown") or {}))
    said = f"Not known yet: {unknown}." if unknown else "" if passed(document) else "It cannot be run as it is."
    _table(said or "This checkpoint can be run.", rows(document))


def preflight_table(document: dict[str, Any]) -> None:
    """The table, and the whole document for who wants it."""
    _table(verdict(document), rows(document))
    with st.expander("Everything that was found"):
        st.code(json.dumps(document, indent=1, ensure_ascii=False), language="json", height=320)


def _table(verdict: str, listed: list[tuple[str, str, str]]) -> None:
    marks = {GOOD: "<span class='nu-state nu-done'>fine</span>", BAD: "<span class='nu-state nu-failed'>stop</span>", SAID: ""}
    body = "".join(
        f"<tr><th scope='row'>{html.escape(question)}</th><td>{html.escape(answer)}</td><td>{marks[state]}</td></tr>"
        for question, answer, state in listed
    )
    st.html(f"<p class='nu-lead'><b>{html.escape(verdict)}</b></p><table class='nu-facts nu-check'>{body}</table>")
