"""Classify: which method says best how sure it may be of a class, and where the frozen model and the others go wrong."""

import streamlit as st

import engine
from engine.errors import EngineError
from pages._parts import choice, results
from pages._parts.cards import error_card, plain
from pages._parts.chart import chart
from pages._parts.classification import Classified, finding, headline, looked_at, opened
from pages._parts.classification_gallery import gallery
from pages._parts.classification_table import SCORES, all_scores, columns, methods_table
from pages._parts.header import pick_run
from pages._parts.missing import other_run, unknown
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import classifications

TITLE = "Classify"
ICON = ":material/category:"


def nothing_yet() -> None:
    """No classification was run: the demo at a click."""
    with st.container(border=True, key="classify_card"):
        if results.image_demo_key() is None:
            plain("There is no result yet, and the image demo's files are not part of this copy.", "nu-lead")
            st.page_link("20_bring.py", label="Bring your own model")
            return
        plain(
            "There is no result yet. The demo: a small vision transformer sorts pictures of clothes (Fashion-MNIST). "
            "All methods are shipped as learned; it takes up to two minutes on two cores.",
            "nu-lead",
        )
        if st.button("Run the image demo", type="primary", key="run_image_demo"):
            choice.put(run=engine.submit(engine.classify_demo_spec()))
            st.rerun()


def strip(c: Classified) -> None:
    """Which run, and which method the pictures of a single one show."""
    with st.container(key="strip"):
        left, right = st.columns([3, 2], vertical_alignment="bottom")
        with left:
            pick_run(c.key, classifications())
        with right:
            st.session_state["pick_entry"] = c.entry
            st.selectbox(
                "Method looked at",
                c.entries,
                format_func=c.title,
                key="pick_entry",
                on_change=lambda: choice.put_entry(st.session_state["pick_entry"]),
            )
        plain(f"{c.attrs.get('cases')} {c.noun}, {c.verification.sizes['class']} classes · ensembles of {c.attrs.get('members')}")


def pick_score(label: str, names: list[str], first: str, key: str) -> str | None:
    """One of the scores that the run made."""
    if not names:
        return None
    first = first if first in names else names[0]
    return st.segmented_control(
        label, names, default=first, format_func=SCORES.__getitem__, required=True, key=key, persist_state="session"
    )


st.html(
    "<h1 class='nu-title'>Does it know when it is wrong?</h1><p class='nu-claim'>A classifier says a class and how sure it is. "
    "Here its frozen self stands beside methods that make it say so more honestly.</p>"
)
run, missing = looked_at()
if missing is not None:
    unknown(missing)
    if done := [r for r in classifications() if r.status == "done"]:
        other_run(done)
    st.page_link("10_start.py", label="Go to the start page")
    st.stop()
if run is None:
    nothing_yet()
    st.stop()
if run.status in LIVE:
    follow(run.key)
    st.stop()
if run.status != "done":
    ended_badly(run.key)
    st.stop()

c = opened(run.key)
choice.put_entry(c.entry)
strip(c)
plain(headline(c), "nu-headline")
if said := finding(c):
    plain(said, "nu-lead")
methods_table(c)
score = pick_score("Score", columns(c)[0], "ece", "class_score")
chart("class_scores", c, entry=c.entry, score=score)
st.html("<h2 class='nu-section'>Does it happen as often as it says?</h2>")
left, right = st.columns(2)
with left:
    chart("class_reliability", c, entry=c.entry)
with right:
    chart("confidence_histogram", c, entry=c.entry)
st.html("<h2 class='nu-section'>Does it know when to be unsure?</h2>")
chart("risk_coverage", c, entry=c.entry)
if c.verification.sizes.get("corruption"):
    harmed = [name for name in SCORES if f"{name}_corrupted" in c.verification]
    chart("robustness", c, entry=c.entry, score=pick_score("Score under corruption", harmed, "accuracy", "harmed_score"))
if c.verification.sizes.get("ood"):
    for name in c.verification["ood"].values:
        chart("outside_detection", c, name=f"outside_{name}", entry=c.entry, ood=str(name))
st.html("<h2 class='nu-section'>Its surest mistakes</h2>")
try:
    gallery(c)
except EngineError as refusal:
    error_card(refusal, key="error_gallery")
with st.expander("Everything else"):
    chart("class_trade_off", c)
    st.dataframe(all_scores(c), hide_index=True, width="stretch")
    for note in c.notes:
        plain(note)
