"""The look beside `.streamlit/config.toml`: the style sheet, the logo's folder, and whether this visitor sees the dark theme."""

from pathlib import Path

import streamlit as st

ASSETS = Path(__file__).resolve().parents[2] / "assets"
FONT = "'Source Sans', system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
"""The page's own face, so that pictures and text are one."""


def is_dark() -> bool:
    """Whether this visitor sees the dark theme."""
    return st.context.theme.type == "dark"


def sheet() -> None:
    """The app's style sheet, once a page, with the two signal colours of the visitor's theme."""
    good, bad = ("#67d69b", "#ffa657") if is_dark() else ("#1b7f4b", "#b5480a")
    st.html(f"<style>:root {{ --nu-good: {good}; --nu-bad: {bad}; }}</style>")
    st.html(ASSETS / "style.css")
