"""A classification as its pages look at it: which run and which method are meant, and what it says in plain words."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine import judging
from pages._parts import choice, results
from pages._parts.progress import LIVE
from pages._parts.results import classifications, stamp_of, verification_of
from pages._parts.words import MINUS

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

Interval = tuple[float, float, float]
"""(value, low, high)."""
SURE = 0.9
"""From this probability on a forecast is called sure."""
FEW = 30
"""With fewer sure cases than this, all cases are spoken of instead."""
PERCENT = ("accuracy", "ece", "ece_adaptive", "fpr95_failure")
"""Shares, told in percent; their differences in percentage points."""


@dataclass(frozen=True)
class Classified:
    """One finished classification and the method looked at. `verification` is its result: figures call what they read by that name."""

    key: str
    stamp: int
    verification: "xr.Dataset"
    entry: str = ""

    @property
    def attrs(self) -> dict[str, Any]:
        """The result's attributes."""
        return self.verification.attrs

    @property
    def select(self) -> dict[str, Any]:
        """Nothing is selected for all figures: most show every method."""
        return {}

    @property
    def facts(self) -> dict[str, Any]:
        """What its lineage says beside what every run has."""
        return {
            "Method": self.title(self.entry) if self.entry else None,
            "Calibration error": self.attrs.get("ece_rule"),
            "ν": f"{self.attrs.get('nu')}: {self.attrs.get('nu_rule')}" if self.attrs.get("nu") else None,
            "Intervals": f"95%, bootstrap over cases, {self.attrs.get('bootstrap')} draws; differences: paired",
        }

    @cached_property
    def entries(self) -> list[str]:
        """All methods and variants of the run, in its order."""
        return [str(e) for e in self.verification["entry"].values]

    @cached_property
    def methods(self) -> list[str]:
        """Those that are compared: without the controls of DIRECTOR, which only say why it works."""
        return [e for e in self.entries if not judging.CONTROLS & set(e.split(":"))]

    @property
    def teacher(self) -> str:
        """The frozen model."""
        return str(self.attrs.get("teacher") or "deterministic")

    @property
    def noun(self) -> str:
        """`images`, `texts` or `examples`."""
        return {"images": "images", "text": "texts"}.get(str(self.attrs.get("kind")), "examples")

    @property
    def notes(self) -> list[str]:
        """What is to be known about the run."""
        return [str(note) for note in json.loads(self.attrs.get("notes") or "[]")]

    def title(self, entry: str) -> str:
        """A method's name for people."""
        return str(self.verification["entry_title"].sel(entry=entry).item()) if entry in self.entries else entry

    def score(self, name: str, entry: str, **where: Any) -> Interval | None:
        """A score of one method with its interval; None where it was not made, or is not defined."""
        return self._read(name, {"entry": entry} | where)

    def difference(self, name: str, entry: str, against: str) -> Interval | None:
        """Score of `entry` less that of `against`, from the paired bootstrap; None where the run did not compare these two."""
        return judging.difference(self.verification, name, entry, against)

    def better(self, name: str, entry: str, against: str) -> bool | None:
        """Whether `entry` does better (True) or worse (False) in a score; None where the difference is within its noise or unknown."""
        return judging.better(self.verification, name, entry, against)

    def _read(self, name: str, where: dict[str, Any]) -> Interval | None:
        data = self.verification
        if name not in data or any(value not in data[dim].values for dim, value in where.items()):
            return None
        middle, low, high = (float(data[name + end].sel(where)) if name + end in data else float("nan") for end in ENDS)
        return (middle, low, high) if middle == middle else None

    def forecasts(self, entry: str) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
        """(said class, its probability, observed class) of each case."""
        p = self.verification["probability"].sel(entry=entry).values
        return p.argmax(-1), p.max(-1), self.verification["observed"].values


ENDS = ("", "_low", "_high")


