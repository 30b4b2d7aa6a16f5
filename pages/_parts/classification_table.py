"""The table of methods: each score with its interval, and in bold the best of those told apart from the frozen model."""

import html
from typing import Any

import pandas as pd
import streamlit as st

from engine import judging
from pages._parts.cards import plain
from pages._parts.classification import ENDS, Classified, Interval, spelled
from pages._parts.preflight_table import count
from pages._parts.words import number

SCORES = {"accuracy": "Accuracy", "ece": "ECE", "nll": "NLL", "brier_multiclass": "Brier"}
DETECTED = "auroc_ood_max_softmax"
HELP = (
    "Accuracy: how often the most probable class is right. ECE: how far its probability is from how often it is right. NLL and Brier: "
    "both in one number. Found outside: how well confidence tells {noun} of another kind (AUROC; 0.5 is chance)."
)
ARROWS = {"higher": "↑", "lower": "↓"}


def cell(text: str, found: Interval | None, spell: Any, bold: bool = False) -> str:
    """A value over its interval."""
    ends = f"<small>{spell(found[1])} … {spell(found[2])}</small>" if found and found[1] == found[1] else ""
    return f"<td>{'<b>' if bold else ''}{html.escape(text)}{'</b>' if bold else ''}{ends}</td>"


def columns(c: Classified) -> tuple[list[str], list[str]]:
    """(scores that the run made, sets of outside examples it was shown)."""
    data = c.verification
    outside = [str(name) for name in data["ood"].values] if DETECTED in data else []
    return [name for name in SCORES if name in data], outside


def methods_table(c: Classified) -> None:
    """One row a method; the one looked at is marked."""
    scores, outside = columns(c)
    winners = {name: judging.best(c.verification, name) for name in scores}
    arrows = {name: ARROWS.get(str(c.verification[name].attrs.get("better")), "") for name in scores}
    heads = ["Method", *(f"{SCORES[name]} {arrows[name]}" for name in scores), *(f"Found outside: {o} ↑" for o in outside)]
    heads += ["Members", "Parameters", "ms an example"]
    body = []
    for entry in c.methods:
        said = [f"<th scope='row'>{html.escape(c.title(entry))}</th>"]
        for name in scores:
            found = c.score(name, entry)
            text = spelled(name, found[0]) if found else "–"
            said.append(cell(text, found, lambda v, n=name: spelled(n, v), winners[name] == entry))
        for name in outside:
            found = c.score(DETECTED, entry, ood=name)
            said.append(cell(spelled(DETECTED, found[0]) if found else "–", found, lambda v: spelled(DETECTED, v)))
        said += [cell(text, None, number) for text in cost(c, entry)]
        body.append(f"<tr{' class=nu-chosen' if entry == c.entry else ''}>{''.join(said)}</tr>")
    head = "".join(f"<th scope='col'>{html.escape(h)}</th>" for h in heads)
    st.html(f"<div class='nu-wide'><table class='nu-scores'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>")
    told = ", ".join(SCORES[name] for name, winner in winners.items() if winner)
    plain(
        f"Beneath each value its 95% interval. Bold: best of those that are better than the frozen model and told apart from it "
        f"({told or 'none is'}). {HELP.format(noun=c.noun)}"
    )


def cost(c: Classified, entry: str) -> tuple[str, str, str]:
    """Members, parameters and milliseconds of a method."""
    at = c.verification.sel(entry=entry)
    ms = float(at["milliseconds"])
    return str(int(at["members"])), count(at["parameters"]), number(ms) if ms == ms else "–"


def all_scores(c: Classified) -> pd.DataFrame:
    """Every score of every entry, the controls too, with its interval and its difference from the frozen model."""
    rows = []
    for entry in c.entries:
        row: dict[str, Any] = {"method": c.title(entry)}
        for name, data in c.verification.data_vars.items():
            if data.dims != ("entry",) or str(name).endswith(ENDS[1:]) or "title" not in data.attrs:
                continue
            found, apart = c.score(str(name), entry), c.difference(str(name), entry, c.teacher)
            label = str(data.attrs.get("symbol") or name)
            row[label] = f"{number(found[0])} ({number(found[1])} … {number(found[2])})" if found else "–"
            if apart and entry != c.teacher:
                row[f"{label} less frozen"] = f"{number(apart[0])} ({number(apart[1])} … {number(apart[2])})"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")
