"""A run while it is computed: share, time left, what it is doing, and Cancel.

The table of runs is asked every second and nothing is kept in the page, so a reload finds the run again.
"""

import streamlit as st

import engine
from pages._parts.cards import error_card, plain
from pages._parts.words import duration

LIVE = ("queued", "running")


@st.fragment(run_every=1.0)
def follow(key: str) -> None:
    """Follow a run until it ends; then the whole page is drawn again."""
    now = engine.progress(key)
    if now.status not in LIVE:
        st.rerun()
    with st.container(border=True, key=f"progress_{key}"):
        left, right = st.columns([6, 1], vertical_alignment="center")
        with left:
            plain(now.title, "nu-lead")
            st.progress(now.share)
            remaining = f" · about {duration(now.seconds_left)} left" if now.seconds_left is not None else ""
            waiting = "waiting for a free worker" if now.status == "queued" else now.message or "starting"
            plain(f"{now.share:.0%}{remaining} · {waiting}. You may close this page: the run goes on.")
        if right.button("Cancel", key=f"cancel_{key}", width="stretch"):
            engine.cancel(key)
            st.rerun()


def ended_badly(key: str) -> None:
    """A run that failed or was cancelled: why, and the way to go on."""
    now = engine.progress(key)
    if now.status == "failed":
        error_card(
            now.error or {"what": now.title, "found": "no message", "expected": "a finished run", "remedy": "See its log on the Runs page."}
        )
    else:
        with st.container(border=True, key="cancelled_card"):
            plain(f"“{now.title}” was cancelled at {now.share:.0%}. What it finished is kept.", "nu-lead")
    if st.button("Go on from where it stopped", key=f"resume_{key}", type="primary"):
        engine.resume(key)
        st.rerun()
