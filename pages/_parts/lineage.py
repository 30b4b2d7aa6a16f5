"""Where a picture comes from: the run's facts and the command line that makes it again."""

import html
import json
from typing import TYPE_CHECKING, Any, Protocol

import streamlit as st

if TYPE_CHECKING:
    import xarray as xr


class Shown(Protocol):
    """What a figure is drawn from: a run, its result, what is selected on it, and its own facts."""

    @property
    def key(self) -> str:
        """The run."""
        ...

    @property
    def stamp(self) -> int:
        """When its result was written."""
        ...

    @property
    def verification(self) -> "xr.Dataset":
        """Its result."""
        ...

    @property
    def select(self) -> dict[str, Any]:
        """What a figure is drawn at."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """What its lineage says beside what every run has."""
        ...


def lineage(looked: Shown) -> None:
    """The facts of the run behind a picture."""
    v = looked.verification
    spec = json.loads(v.attrs.get("spec") or "{}")
    facts = {
        "Run": v.attrs.get("key"),
        "Method": v.attrs.get("method_title") or str(v.attrs.get("method", "")).replace("_", " "),
        "Members M": v.attrs.get("members"),
        "Cases": v.attrs.get("cases"),
        "Seed": v.attrs.get("seed"),
        **looked.facts,
        "Checkpoint": spec.get("checkpoint", "").rpartition("/")[2] or None,
        "Checkpoint hash": str(v.attrs.get("checkpoint_revision", ""))[:16],
        "Data fingerprint": str(v.attrs.get("dataset_fingerprint", ""))[:16],
        "Version": v.attrs.get("version"),
    }
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    st.html(f"<table class='nu-facts'>{rows}</table>")
    st.caption("The same on the command line")
    st.code(str(v.attrs.get("command", "")), language="bash", wrap_lines=True)
    with st.expander("Full specification"):
        st.code(json.dumps(spec, indent=1, ensure_ascii=False), language="json")
