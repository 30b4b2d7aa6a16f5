"""Runs: everything that was asked for, its state, its files, and the way to stop, resume or delete it."""

from typing import Any

import streamlit as st

import engine
from pages._parts import choice
from pages._parts.cards import empty, error_card, plain
from pages._parts.progress import LIVE, follow
from pages._parts.results import about, command_of, page_of, size_of
from pages._parts.words import STATUS, size, when

TITLE = "Runs"
ICON = ":material/list:"


def gone(key: str) -> None:
    """Delete a run and stop looking at it."""
    engine.remove(key)
    choice.forget(key)


@st.dialog("Delete this run?")
def confirm(key: str, title: str) -> None:
    """Asked once: what is gone is gone."""
    st.text(title)
    plain("Its results and files are deleted from this server. The command line to make them again is on its card.")
    left, right = st.columns(2)
    if left.button("Delete", type="primary", key="really_delete", width="stretch", on_click=gone, args=(key,)):
        st.rerun()
    if right.button("Keep it", key="keep_run", width="stretch"):
        st.rerun()


def card(run: Any) -> None:
    """One run."""
    with st.container(border=True, key=f"run_{run.key}"):
        name, state, buttons = st.columns([5, 2, 3], vertical_alignment="center")
        with name:
            st.text(run.title)
            plain(f"{run.key} · {when(run.created)} · {about(run)}")
        with state:
            share = "" if run.status in ("done", "queued") else f" at {run.share:.0%}"
            st.html(f"<span class='nu-state nu-{run.status}'>{STATUS[run.status]}{share}</span>")
        with buttons, st.container(horizontal=True, horizontal_alignment="right", gap="small"):
            if run.status == "done" and st.button("Open", key=f"open_{run.key}", type="primary"):
                choice.put(run=run.key)
                st.switch_page(page_of(run), query_params={"run": run.key})
            if run.status in ("failed", "cancelled") and st.button(
                "Resume", key=f"resume_{run.key}", type="secondary" if run.message == "refused" else "primary"
            ):
                engine.resume(run.key)
                st.rerun()
            if st.button("Delete", key=f"delete_{run.key}"):
                confirm(run.key, run.title)
        if run.error:
            error_card(run.error, key=f"error_{run.key}")
        with st.expander("Files and command line"):
            _files(run.key)
            st.code(command_of(run), language="bash", wrap_lines=True)


def _files(key: str) -> None:
    links = []
    files = {
        "verification.nc": "all statistics",
        "calibration.nc": "how ν was chosen",
        "classification.nc": "all probabilities and scores",
        "fields.nc": "maps of single cases",
        "log.txt": "log",
    }
    for name, what in files.items():
        if count := size_of(key, name):
            links.append(f"<a class='nu-export' href='results/{key}/{name}' download>{name}: {what}, {size(count)}</a>")
    st.html(f"<div class='nu-exports'>{''.join(links)}</div>" if links else "<p class='nu-note'>No files yet.</p>")


st.html(
    "<h1 class='nu-title'>Runs</h1><p class='nu-claim'>Runs go on when the page is closed, and survive a restart. "
    "Asking for the same again finds the run that is there.</p>"
)
runs = engine.runs_list()
if not runs:
    empty("Nothing was run yet.", "10_start.py", "Run the demo on the start page")
for run in runs:
    if run.status in LIVE:
        follow(run.key)
    else:
        card(run)
