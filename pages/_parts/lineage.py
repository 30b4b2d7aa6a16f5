"""Where a picture comes from: the run's facts and the command line that makes it again."""

import html
import json
from typing import TYPE_CHECKING

import streamlit as st

from pages._parts.words import percent

if TYPE_CHECKING:
    from pages._parts.header import Looked


def lineage(looked: "Looked") -> None:
    """The facts of the run behind a picture."""
    v = looked.verification
    spec = json.loads(v.attrs.get("spec") or "{}")
    valid = float(v["valid_fraction"].sel(**looked.where)) if "valid_fraction" in v else float("nan")
    facts = {
        "Run": v.attrs.get("key"),
        "Method": str(v.attrs.get("method", "")).replace("_", " "),
        "ν looked at": looked.nu,
        "Members M": v.attrs.get("members"),
        "Cases": v.attrs.get("cases"),
        "Seed": v.attrs.get("seed"),
        "Estimator": v.attrs.get("estimator"),
        "Valid data": percent(valid) if valid == valid else None,
        "Intervals": f"block bootstrap, blocks of {v.attrs.get('block_length')} cases, {v.attrs.get('bootstrap')} draws",
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
