"""What a run says of DIRECTOR in plain words: the student beside its teacher, and what its controls show."""

import html

import streamlit as st

from engine import judging
from pages._parts.cards import plain
from pages._parts.classification import Classified, change
from pages._parts.preflight_table import count
from pages._parts.words import number, size

STUDENT = "director"
WHAT = {
    "no_noise": "noise at all",
    "constant_noise": "noise that depends on the input",
    "no_matching": "matching the teacher's steps",
}
"""What a control leaves out."""
JUDGE = "nll"
"""The score that judges the controls: it falls both with better answers and with more honest ones."""


def student(c: Classified) -> str | None:
    """The entry that is DIRECTOR itself; a variant of it where there is no other."""
    return next((e for e in c.entries if e == STUDENT), next((e for e in c.methods if e.split(":")[0] == STUDENT), None))


def headline(c: Classified, entry: str) -> str:
    """Size, accuracy and calibration error of the student against the teacher's."""
    at = c.verification
    mine, its = (float(at["parameters"].sel(entry=e)) for e in (entry, c.teacher))
    text = f"A student with {mine / its:.0%} of its teacher's parameters"
    told = []
    for name, label in (("accuracy", "accuracy"), ("ece", "calibration error")):
        if found := c.difference(name, entry, c.teacher):
            told.append(f"{label} {change(name, found)}")
    return f"{text}: {', '.join(told)}." if told else f"{text}."


def controls(c: Classified, entry: str) -> str:
    """What leaving out each part does, as far as the intervals allow to say so."""
    gains, same, losses = list[str](), list[str](), list[str]()
    for variant, words in WHAT.items():
        control = f"{STUDENT}:{variant}"
        found, better = c.difference(JUDGE, entry, control), c.better(JUDGE, entry, control)
        if found is None:
            continue
        if better is None:
            same.append(words)
        else:
            (gains if better else losses).append(f"{words} (NLL {change(JUDGE, found).replace(' (', ', ')}")
    says = []
    if gains:
        says.append(f"What helps: {_listed(gains)}.")
    if same:
        says.append(f"Not shown to help, since the difference in NLL is within its uncertainty: {_listed(same)}.")
    if losses:
        says.append(f"What hurts: {_listed(losses)}.")
    return " ".join(says)


def telling(c: Classified, entry: str) -> str:
    """Whether the spread of an example's paths tells its mistakes."""
    found = c.score("spread_error_auroc", entry)
    if found is None:
        return ""
    value, low, high = found
    text = f"The spread of an example's paths tells mistakes from right answers with an AUROC of {value:.2f} "
    text += f"({low:.2f} … {high:.2f}); 0.5 is chance."
    if not judging.told_apart(low, high, 0.5):
        text += " That is not told apart from chance."
    confidence = c.score("auroc_failure", entry)
    return f"{text} Its confidence alone reaches {confidence[0]:.2f}." if confidence else text


def sizes(c: Classified, entry: str) -> None:
    """Parameters, memory and time of the student beside the teacher's."""
    at = c.verification
    heads = ["", "Parameters", "Memory", "ms an example", "Members"]
    rows = []
    for e in (c.teacher, entry):
        one = at.sel(entry=e)
        ms = float(one["milliseconds"])
        cells = (count(one["parameters"]), size(int(one["memory_bytes"])), number(ms) if ms == ms else "–", str(int(one["members"])))
        rows.append(f"<tr><th scope='row'>{html.escape(c.title(e))}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th scope='col'>{h}</th>" for h in heads)
    st.html(f"<div class='nu-wide'><table class='nu-scores'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>")
    plain("Memory: the weights alone. Time: one example with all its members, the teacher with one.")


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
