"""Cards: a refusal or a fault, and what to do when there is nothing to show yet. Text from files is shown as text, never rendered."""

import html
import re
from collections.abc import Mapping

import streamlit as st

from engine.errors import EngineError
from pages._parts.here import here

LABELS = {"found": "Found", "expected": "Expected", "remedy": "What to do"}


def plain(text: str, style: str = "nu-note") -> None:
    """A line of quiet text; escaped, so whatever it quotes stays text."""
    st.html(f"<p class='{style}'>{html.escape(text)}</p>")


def literal(text: str) -> str:
    """Text for a widget that renders Markdown (warnings, labels), with every sign of Markdown taken as it is written."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~$:-])", r"\\\1", text)


def error_card(error: EngineError | Mapping[str, str], *, key: str = "error") -> None:
    """What was found, what was expected, what to do."""
    facts = error.as_dict() if isinstance(error, EngineError) else dict(error)
    with st.container(border=True, key=f"{key}_card"):
        st.html("<p class='nu-error'>This did not work</p>")
        st.text(facts.get("what", ""))
        for name, label in LABELS.items():
            if facts.get(name):
                left, right = st.columns([1, 6], gap="small", wrap=False)
                left.caption(label)
                right.text(here(facts[name]) if name == "remedy" else facts[name])


def fault_card(fault: BaseException) -> None:
    """A fault of ours: said so, with what a report needs."""
    with st.container(border=True, key="fault_card"):
        st.html("<p class='nu-error'>A fault of this program, not of your data</p>")
        st.text("Nothing was lost: runs and uploads are kept. Reload the page, or go to another one.")
        st.code(f"{type(fault).__name__}: {fault}"[:1500], language=None, wrap_lines=True)


def empty(message: str, page: str, label: str) -> None:
    """Nothing to show yet: why, and the way on."""
    with st.container(border=True, key="empty_card"):
        plain(message, "nu-lead")
        st.page_link(page, label=label)
