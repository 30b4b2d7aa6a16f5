"""Cards of a calibration: its two operating points, whether ν* holds on other data, and the ν of each block of layers."""

import html
import json
from typing import Any

import pandas as pd
import streamlit as st

import engine
from engine import judging
from engine.errors import EngineError
from pages._parts import choice
from pages._parts.calibration import CALIBRATION, SCORE, Calibration, cost
from pages._parts.cards import error_card, plain
from pages._parts.progress import LIVE, ended_badly, follow
from pages._parts.results import verification_of
from pages._parts.words import POINTS, number, percent

MEANING = {
    CALIBRATION: judging.MATCHED,
    SCORE: judging.LEAST_CRPS,
}
REASON = (
    "the departure of the members contains the bias of their mean, so matching its scale is not the same as matching the spread. "
    "“Find it another way” below can choose ν by coverage or by the PIT instead."
)


def points(looked: Calibration) -> None:
    """Both operating points side by side, each with its numbers and what it costs in the other's terms."""
    for column, (name, point) in zip(st.columns(2), looked.points.items(), strict=False):
        other = looked.points.get(SCORE if name == CALIBRATION else CALIBRATION)
        with column, st.container(border=True, key=f"card_{name}", height="stretch"):
            nu, low, high = int(point["nu"]), point.get("low"), point.get("high")
            between = f" ({low:,.0f} … {high:,.0f})" if low is not None and high is not None and low == low and high == high else ""
            st.html(f"<p class='nu-lead'><b>{POINTS[name]}: ν = {nu}{between}</b></p>")
            by_rule = name == CALIBRATION and looked.attrs.get("objective") not in ("scale", "per_example", "grid")
            meaning = MEANING[name] if name == SCORE or looked.met else "The nearest to a match that the search found."
            plain(f"Chosen by: {point.get('rule')}." if by_rule else meaning)
            if point["remark"]:
                plain(f"{point['remark'][0].upper()}{point['remark'][1:]}.", "nu-callout")
            rows = "".join(
                f"<tr><th scope='row'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in numbers(looked, nu).items()
            )
            st.html(f"<table class='nu-facts'>{rows}</table>" if rows else "<p class='nu-note'>No ensemble was scored at this ν.</p>")
            if other is not None:
                plain(cost(point, other))


def numbers(looked: Calibration, nu: int) -> dict[str, str]:
    """The scores at one ν on the calibration data, with their intervals."""
    unit, says = str(looked.attrs.get("unit", "")), dict[str, str]()
    if crps := looked.scored(nu, "crps_fair"):
        says["CRPS"] = f"{spread(crps)} {unit}".rstrip()
    if w1 := looked.scored(nu, "w1_pit"):
        says["W₁(PIT)"] = spread(w1)
    if held := looked.scored(nu, "coverage_95"):
        perfect, words = judging.aim(looked.attrs)
        word = judging.coverage_word(*held, perfect)
        says["95% range held"] = spread(held, percent) + (f"; {words}{f': {word}' if word else ''}" if perfect == perfect else "")
    return says


def spread(value: tuple[float, float, float], spell: Any = number) -> str:
    """`17.6 (16.4 … 18.8)`."""
    middle, low, high = value
    return f"{spell(middle)} ({spell(low)} … {spell(high)})" if low == low and high == high else spell(middle)


def verified(looked: Calibration) -> None:
    """Does ν* hold on data it was not chosen on? Asked for by a button; answered here as soon as it is known."""
    st.html("<h2 class='nu-section'>Does it hold on data that it never saw?</h2>")
    seen = json.loads(looked.attrs.get("periods") or "{}").get("verify")
    if not seen:
        plain("This calibration names no data to verify on.")
        return
    try:
        spec = engine.verification_spec(looked.verification)
        key = spec.resolved().key()
    except EngineError as refusal:
        error_card(refusal, key="error_verify")
        return
    run = {r.key: r for r in engine.runs_list()}.get(key)
    if run is not None and run.status in LIVE:
        follow(key)
    elif run is not None and run.status == "done":
        with st.container(border=True, key="verified_card"):
            answer(verification_of(key), looked)
    elif run is not None:
        ended_badly(key)
        return
    else:
        plain(f"A sweep at both ν and around them, on {seen['cases']} cases from {seen['first'][:10]} to {seen['last'][:10]}.")
        if st.button(f"Verify at ν* = {looked.nu}", type="primary", key="verify"):
            engine.submit(spec)
            st.rerun()
        return
    if st.button("Open it in “Choose ν”", key="open_verified"):
        choice.put(run=key, nu=looked.nu)
        st.switch_page("30_sweep.py", query_params={"run": key, "nu": str(looked.nu)})


