"""A run that an address names and that is not here: said, with the runs that are."""

from typing import Any

import streamlit as st

from engine.errors import RunError
from pages._parts import choice
from pages._parts.cards import error_card


def unknown(key: str) -> None:
    """Say that there is no such run."""
    error_card(
        RunError(
            f"run {key[:64]}",
            found="no such run on this server",
            expected="a run of the list",
            remedy="Choose another run below, or make one on the start page.",
        )
    )


def other_run(done: list[Any]) -> None:
    """Offer runs that are there instead."""
    titles = {r.key: r.title for r in done}
    st.selectbox(
        "Run",
        list(titles),
        index=None,
        format_func=titles.__getitem__,
        key="other_run",
        on_change=_other,
        placeholder="Choose a run",
    )


def _other() -> None:
    choice.forget(choice.current("run") or "")
    choice.put(run=st.session_state["other_run"])