def share(value: float) -> str:
    """A share with one decimal: `84.1%`."""
    return f"{100 * value:.1f}%"


def spelled(name: str, value: float) -> str:
    """A score's value as it is told."""
    return share(value) if name in PERCENT else f"{value:.3f}".replace("-", MINUS)


def change(name: str, found: Interval) -> str:
    """A difference in words: `3.1 points lower (2.0 … 4.2)`, or `not told apart`."""
    middle, low, high = found
    if not judging.told_apart(low, high):
        return "not told apart"
    factor, unit = (100, " points") if name in PERCENT else (1, "")
    ends = sorted(abs(v) for v in (low, high))

    def spell(value: float) -> str:
        return f"{factor * value:.{1 if unit else 3}f}"

    return f"{spell(abs(middle))}{unit} {'higher' if middle > 0 else 'lower'} ({spell(ends[0])} … {spell(ends[1])})"


def headline(c: Classified) -> str:
    """What the frozen model is worth, in one sentence: how often right, and whether it knows."""
    said, confidence, observed = c.forecasts(c.teacher)
    right, sure = said == observed, confidence >= SURE
    text = f"Of {len(right):,} {c.noun} the frozen model gets {share(right.mean())} right; "
    if sure.sum() < FEW:
        return f"{text}it says {share(confidence.mean())} on average."
    return (
        f"{text}where it is at least {SURE:.0%} sure, which it is of {sure.mean():.0%}, it says {share(confidence[sure].mean())} "
        f"and is right {share(right[sure].mean())} of the time."
    )


def finding(c: Classified) -> str:
    """Which method says best how sure it may be, as far as the intervals allow to say so."""
    frozen = c.score("ece", c.teacher)
    found = {e: score for e in c.methods if (score := c.score("ece", e))}
    if frozen is None or len(found) < 2:
        return ""
    best = judging.best(c.verification, "ece")
    said = f"the frozen model's {share(frozen[0])} ({share(frozen[1])} … {share(frozen[2])})"
    if best is None:
        return f"No method's calibration error is told apart from {said} and lower."
    value, low, high = found[best]
    among = "" if value == min(v for v, _, _ in found.values()) else " of those told apart from the frozen model"
    text = f"Least calibration error{among}: {c.title(best)} with {share(value)} ({share(low)} … {share(high)}) against {said}"
    if right := c.difference("accuracy", best, c.teacher):
        text += f"; its accuracy is {change('accuracy', right)}"
    return f"{text}."


def looked_at(*, director: bool = False) -> tuple[Any | None, str | None]:
    """(run, unknown key): the classification that the address means; else the one looked at before, else the newest.

    With `director`, the newest that holds DIRECTOR is preferred where the address names none.
    """
    known = classifications()
    key = choice.current("run")
    if key is not None and key not in {r.key for r in known}:
        if all(r.key != key for kind in (True, False) for r in results.runs_that(calibrate=kind)):
            return None, key
        key = choice.turn_to("labels", {r.key for r in known})  # the run of another page
    if key is None:
        wanted = [r for r in known if holds_director(r)] + known if director else known
        key = next((r.key for kind in (("done",), LIVE, ("failed", "cancelled")) for r in wanted if r.status in kind), None)
        if key is not None:
            choice.put(run=key)
    return next((r for r in known if r.key == key), None), None


def holds_director(run: Any) -> bool:
    """Whether DIRECTOR is among a run's methods."""
    return any(str(e).split(":")[0] == "director" for e in run.spec.get("entries", ()))


def opened(key: str) -> Classified:
    """A finished classification, with the method that the address names; a wrong name gives the first choice."""
    c = Classified(key, stamp_of(key), verification_of(key))
    first = next((e for e in ("director", "stochastic_attention") if e in c.entries), c.entries[0])
    asked = choice.entry()
    entry = asked if asked in c.entries else first
    return Classified(c.key, c.stamp, c.verification, entry)
