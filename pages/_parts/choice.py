"""What is looked at: run, ν, region, variable, lead time and place.

All of it lives in the address, so a link shows the same to everybody, and is handed on from page to page.
"""

from collections.abc import Callable, Collection, Sequence
from math import isfinite, log
from typing import Any, TypeVar

import streamlit as st

WHERE = ("region", "variable", "lead_time", "place")
NAMES = ("run", "nu", *WHERE)
"""Parameters of the address. Streamlit drops them when the page changes; their shadows in the session put them back."""
Option = TypeVar("Option")


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
    """The run, ν, region, variable, lead time or place looked at, as the address says it."""
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


def put_point(points: list[dict[str, Any]]) -> None:
    """Look at the ν that a clicked point of a curve carries."""
    data = points[0].get("customdata")
    value = data[0] if isinstance(data, list | tuple) and data else data.get("0") if isinstance(data, dict) else data
    if value is not None:
        put(nu=int(value))


def keep(name: str, value: str) -> None:
    """Look at another region, variable, lead time or place from now on."""
    if current(name) != value or st.query_params.get(name) != value:
        st.session_state[f"_{name}"] = st.query_params[name] = value


def spelt(value: object) -> str:
    """A coordinate's value as the address writes it: `72`, not `72.0`."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def one_of(name: str, options: Sequence[Option], spell: Callable[[Option], str] = str) -> tuple[Option, str | None]:
    """Which of a run's regions, variables or lead times is looked at; where the address names none of them the first one, and what to
    say about it. What is shown stands in the address afterwards.
    """
    asked = current(name)
    by_name = {spelt(option): option for option in options}
    value = by_name.get(asked, options[0]) if asked is not None else options[0]
    lost = asked is not None and asked not in by_name
    keep(name, spelt(value))
    kind = name.replace("_", " ")
    return value, f"This run has no {kind} “{str(asked)[:60]}”. {spell(value)} is shown." if lost else None


def place(default: tuple[float, float]) -> tuple[float, float]:
    """Latitude and longitude of the place looked at; what is no place on the globe counts as none."""
    try:
        latitude, longitude = (float(part) for part in (current("place") or "").split(","))
    except ValueError:
        return default
    return (latitude, longitude) if abs(latitude) <= 90 and isfinite(longitude) else default


def put_place(latitude: float, longitude: float) -> None:
    """Look at another place from now on."""
    keep("place", f"{latitude:.6g},{longitude:.6g}")


def forget(run: str) -> None:
    """Stop looking at a run that is gone."""
    if current("run") == run:
        for name in ("run", "nu"):
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
