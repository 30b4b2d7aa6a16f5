"""What the figures of a classification share: the entries there are and their names, the choice of one, scores in words, the footer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from engine import judging
from engine.errors import SpecError
from engine.figures._charted import Charted
from engine.figures._select import Selection, between
from engine.figures._style import number, percent
from engine.types import Array

if TYPE_CHECKING:
    import xarray as xr

CONTROLS = {"no_noise": "no noise", "constant_noise": "constant noise", "no_matching": "no matching"}
"""Variants that show whether input-dependent noise is real; what they are called beside the entry that they control."""
PERCENT = frozenset({"accuracy", "ece", "ece_adaptive", "fpr95_failure"})
"""Shares, told in percent; their differences in percentage points."""
CALLED = {
    "accuracy": "accuracy",
    "mcc": "Matthews correlation",
    "brier_multiclass": "Brier score",
    "ece": "calibration error",
    "ece_adaptive": "adaptive calibration error",
    "auroc_failure": "AUROC of mistakes",
    "fpr95_failure": "FPR95 of mistakes",
    "brier_mcb": "miscalibration",
    "brier_dsc": "discrimination",
}
"""Scores by plain words where their symbol is not one that people say."""


@dataclass(frozen=True)
class ClassSelection(Selection):
    """A classification and the entry that is looked at; regions, lead times and variables there are none."""

    entry: str = ""

    @property
    def entries(self) -> list[str]:
        """All entries, in the run's order."""
        return [str(e) for e in self.verification["entry"].values]

    @property
    def teacher(self) -> str:
        """The entry of the frozen model."""
        return str(self.verification.attrs.get("teacher", "deterministic"))

    @property
    def cases(self) -> int:
        """Number of labelled examples."""
        return int(self.verification.attrs.get("cases", self.verification.sizes.get("case", 0)))

    @property
    def members(self) -> int:
        """M of the entry that is looked at."""
        return self.members_of(self.entry)

    def members_of(self, entry: str) -> int:
        """M of an entry: forecasts that are averaged, 1 where nothing is sampled."""
        return int(self.get("members", entry))

    def name(self, entry: str | None = None) -> str:
        """An entry in words."""
        return str(self.verification["entry_title"].sel(entry=entry or self.entry).item())

    def short(self, entry: str) -> str:
        """A control by what it lacks, any other by its name: beside the entry that is controlled there is no doubt."""
        return next((CONTROLS[part] for part in entry.split(":") if part in CONTROLS), self.name(entry))

    def get(self, name: str, entry: str | None = None, **where: Any) -> Any:
        """A variable, of one entry where one is named. Raises SpecError where the run did not store it."""
        if name not in self.verification:
            raise SpecError(
                f"classification {self.key}",
                found=f"no {name}",
                expected="a run that stored it",
                remedy="Run it again with what this picture needs switched on.",
            )
        at = where | ({"entry": entry} if entry else {})
        return self.verification[name].sel(at).values

    def ends(self, name: str, entry: str | None = None, **where: Any) -> tuple[float, float, float]:
        """(value, low, high) of a score of one entry."""
        value, low, high = (float(self.get(name + end, entry or self.entry, **where)) for end in ("", "_low", "_high"))
        return value, low, high

    def difference(self, score: str, entry: str, against: str) -> tuple[float, float, float] | None:
        """Score of `entry` less that of `against` with its paired interval; None where the run did not compare these two."""
        return judging.difference(self.verification, score, entry, against)

    def symbol(self, score: str) -> str:
        """A score's symbol, for the footer that states its estimator."""
        return str(self.verification[score].attrs.get("symbol") or score.replace("_", " "))

    def called(self, score: str) -> str:
        """A score in words."""
        return CALLED.get(score, self.symbol(score))

    def higher(self, score: str) -> bool:
        """Whether more of the score is better."""
        return self.verification[score].attrs.get("better") == "higher"

    def subject(self, *, region: bool = True, nu: bool = True) -> str:
        """`Synthetic clothing, 10 classes`."""
        del region, nu
        return f"{self.verification.attrs.get('title') or 'labelled examples'}, {self.verification.sizes['class']} classes"

    def footer(self, estimator: str, uncertainty: str, *, members: bool = True, entries: Sequence[str] = ()) -> str:
        """What every figure of a classification states: members, examples, estimator, sampling uncertainty, run."""
        counts = sorted({self.members_of(e) for e in entries or (self.entry,)})
        many = f"M = {counts[0]} member{'s' if counts[0] != 1 else ''}" if len(counts) == 1 else f"M = {counts[0]} … {counts[-1]} members"
        parts = [many] if members else []
        return " · ".join([*parts, f"{self.cases:,} examples", estimator, uncertainty, f"run {self.key}"])

    def bootstrap(self) -> str:
        """How the stored intervals were made."""
        return f"95% bootstrap over examples ({self.verification.attrs.get('bootstrap', '?')} draws)"


