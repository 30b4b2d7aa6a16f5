"""Start: what this is, the demo at a click, its result at once, and the last runs."""

import html
from typing import Any

import streamlit as st

import engine
from engine.errors import EngineError
from pages._parts import choice, results
from pages._parts.cards import error_card, literal, plain
from pages._parts.chart import chart
from pages._parts.classification import finding, opened
from pages._parts.classification import headline as class_headline
from pages._parts.header import Looked, best_nu
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import demo_key, page_of, stamp_of, verification_of
from pages._parts.words import STATUS, duration, headline, region_title, variable_title, when

TITLE = "Start"
ICON = ":material/home:"

WHAT = (
    "Nuscope turns a frozen weather transformer into an ensemble, without training: its attention is sampled instead of averaged. "
    "One number, ν, sets how much: small ν spreads the forecasts wide, large ν gives the old single forecast back. "
    "Here you see which ν tells the truth about its own uncertainty, and where."
)


def result(key: str) -> None:
    """The finished demo: one sentence, the curve, and the ways on."""
    verification = verification_of(key)
    where, nu, remarks = at_address(key, verification)
    looked = Looked(key, stamp_of(key), verification, nu, **where)
    for remark in remarks:
        st.warning(literal(remark))
    st.html(f"<p class='nu-headline'>{html.escape(headline(verification, nu, **where))}</p>")
    with st.container(horizontal=True, gap="small"):
        for page, label in (
            ("30_sweep.py", "Choose ν"),
            ("40_diagnose.py", "Check its honesty"),
            ("50_maps.py", "See the maps"),
            ("20_bring.py", "Bring your own model"),
        ):
            if st.button(label, key=f"to_{page}", type="primary" if page == "50_maps.py" else "secondary"):
                choice.put(run=key, nu=nu)
                st.switch_page(page, query_params={"run": key, "nu": str(nu)} | {n: choice.spelt(v) for n, v in where.items()})
    chart("trade_off", looked, name="start_trade_off", on_point=lambda points: seen(key, points))


def seen(key: str, points: list[dict[str, Any]]) -> None:
    """A clicked point of the curve: the demo is looked at from then on, at this ν."""
    choice.put(run=key)
    choice.put_point(points)


def at_address(key: str, verification: Any) -> tuple[dict[str, Any], int, list[str]]:
    """(region, variable and lead time, ν, what to say) that the address asks for, where it means this run; else the run's first ones."""
    spelling = {"region": region_title, "variable": variable_title, "lead_time": lambda hours: f"{hours:g} h"}
    options = {
        "region": list(map(str, verification.region.values)),
        "variable": list(map(str, verification.variable.values)),
        "lead_time": [float(v) for v in verification.lead_time.values],
    }
    if choice.current("run") not in (None, key):  # the address speaks of another run, and keeps to it
        where: dict[str, Any] = {name: values[0] for name, values in options.items()}
        return where, best_nu(verification, **where), []
    found = {name: choice.one_of(name, values, spelling[name]) for name, values in options.items()}
    where = {name: value for name, (value, _) in found.items()}
    grid = [int(n) for n in verification.nu.values]
    nu, remark = choice.nearest(choice.current("nu"), grid, best_nu(verification, **where))
    return where, nu, [said for said in (*(r for _, r in found.values()), remark) if said]


def demo() -> None:
    """The demo in whichever state it is in."""
    key = demo_key()
    if key is None:
        with st.container(border=True, key="demo_missing"):
            plain("The demo's files are not part of this copy (folder assets/demo). Bring your own model and data instead.", "nu-lead")
            st.page_link("20_bring.py", label="Bring your own model")
        return
    state = {r.key: r for r in engine.runs_list()}.get(key)
    if state is not None and state.status == "done":
        result(key)
        return
    if state is not None and state.status in LIVE:
        follow(key)
        return
    if state is not None:
        ended_badly(key)
        return
    seconds = engine.demo_seconds()
    takes = (
        f"It takes about {duration(seconds)} on this computer, if it does nothing else."
        if seconds
        else "It takes a minute or two on two cores."
    )
    plain(
        f"A small ClimaX, trained on PlaSim T21 climate-model data, forecasts the 500 hPa height 72 hours ahead. {takes}",
        "nu-lead",
    )
    if st.button("Run the demo", type="primary", key="run_demo"):
        engine.submit(engine.demo_spec())
        st.rerun()


def images() -> None:
    """The second demo, on class labels: what it takes, how far it is, or its answer."""
    key = results.image_demo_key()
    if key is None:
        return
    st.html("<h2 class='nu-section'>A classifier: Fashion-MNIST images</h2>")
    state = {r.key: r for r in engine.runs_list()}.get(key)
    if state is not None and state.status in LIVE:
        follow(key)
        return
    if state is not None and state.status != "done":
        ended_badly(key)
        return
    with st.container(border=True, key="image_demo"):
        if state is None:
            plain(
                "A small vision transformer sorts pictures of clothes. Its attention is sampled too, and beside it stand DIRECTOR, which "
                "distils its whole stack into one small stochastic step, and the usual methods. It takes up to two minutes on two cores.",
                "nu-lead",
            )
            if st.button("Run the image demo", key="run_image_demo"):
                engine.submit(engine.classify_demo_spec())
                st.rerun()
            return
        c = opened(key)
        plain(class_headline(c), "nu-lead")
        plain(finding(c))
        with st.container(horizontal=True, gap="small"):
            for page, label in (("45_classify.py", "Compare the methods"), ("70_director.py", "See DIRECTOR's paths")):
                if st.button(label, key=f"to_{page}"):
                    choice.put(run=key)
                    st.switch_page(page, query_params={"run": key})


st.html(f"<h1 class='nu-title nu-hero'>How far can you believe this forecast?</h1><p class='nu-claim'>{WHAT}</p>")
try:
    demo()
except EngineError as refusal:
    error_card(refusal, key="error_demo")
try:
    images()
except EngineError as refusal:
    error_card(refusal, key="error_image_demo")

recent = engine.runs_list()[:5]
if recent:
    st.html("<h2 class='nu-section'>Last runs</h2>")
    for run in recent:
        name, status, link = st.columns([6, 2, 2], vertical_alignment="center")
        name.text(run.title)
        with status:
            plain(f"{STATUS[run.status]}{f' {run.share:.0%}' if run.status == 'running' else ''} · {when(run.created)}")
        if link.button("Open", key=f"open_{run.key}", type="tertiary"):
            choice.put(run=run.key)
            st.switch_page(page_of(run), query_params={"run": run.key})
