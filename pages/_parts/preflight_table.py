"""What the preflight found, as a short table: what it means first, the full document folded away."""

import html
import json
from typing import Any

import streamlit as st

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
    if sites is not None:
        found.append(("Attention", f"{len(sites) if isinstance(sites, list) else sites} places can be sampled", GOOD if sites else BAD))
    if document.get("replay_error") is not None:
        error = float(document["replay_error"])
        found.append(("Self-test", f"with sampling switched off the model is reproduced to {error:.1e}", GOOD if error <= 1e-5 else BAD))
    if document.get("refusal"):
        found.append(("Refused", str(document["refusal"]), BAD))
    for name, value in (document.get("data") or {}).items():
        found += _data(str(name), value)
    return found


def _data(name: str, value: Any) -> list[tuple[str, str, str]]:
    """A fact about the data; lists become lines."""
    label = name.replace("_", " ").capitalize()
    if value in (None, [], {}, ""):
        return []
    if isinstance(value, dict):
        return [(label, ", ".join(f"{k}: {_short(v)}" for k, v in list(value.items())[:12]), SAID)]
    if isinstance(value, list):
        return [
            (
                label,
                ("; " if any(" " in str(v) for v in value) else ", ").join(map(_short, value[:24])) + (" …" if len(value) > 24 else ""),
                SAID,
            )
        ]
    return [(label, bytes_text(value) if "bytes" in name and isinstance(value, int) else _short(value), SAID)]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{k} {_short(v)}" for k, v in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)[:200]


def bytes_text(value: int) -> str:
    """Bytes for people."""
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def count(value: Any) -> str:
    """`3.2 million`."""
    number = float(value)
    return f"{number / 1e9:.1f} billion" if number >= 1e9 else f"{number / 1e6:.1f} million" if number >= 1e6 else f"{number:,.0f}"


def passed(document: dict[str, Any]) -> bool:
    """Whether nothing forbids a run."""
    return all(state != BAD for _, _, state in rows(document))


def preflight_table(document: dict[str, Any]) -> None:
    """The table, and the whole document for who wants it."""
    marks = {GOOD: "<span class='nu-state nu-done'>fine</span>", BAD: "<span class='nu-state nu-failed'>stop</span>", SAID: ""}
    body = "".join(
        f"<tr><th scope='row'>{html.escape(question)}</th><td>{html.escape(answer)}</td><td>{marks[state]}</td></tr>"
        for question, answer, state in rows(document)
    )
    st.html(f"<table class='nu-facts nu-check'>{body}</table>")
    with st.expander("Everything that was found"):
        st.code(json.dumps(document, indent=1, ensure_ascii=False), language="json", height=320)
