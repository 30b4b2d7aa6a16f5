"""A checkpoint looked at as soon as it is there: what it is, and what it does not say, before any data are brought."""

from typing import Any

import streamlit as st

import engine
from engine.errors import EngineError
from pages._parts.cards import error_card
from pages._parts.preflight_table import model_table

KEPT = 8
"""Looks that a session remembers, by what was asked."""


def model_look(asked: dict[str, Any]) -> None:
    """The look at a checkpoint alone, taken once for each thing that was asked, in a process of its own."""
    looks: dict[str, Any] = st.session_state.setdefault("_looks", {})
    name = repr(sorted(asked.items(), key=str))
    if name not in looks:
        with st.spinner("Looking at the checkpoint in a process of its own …"):
            try:
                looks[name] = (engine.preflight(**asked), None)
            except EngineError as refusal:
                looks[name] = (None, refusal.as_dict())
        for old in list(looks)[:-KEPT]:
            del looks[old]
    document, refused = looks[name]
    if refused is not None:
        error_card(refused, key="error_look")
    else:
        model_table(document)
