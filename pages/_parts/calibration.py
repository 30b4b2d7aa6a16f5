"""A calibration as its page looks at it: which one is meant, and what it says in plain words."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engine import judging
from pages._parts import choice
from pages._parts.progress import LIVE
from pages._parts.results import classifies, is_calibration, kin, runs_that
from pages._parts.words import number, percent

if TYPE_CHECKING:
    import xarray as xr

CALIBRATION, SCORE = "calibration_first", "score_oriented"
MATCHED = {
    "scale": "Matched to the frozen forecast's own error.",
    "per_example": "Matched to the frozen forecast's own error, example by example.",
    "grid": "Matched by the loss itself: the mean of (R − Z)² is least here, R how far members stray, Z how far the frozen forecast errs.",
    "w1_pit": "Chosen by the PIT: its distance from uniform is least here.",
    "crps_fair": "Chosen by the fair CRPS, which is least here.",
    "coverage_95": "Chosen by the coverage of the 95% range: it is closest to a perfect (Gaussian) ensemble's here.",
    "nll_gaussian": "Chosen by the Gaussian negative log likelihood, which is least here.",
}
HEADS = {
    "edge": "At the edge of the search.",
    "rising": "The fit is in doubt.",
    "still": "Some passes moved nothing.",
    "few_cases": "Few cases.",
    "scalar_target": "A single number to forecast.",
    "missing": "Missing data.",
    "shift": "Expect too narrow intervals.",
    "disagree": "The readings disagree.",
}


@dataclass(frozen=True)
class Calibration:
    """One finished calibration. `verification` is its result: figures call what they read by that name."""

    key: str
    stamp: int
    verification: "xr.Dataset"

    @property
    def attrs(self) -> dict[str, Any]:
        """The result's attributes."""
        return self.verification.attrs

    @property
    def select(self) -> dict[str, Any]:
        """A calibration has nothing to select on."""
        return {}

    @property
    def facts(self) -> dict[str, Any]:
        """What its lineage says beside what every run has."""
        attrs = self.attrs
        passes = int(self.verification.sizes.get("evaluation", 0))
        return {
            "Objective": str(attrs.get("objective", "")).replace("_", " "),
            "Norm": attrs.get("norm"),
            "Searched": f"ν = 1 … {int(attrs.get('nu_max', 0)):,}, {passes} passes in {attrs.get('rounds')} rounds",
            "Stopped": attrs.get("stop"),
            "Intervals": "ν*: block bootstrap over cases; scales and scores: for dependent cases; fit: posterior",
        }

    @cached_property
    def points(self) -> dict[str, dict[str, Any]]:
        """Both operating points, as far as they are there."""
        return judging.operating_points(self.verification)

    @property
    def nu(self) -> int | None:
        """ν*, where there is one."""
        return int(self.points[CALIBRATION]["nu"]) if CALIBRATION in self.points else None

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """(headline, text) of what is warned of."""
        stored = json.loads(self.attrs.get("warnings") or "[]")
        return [(HEADS.get(str(w.get("code")), "To be known."), str(w.get("text", ""))) for w in stored]

    def scored(self, nu: int, name: str) -> tuple[float, float, float] | None:
        """(value, low, high) of a score at ν, or None where it was not scored there."""
        data = self.verification
        if name not in data or nu not in data["nu"].values:
            return None
        value, low, high = (float(data[name + end].sel(nu=nu)) for end in ("", "_low", "_high"))
        return (value, low, high) if value == value else None

    @property
    def met(self) -> bool:
        """Whether departure and error meet at ν*: neither at an edge of the search, nor where the departure rises with ν."""
        return not self.points[CALIBRATION].get("edge") and float(self.attrs.get("slope", -0.5)) < 0

    def interval(self) -> str:
        """How surely ν* is known."""
        low, high = self.points[CALIBRATION].get("low"), self.points[CALIBRATION].get("high")
        cases = self.attrs.get("cases")
        if low is None or high is None or low != low or high != high:
            return f"Found on {cases} cases; no interval is known for it."
        if round(low) == round(high):
            return f"The {cases} cases leave no room for another ν (95% interval)."
        return f"The {cases} cases leave room for any ν from {low:,.0f} to {high:,.0f} (95% interval)."

    def matched(self) -> str:
        """What ν* was matched to, with both scales where they were measured."""
        data, unit = self.verification, str(self.attrs.get("scale_unit", ""))
        text = MATCHED.get(str(self.attrs.get("objective")), "")
        error = float(data["target_scale"])
        strays = self.scored(self.nu or 0, "scale")
        if error != error:
            return text
        ends = f"{number(float(data['target_scale_low']))} … {number(float(data['target_scale_high']))}"
        if not strays:
            return f"{text} The frozen forecast errs by {number(error)} {unit} ({ends})."
        parts = {name: found[0] for name in ("shift", "spread") if (found := self.scored(self.nu or 0, name))}
        told = judging.departure(self.nu or 0, strays[0], error, f"{unit} ({ends})", **parts, warn=False)  # its own warning says so
        return f"{text} {told}"


def cost(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """What one operating point costs and gains against the other, in the scores of both; nothing where one was not scored."""
    if mine["nu"] == other["nu"]:
        return "Both rules choose this ν: there is nothing to pay."
    parts = []
    for name, label in (("crps_fair", "CRPS"), ("w1_pit", "W₁(PIT)")):
        a, b = mine.get(name), other.get(name)
        if a is None or b is None or not b > 0 or a != a:
            continue
        change = a / b - 1
        parts.append(
            f"{label} {percent(abs(change))} {'higher' if change > 0 else 'lower'}" if abs(change) >= 0.005 else f"{label} the same"
        )
    return f"Against ν = {other['nu']}: {', '.join(parts)}." if parts else f"Not scored at both ν: no comparison with ν = {other['nu']}."


def looked_at() -> tuple[Any | None, Any | None, str | None]:
    """(calibration, sweep, unknown key): what the address means here.

    An address may name a calibration; or a sweep, whose model and data are then meant; or nothing, then the newest calibration.
    """
    key, calibrations = choice.current("run"), runs_that(calibrate=True)
    if key is not None and classifies(key):  # the run of another page
        key = choice.turn_to("fields", {r.key for r in [*calibrations, *runs_that(calibrate=False)]})
    if key is None:
        for wanted in (("done",), LIVE, ("failed", "cancelled")):
            if found := [r for r in calibrations if r.status in wanted]:
                return found[0], None, None
        return None, None, None
    run = next((r for r in [*calibrations, *runs_that(calibrate=False)] if r.key == key), None)
    if run is None:
        return None, None, key
    if is_calibration(run):
        return run, None, None
    return next(iter(kin(run, calibrations)), None), run, None
