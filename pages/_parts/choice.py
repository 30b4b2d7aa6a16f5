"""What is looked at: run and ν. Both live in the address, so a link shows the same to everybody, and are handed on from page to page."""

from collections.abc import Collection, Sequence
from math import log

import streamlit as st

NAMES = ("run", "nu")
"""Parameters of the address. Streamlit drops them when the page changes; their shadows in the session put them back."""


def carry() -> None:
    """Called once a page, before anything is drawn: the address wins, the session remembers."""
    asked = st.query_params.get("run")
    if asked and asked != st.session_state.get("_run") and "nu" not in st.query_params:
        st.session_state.pop("_nu", None)  # another run was asked for: the old ν was not meant for it
    for name in NAMES:
        if name in st.query_params:
            st.session_state[f"_{name}"] = st.query_params[name]
        elif st.session_state.get(f"_{name}"):
            st.query_params[name] = st.session_state[f"_{name}"]


def current(name: str) -> str | None:
    """The run or ν looked at, as the address says it."""
    return st.session_state.get(f"_{name}")


def put(*, run: str | None = None, nu: int | None = None) -> None:
    """Look at another run or ν from now on. A new run without a ν starts at its own best point."""
    if run is not None and run != current("run"):
        st.session_state["_run"] = st.query_params["run"] = run
        if nu is None:
            st.session_state.pop("_nu", None)
            st.query_params.pop("nu", None)
    if nu is not None:
        st.session_state["_nu"] = st.query_params["nu"] = str(nu)


def forget(run: str) -> None:
    """Stop looking at a run that is gone."""
    if current("run") == run:
        for name in NAMES:
            st.session_state.pop(f"_{name}", None)
            st.query_params.pop(name, None)


def turn_to(kind: str, known: Collection[str]) -> str | None:
    """Put the run looked at aside, since this page shows "fields" or "labels" and it is of the other kind, and take up again the one
    of this kind that was put aside before; None where there is none among the known.
    """
    other = "labels" if kind == "fields" else "fields"
    st.session_state[f"_aside_{other}"] = (current("run"), current("nu"))
    run, nu = st.session_state.get(f"_aside_{kind}", (None, None))
    if run not in known:  # the address stays until there is something else to look at
        return None
    put(run=run, nu=int(nu) if nu and nu.isdigit() else None)
    return run


def entry() -> str | None:
    """The method of a classification that is looked at; kept in the address on the pages that show one."""
    if asked := st.query_params.get("entry"):
        st.session_state["_entry"] = asked
    return st.session_state.get("_entry")


def put_entry(name: str) -> None:
    """Look at another method from now on."""
    st.session_state["_entry"] = st.query_params["entry"] = name


def nearest(asked: str | None, grid: Sequence[int], default: int) -> tuple[int, str | None]:
    """The ν to show and, where it is not the one asked for, what to say about it."""
    if asked is None:
        return default, None
    try:
        value = float(asked)
        if not value > 0:
            raise ValueError
    except ValueError:
        return default, f"“{asked[:40]}” is not a value of ν. ν = {default} is shown."
    if value in grid:
        return int(value), None
    if value == float("inf"):
        return grid[-1], f"ν = ∞ was not computed in this run. The largest, ν = {grid[-1]}, is shown."
    close = min(grid, key=lambda n: abs(log(n) - log(value)))
    return close, f"ν = {asked[:40]} was not computed in this run. The nearest, ν = {close}, is shown."
