"""What a number is judged to be: each judgement once, for pages, figures, reports and command lines alike.

Every rule compares a stored 95 % interval with what would be right; none makes an interval of its own. Two texts that
speak of the same thing call the same function here, so that they cannot contradict each other.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.formatting import number, percent
from engine.lexicon import title_of

if TYPE_CHECKING:
    import xarray as xr

POINTS = {"calibration_first": "Calibration first", "score_oriented": "Score oriented"}
"""The operating points and what they are called."""
MATCHED = "The members stray from the frozen forecast as far as it errs."
NEAREST = "Of the ν tried, the one at which members stray from the frozen forecast most nearly as far as it errs."
LEAST_CRPS = "Least fair CRPS, so the forecasts closest to what happened, on the data that it was chosen on."
FEW = 6.0
"""Independent cases below which an interval is called uncertain (our choice: Student's t with five degrees or fewer)."""
LARGEST = 10**6
"""The largest ν there is."""
SHIFTED = 0.2
"""Share of the squared departure that is a shift, from which the spread is visibly less than the departure (our choice)."""


def told_apart(low: float, high: float, other: float = 0.0) -> bool:
    """Whether a 95 % interval leaves out `other`. An interval that is not known tells nothing apart."""
    return math.isfinite(low) and math.isfinite(high) and not low <= other <= high


def aim(attrs: Mapping[Any, Any]) -> tuple[float, str]:
    """(share, words): what the central 95 % interval of a run should hold.

    That of a perfect ensemble of as many Gaussian members, below 95 % since quantiles of M draws are not those of the law
    (other laws differ by about a point); the level itself where a post-hoc method gives intervals that promise it.
    """
    value = float(attrs.get("nominal_95", math.nan))
    after = json.loads(attrs.get("posthoc") or "null")
    if after and after.get("intervals"):
        return value, f"{after['title']} promises {percent(value)}"
    return value, f"a perfect (Gaussian) ensemble of {int(attrs['members'])} holds {percent(value, 1)}"


def too_few(attrs: Mapping[Any, Any]) -> bool:
    """Whether a run's cases are worth so few independent ones that a departure could hardly be told (below `FEW`)."""
    return float(attrs.get("independent_cases", math.inf)) < FEW


def coverage_word(value: float, low: float, high: float, right: float) -> str:
    """`not told apart from it`, `too seldom`, `too often`; nothing where no interval is known."""
    if not all(map(math.isfinite, (value, low, high, right))):
        return ""
    return "not told apart from it" if not told_apart(low, high, right) else "too seldom" if value < right else "too often"


def coverage_sentence(attrs: Mapping[Any, Any], value: float, low: float, high: float) -> str:
    """`the 95% range held 78% (75% … 81%) of what was observed; a perfect (Gaussian) ensemble of 20 holds 87.2%: too seldom`."""
    right, words = aim(attrs)
    ends = f" ({percent(low)} … {percent(high)})" if math.isfinite(low) and math.isfinite(high) else ""
    word = coverage_word(value, low, high, right)
    return f"the 95% range held {percent(value)}{ends} of what was observed; {words}{f': {word}' if word else ''}"


def spread_word(value: float, low: float, high: float) -> str:
    """Of spread over error: `not told apart from right`, `too small`, `too large`; nothing where no interval is known."""
    if not all(map(math.isfinite, (value, low, high))):
        return ""
    return "not told apart from right" if not told_apart(low, high, 1.0) else "too small" if value < 1 else "too large"


def spread_sentence(value: float, low: float, high: float) -> str:
    """`the members' spread is 76% of their mean's error: too small`."""
    word = spread_word(value, low, high)
    return f"the members' spread is {percent(value)} of their mean's error{f': {word}' if word else ''}"


def departure(
    nu: int, scale: float, error: float, unit: str, shift: float = math.nan, spread: float = math.nan, *, warn: bool = True
) -> str:
    """How far the members stray from the frozen forecast, how far that errs, and the departure's two parts.

    departure² = shift² + spread²: the shift is common to all members and widens no interval, so a departure that matches the
    error leaves a spread that is less than it; `warn` says so where the shift is large.
    """
    text = f"At ν = {nu} the members stray by {number(scale)}, and the frozen forecast errs by {number(error)} {unit}".rstrip()
    if not (math.isfinite(shift) and math.isfinite(spread)):
        return f"{text}."
    text += f". Of the departure {number(shift)} is a shift that all members share, and {number(spread)} their spread"
    total = shift**2 + spread**2
    if warn and total > 0 and shift**2 / total >= SHIFTED:
        text += f": the shift is {percent(shift**2 / total)} of its square and widens no interval, so expect too narrow ones"
    return f"{text}."


def edge_remark(nu: int, grid: Iterable[int], *, by_scale: bool = False) -> str:
    """What is to be said of a point that stands at an end of the ν that were tried; nothing of one between others.

    `by_scale`: it was chosen by a match of two scales, not as the lowest of a score.
    """
    tried, word = sorted(grid), "nearest match" if by_scale else "lowest"
    if len(tried) < 2:
        return "the only ν tried: try several"
    if nu >= tried[-1]:
        return f"{word} at the largest ν tried: try larger ν" if nu < LARGEST else f"{word} at the largest ν there is"
    if nu <= tried[0]:
        most = f"{word} at ν = 1, the smallest there is: more spread must come from elsewhere"
        return f"{word} at the smallest ν tried: try smaller ν" if nu > 1 else most
    return ""


def operating_points(
    result: "xr.Dataset", *, variable: str | None = None, region: str | None = None, lead_time: float | None = None
) -> dict[str, dict[str, Any]]:
    """The operating points of a sweep or a calibration for a variable, a region and a lead time (default: the first ones).

    Points belong to what they were chosen for. Where none were chosen for exactly this, those chosen for the same variable,
    else the run's own, are given with `here` false. Beside what is stored each has `here`, `chosen_for` (words) and `remark`
    (words where it stands at an edge of the grid, else empty).
    """
    attrs = result.attrs
    first = {
        "variable": attrs.get("variable") or _first(result, "variable", ""),
        "region": attrs.get("region") or _first(result, "region", ""),
        "lead_hours": float(attrs.get("lead_hours") or _first(result, "lead_time", math.nan)),
    }
    own = json.loads(attrs.get("operating_points") or "{}")
    choices = [own, *json.loads(attrs.get("operating_points_elsewhere") or "[]")]
    wanted = {
        "variable": first["variable"] if variable is None else variable,
        "region": first["region"] if region is None else region,
        "lead_hours": first["lead_hours"] if lead_time is None else float(lead_time),
    }
    found: dict[str, dict[str, Any]] = {}
    for name in POINTS:
        have = [{"chosen_on": "calibrate", "rule": ""} | first | c[name] for c in choices if c.get(name) and c[name].get("nu") is not None]
        if not have:
            continue
        best = max(have, key=lambda p: [p[k] == wanted[k] for k in ("variable", "lead_hours", "region")])
        grid = [int(n) for n in result["nu"].values]
        remark = best.get("remark")
        if remark is None:  # a run of an earlier version
            remark = edge_remark(int(best["nu"]), grid) if best.get("edge") else ""
        found[name] = best | {
            "here": all(best[k] == wanted[k] for k in wanted),
            "chosen_for": f"{title_of(best['variable'])}, {best['region']}, {best['lead_hours']:g} h ahead",
            "remark": remark,
        }
    return found


def _first(result: "xr.Dataset", name: str, default: Any) -> Any:
    return result[name].values.ravel()[0].item() if name in result.coords else default


def where_chosen(points: Mapping[str, Mapping[str, Any]]) -> str:
    """`both chosen for T850 temperature, globe, 72 h ahead` where points were not chosen for what is looked at; else nothing."""
    strange = {name: p for name, p in points.items() if not p["here"]}
    told = [
        ", ".join(POINTS[n] for n in strange if strange[n]["chosen_for"] == place) + f": chosen for {place}, not for this"
            for place in dict.fromkeys(p["chosen_for"] for p in strange.values())]  # fmt: skip
    if len(told) == 1 and len(strange) == len(points):
        return f"Chosen for {next(iter(strange.values()))['chosen_for']}, not for this"
    return "; ".join(told)


@dataclass(frozen=True)
class Place:
    """The record of one place: `inside` of `cases` in the 95 % interval, what is `right`, and what chance allows around it.

    `least` … `most`: between them an honest forecast's count lies with 97.5 %; `outside` of `bars` rank bins lie beyond the
    band that all bars of 97.5 % of honest forecasts keep to. Together: 95 %. `as_if`: cases were taken as independent.
    """

    inside: int
    cases: int
    right: float
    least: int
    most: int
    outside: int
    bars: int
    as_if: bool

    @property
    def honest(self) -> bool:
        """Nothing here is beyond chance."""
        return self.least <= self.inside <= self.most and not self.outside

    def sentence(self, place: str) -> str:
        """Count, what is right with what chance allows, and the judgement."""
        text = f"At {place} the 95% range held {self.inside} of {self.cases} observations, where {self.right * self.cases:.0f} would be "
        text += f"right and chance allows {self.least} … {self.most}: "
        if self.honest:
            return text + "not told apart from honest"
        beyond = f"{self.outside} of {self.bars} PIT bars beyond chance" if self.outside else ""
        if self.least <= self.inside <= self.most:
            return text + f"not told apart from that, but {beyond}"
        word = "too seldom" if self.inside < self.least else "too often"
        return text + word + (f", and {beyond}" if beyond else "")


TAIL = 0.025 / 2
"""On each side, of the count and of all bars together: both are judged at 97.5 %, so that 95 % of honest places pass."""


def bar_bound(bars: int, effective: float) -> float:
    """How far the share of one of so many bars may lie from 1/bars by chance, all bars together at 97.5 % (Bonferroni, Gaussian)."""
    from statistics import NormalDist

    share = 1 / max(bars, 1)
    return NormalDist().inv_cdf(1 - TAIL * share) * math.sqrt(share * (1 - share) / max(effective, 1.0))


def place_record(inside: float, cases: int, right: float, shares: Iterable[float], effective: float | None = None) -> Place:
    """Judge one place by `inside` of `cases` in its 95 % interval and by the shares of its rank bins, as one statement.

    Both are compared with what an honest forecast would show in `effective` independent cases (all of them where None), each
    at 97.5 %, so that together 95 % of honest forecasts pass. Counts: exact binomial; bars: Bonferroni over Gaussian bounds.
    """
    from scipy.special import bdtr

    many = max(1, round(min(cases, effective if effective is not None else cases)))
    below = [float(bdtr(k, many, right)) for k in range(many + 1)]
    # the most extreme counts that chance still allows: P(fewer) ≤ tail and P(more) ≤ tail
    least = next(k for k in range(many + 1) if below[k] > TAIL)
    most = next(k for k in range(many + 1) if below[k] >= 1 - TAIL)
    bins = list(shares)
    outside = sum(abs(s - 1 / len(bins)) > bar_bound(len(bins), many) for s in bins)
    factor = cases / many
    return Place(
        round(inside), cases, right, math.floor(least * factor), math.ceil(most * factor), outside, len(bins), effective is None
    )


CONTROLS = frozenset({"no_noise", "constant_noise", "no_matching"})
"""Variants of DIRECTOR that are there to say why it works, and are never called best."""


def difference(result: "xr.Dataset", score: str, entry: str, against: str, **where: Any) -> tuple[float, float, float] | None:
    """Score of `entry` less that of `against` with its paired interval; None where a classification did not compare these two."""
    name = f"{score}_difference"
    if name not in result or "against" not in result.coords:
        return None
    compared, have = {str(a) for a in result["against"].values}, {str(e) for e in result["entry"].values}
    if not {entry, against} <= have:
        return None
    if against in compared:
        at, sign = {"entry": entry, "against": against}, 1
    elif entry in compared:
        at, sign = {"entry": against, "against": entry}, -1
    else:
        return None
    value, low, high = (float(result[name + end].sel(at | where)) for end in ("", "_low", "_high"))
    if not all(map(math.isfinite, (value, low, high))):
        return None
    return (value, low, high) if sign > 0 else (-value, -high, -low)


def better(result: "xr.Dataset", score: str, entry: str, against: str) -> bool | None:
    """Whether `entry` does better (True) or worse (False) in a score; None where the two are not told apart."""
    found = difference(result, score, entry, against)
    if found is None or not told_apart(found[1], found[2]):
        return None
    return (found[0] > 0) == (result[score].attrs.get("better", "lower") == "higher")


def best(result: "xr.Dataset", score: str) -> str | None:
    """Of a classification's methods that are told apart from the frozen model and better, the one with the best value; None: none is."""
    teacher = str(result.attrs.get("teacher") or "deterministic")
    entries = [str(e) for e in result["entry"].values]
    found = {e: float(result[score].sel(entry=e)) for e in entries if not CONTROLS & set(e.split(":"))}
    won = {e: v for e, v in found.items() if e != teacher and math.isfinite(v) and better(result, score, e, teacher)}
    if not won:
        return None
    return (max if result[score].attrs.get("better", "lower") == "higher" else min)(won, key=won.__getitem__)