def answer(verification: Any, looked: Calibration) -> None:
    """Coverage and W₁ at ν*, and another ν that does better and is told apart, where there is one."""
    where = {name: verification[name].values[0] for name in ("region", "lead_time", "variable")}
    for name in ("region", "variable"):  # what the calibration speaks of, where the verification has it
        if looked.attrs.get(name) in verification[name].values:
            where[name] = looked.attrs[name]
    at = verification.sel(**where)
    grid = [int(n) for n in at["nu"].values]
    nu = min(grid, key=lambda n: abs(n - (looked.nu or 0)))
    cases = verification.attrs.get("cases")

    def value(name: str, n: int) -> tuple[float, float, float]:
        low, middle, high = (float(at[name + end].sel(nu=n)) for end in ("_low", "", "_high"))
        return middle, low, high

    too_few = False
    if "coverage_95" in at:
        held = value("coverage_95", nu)
        too_few = judging.coverage_word(*held, judging.aim(verification.attrs)[0]) == "too seldom"
        said = judging.coverage_sentence(verification.attrs, *held)
        plain(f"On {cases} cases that it never saw, at ν = {nu}, {said}.", "nu-lead")
    if "w1_pit" in at:
        mine = value("w1_pit", nu)
        plain(f"W₁(PIT), the distance from honest: {spread(mine)}; 0 is perfect.", "nu-lead")
        best = min(grid, key=lambda n: value("w1_pit", n)[0])
        if value("w1_pit", best)[2] < mine[1]:
            plain(f"ν = {best} has a lower W₁(PIT) here, told apart: {spread(value('w1_pit', best))}: {REASON}")
        elif too_few:
            plain(f"One reason: {REASON}")


def per_layer(looked: Calibration) -> None:
    """ν of each block of layers, where that was asked for, beside one ν for all."""
    found = json.loads(looked.attrs.get("per_layer") or "null")
    if not found:
        return
    score = str(found.get("objective", "")).replace("_", " ")
    with st.expander("A ν for each block of layers"):
        plain(
            f"{score}: {number(float(found['value']))} with a ν for each block, {number(float(found['value_shared']))} with "
            f"ν = {found['shared']} for all; both on the calibration data, on which they were chosen."
        )
        rows = "".join(f"<tr><th scope='row'>{html.escape(str(k))}</th><td>ν = {int(v)}</td></tr>" for k, v in found["groups"].items())
        st.html(f"<table class='nu-facts'>{rows}</table>")
        gain(looked, int(found["shared"]))


def gain(looked: Calibration, shared: int) -> None:
    """What the layers' own ν are worth on data that they were not chosen on, with its uncertainty; a button where it is not known."""
    try:
        specs = [engine.verification_spec(looked.verification, per_layer=layers) for layers in (False, True)]
        keys = [spec.resolved().key() for spec in specs]
    except EngineError as refusal:
        error_card(refusal, key="error_layers")
        return
    runs = {r.key: r for r in engine.runs_list()}
    states = [runs[key].status if key in runs else None for key in keys]
    for key, state in zip(keys, states, strict=True):
        if state in LIVE:
            follow(key)
        elif state not in (None, "done"):
            ended_badly(key)
    if states == ["done", "done"]:
        scores = engine.layers_gain(looked.verification)["scores"]
        plain(f"On the verification data, against ν = {shared} for all (95% intervals, the same cases on both sides):")
        told = []
        for name, label in (("crps_fair", "CRPS"), ("w1_pit", "W₁(PIT)"), ("coverage_95", "95% range held")):
            if name in scores:
                change, spell = scores[name]["difference"], percent if name == "coverage_95" else number
                sure = "" if change["real"] else "; within its noise, so no gain is shown"
                ends = f"difference {number(change['low'])} … {number(change['high'])}"
                told.append((label, f"{spell(scores[name]['one'])} → {spell(scores[name]['other'])} ({ends}{sure})"))
        rows = "".join(f"<tr><th scope='row'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in told)
        st.html(f"<table class='nu-facts'>{rows}</table>")
    elif None in states and not any(state in LIVE for state in states) and st.button("Verify the layers", key="verify_layers"):
        for spec in specs:
            engine.submit(spec)
        st.rerun()


def table(looked: Calibration) -> pd.DataFrame:
    """One row a ν that was scored: everything that was measured there."""
    shown = {
        "scale": "R",
        "shift": "R: shared shift",
        "spread": "R: spread",
        "loss": "(R − Z)²",
        "w1_pit": "W₁(PIT)",
        "coverage_95": "coverage",
        "width_95": "95% width",
    }
    shown |= {"crps_fair": "fair CRPS", "rmse": "RMSE", "acc": "ACC", "spread_skill_ratio": "spread/error", "nll_gaussian": "NLL"}
    grid = [int(n) for n in looked.verification["nu"].values]
    columns: dict[str, Any] = {"ν": grid}
    for name, label in shown.items():
        if name in looked.verification:
            columns[label] = [spread(found) if (found := looked.scored(nu, name)) else "–" for nu in grid]
    return pd.DataFrame(columns)