class Classified(Charted):
    """A figure that reads a classification: its selections are `entry`, `narrow` and its own. `paths`: the entry must have paths."""

    reads: ClassVar[Literal["verification", "calibration", "classification"]] = "classification"
    nus = 1
    paths: ClassVar[bool] = False

    def choose(self, verification: "xr.Dataset", options: dict[str, Any]) -> Selection:
        """The checked selection; the entry that was not named is DIRECTOR's, or the first that is neither frozen nor a control."""
        may = {"entry", "narrow", *self.accepts}
        if set(options) - may:
            raise SpecError(
                "figure options",
                found=", ".join(sorted(set(options) - may)),
                expected=", ".join(sorted(may)),
                remedy="Drop the others: a classification has entries, but no regions, lead times or variables.",
            )
        if "entry" not in verification.dims or "class" not in verification.dims:
            raise SpecError(
                f"figure {self.key}",
                found="a result of fields",
                expected="a classification",
                remedy="Draw it from a run that classified examples.",
            )
        every = [str(e) for e in verification["entry"].values]
        have = [e for e in every if not self.paths or has_paths(verification, e)]
        if not have:
            raise SpecError(
                f"figure {self.key}",
                found="no entry with paths",
                expected="a DIRECTOR entry",
                remedy="Run it again with DIRECTOR among the methods.",
            )
        named = options.get("entry")
        entry = one_of("entry", named, have) if named is not None else _first(have, str(verification.attrs.get("teacher", "")))
        kept = {k: v for k, v in options.items() if k in may and k != "entry"}
        return ClassSelection(verification, (int(verification.attrs.get("nu") or 0),), "", float("nan"), "", kept, entry)


def classes(s: Selection) -> ClassSelection:
    """The selection as what it is for these figures."""
    assert isinstance(s, ClassSelection)
    return s


def one_of(what: str, value: Any, have: Iterable[Any]) -> Any:
    """The value, where it is one of those that there are; refused with them otherwise."""
    have = list(have)
    for known in have:
        if value == known:
            return known
    raise SpecError(
        f"figure option {what}", found=repr(value), expected=f"one of {', '.join(map(str, have))}", remedy="Choose one of these."
    )


def is_control(entry: str) -> bool:
    """Whether an entry is there to be compared with, not to be used."""
    return not CONTROLS.keys().isdisjoint(entry.split(":"))


def has_paths(data: "xr.Dataset", entry: str) -> bool:
    """Whether an entry goes through a student's steps."""
    return "step_error" in data and bool(np.isfinite(data["step_error"].sel(entry=entry)).any())


def _first(have: list[str], teacher: str) -> str:
    plain = [e for e in have if e != teacher and not is_control(e)]
    return next((e for e in plain if e.partition(":")[0] == "director"), (plain or have)[0])


def in_words(score: str, value: float) -> str:
    """A value of a score for people."""
    return percent(value, 1) if score in PERCENT else number(value)


def with_ends(score: str, value: float, low: float, high: float) -> str:
    """`0.116 (0.091 … 0.140)`, `86.1% (84.0% … 88.3%)`."""
    return f"{percent(value, 1)} ({percent(low, 1)} … {percent(high, 1)})" if score in PERCENT else between(value, low, high)


def amount(score: str, difference: tuple[float, float, float]) -> str:
    """The size of a difference that is not zero, without its sign: `0.021 (0.010 … 0.034)`, `1.2 points (0.4 … 2.0)`."""
    low, value, high = sorted(abs(d) for d in difference)
    return evenly(score, (value, low, high), sign=False)


def evenly(score: str, difference: tuple[float, float, float], *, sign: bool = True) -> str:
    """A difference with its interval, as many decimals for all three as the interval's width calls for: `−0.038 (−0.072 … −0.001)`."""
    factor, unit = (100.0, " points") if score in PERCENT else (1.0, "")
    width = factor * abs(difference[2] - difference[1]) or 1.0
    places = min(6, max(0, 1 - floor(log10(width))))
    value, low, high = (f"{factor * d + 0.0:{'+' if sign else ''}.{places}f}".replace("-", "\N{MINUS SIGN}") for d in difference)
    return f"{value}{unit} ({low} … {high})"


def clear(difference: tuple[float, float, float]) -> bool:
    """Whether the interval of a difference leaves out zero: told apart."""
    return judging.told_apart(difference[1], difference[2])


def spanning(values: Iterable[float], margin: float = 0.06) -> tuple[float, float]:
    """A range of an axis that holds all finite values with room at both ends."""
    kept = [float(v) for v in values if np.isfinite(v)] or [0.0, 1.0]
    low, high = min(kept), max(kept)
    pad = (high - low or abs(high) or 1.0) * margin
    return low - pad, high + pad


def confidences(s: ClassSelection, entry: str) -> tuple[Array, NDArray[np.bool_]]:
    """(greatest probability, whether its class is right) of each labelled example, `(case,)` both."""
    p, observed = s.get("probability", entry), s.get("observed")  # bins keep to the precision that was stored
    known = observed >= 0
    return p.max(-1)[known], (p.argmax(-1) == observed)[known]
