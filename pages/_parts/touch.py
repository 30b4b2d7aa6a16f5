"""Charts under a finger: a tap picks the point that it touches, as a click does."""

from pathlib import Path

import streamlit as st

HERE = Path(__file__).resolve().parent
_component = st.components.v2.component("nuscope_touch", html="<span></span>", js=(HERE / "touch.js").read_text(encoding="utf-8"))


def touch() -> None:
    """Once a page: charts take a touch as a pointer that comes to that place."""
    with st.container(key="touch"):
        _component(key="touch_listener", height="content")
