"""How often the 95 % intervals of scores hold the truth, simulated: cases that hang together, of a law that is known.

    errors      observation and members depart from a common signal by series of their own, each a first-order autoregression from case to
                case with correlation ρ, and correlated from point to point: a perfect ensemble
    difficulty  the departures are new in each case, but their size is exp(0.4 a), a an autoregression with correlation ρ: easy and hard
                times. The scores themselves then hang together by nearly ρ, and are skewed

`before`: percentiles of a circular block bootstrap, moved so that their median is the value. `now`: `engine.kernels.long_run`.
`difference`: fair CRPS of the ensemble less that of one of 0.7 times its spread, paired. `few`: share of records that are said to hold too
few independent cases. `width`: mean width of `now` over that of `before`. The whole table takes some minutes on one core.
"""

from typing import Any, NamedTuple

import numpy as np

from engine.kernels import bootstrap, long_run
from engine.kernels.quantiles import central, linear_quantiles, perfect_coverage
from engine.registry import get
from engine.runs.accumulate import Accumulator, ShardStatistics, finalise
from engine.runs.scales import influences, score
from engine.types import Array, EnsembleView

SCORES = ("crps_fair", "width_95", "bias", "rmse", "spread_skill_ratio", "coverage_95", "acc", "w1_pit")
DIFFERENCE = "difference"
MEMBERS, POINTS, NARROW, SWING = 20, 12, 0.7, 0.4
REPLICATES = 300


class Record(NamedTuple):
    """One simulated verification: the statistics of the ensemble, and of the narrower one on the same observations."""

    ensemble: ShardStatistics
    narrow: ShardStatistics


def run(
    records: int = 200,
    cases: tuple[int, ...] = (18, 42, 100, 365),
    rho: tuple[float, ...] = (0.0, 0.5, 0.8),
    laws: tuple[str, ...] = ("errors", "difficulty"),
    seed: int = 0,
) -> dict[str, Any]:
    """One row for each law, number of cases, ρ and score: shares of `records` whose interval holds the truth."""
    rows = []
    for law in laws:
        truth = true_values(law)
        for n in cases:
            for correlation in rho:
                generator = np.random.default_rng([seed, n, round(100 * correlation), law == "errors"])
                looked = [_looked(simulated(generator, n, correlation, law), truth, n, i) for i in range(records)]
                for k, name in enumerate((*SCORES, DIFFERENCE)):
                    held = np.array([one[k] for one in looked])
                    row: dict[str, Any] = {"law": law, "cases": n, "rho": correlation, "score": name}
                    row |= dict(zip(("before", "now", "width", "few"), held.mean(axis=0).tolist(), strict=True))
                    rows.append(row | {"held_or_few": float(np.maximum(held[:, 1], held[:, 3]).mean())})
    return {"records": records, "members": MEMBERS, "points": POINTS, "level": 0.95, "rows": rows}


def simulated(generator: np.random.Generator, cases: int, rho: float, law: str) -> Record:
    """One record of `cases` cases."""
    noise = _field(generator, cases, 0.0 if law == "difficulty" else rho, MEMBERS + 1)
    if law == "difficulty":
        noise *= np.exp(SWING * _series(generator.standard_normal((cases, 1, 1)), rho))
    signal = _field(generator, cases, rho, 1)[..., 0]
    members, observed = np.moveaxis(noise[..., :-1], -1, 0), signal + noise[..., -1]
    sides = []
    for factor in (1.0, NARROW):
        sums = Accumulator(SCORES if factor == 1 else ("crps_fair",), np.ones((1, POINTS)), MEMBERS, grid=False)
        sums.add(EnsembleView(signal + factor * members, observed, np.zeros(POINTS)), range(cases))
        sides.append(sums.result())
    return Record(*sides)


def true_values(law: str) -> dict[str, float]:
    """What each score is in an endless record."""
    size, square = (np.exp(SWING**2 / 2), np.exp(2 * SWING**2)) if law == "difficulty" else (1.0, 1.0)
    ordered = np.sort(np.random.default_rng(0).standard_normal((MEMBERS, 200_000)), axis=0)  # 0.0005 of a width of 3.7
    low, high = (float(linear_quantiles(ordered, p).mean()) for p in central(95))
    crps = {s: np.sqrt(2 / np.pi) * np.sqrt(1 + s**2) - s / np.sqrt(np.pi) for s in (1.0, NARROW)}
    return {
        "crps_fair": size * crps[1.0],
        "width_95": size * (high - low),
        "bias": 0.0,
        "rmse": float(np.sqrt(square * (1 + 1 / MEMBERS))),
        "spread_skill_ratio": 1.0,
        "coverage_95": perfect_coverage(MEMBERS, 95),
        "acc": float(1 / np.sqrt((1 + square / MEMBERS) * (1 + square))),
        "w1_pit": 0.0,
        DIFFERENCE: size * (crps[1.0] - crps[NARROW]),
    }


def _series(noise: Array, rho: float) -> Array:
    """An autoregression of variance 1 along the first axis, in place of the noise."""
    for t in range(1, len(noise)):
        noise[t] = rho * noise[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return noise


def _field(generator: np.random.Generator, cases: int, rho: float, number: int) -> Array:
    """`(case, point, number)`, neighbouring points correlated by 0.9."""
    noise = generator.standard_normal((cases, POINTS, number))
    for p in range(1, POINTS):
        noise[:, p] = 0.9 * noise[:, p - 1] + np.sqrt(1 - 0.9**2) * noise[:, p]
    return _series(noise, rho)


def _looked(record: Record, truth: dict[str, float], cases: int, seed: int) -> list[tuple[float, float, float, float]]:
    """For each score: whether `before` held the truth, whether `now` does, the ratio of widths, and whether few cases are said."""
    one, other = record
    found = finalise(one, SCORES, members=MEMBERS, block=1)
    series = np.stack([one.statistics[name][:, 0] for name in ("error2", "pit_mean")], axis=-1)
    drawn = bootstrap.resample(cases, bootstrap.block_length(series), REPLICATES, seed)
    few = float(found["independent_cases"][0]) < long_run.FEW
    held = []
    for name in SCORES:
        ends = [float(found[f"{name}_{end}"][0]) for end in ("low", "high")]
        old = [float(e) for e in bootstrap.interval(score(one, name), score(one, name, drawn))]
        old = [float(np.clip(e, *get("scoring", name).range)) for e in old]
        held.append(_held(truth[name], old, ends, few))
    (value, moved), (less, moved_less) = influences(one, "crps_fair"), influences(other, "crps_fair")
    error = long_run.error_of_mean(moved - moved_less)
    again = score(one, "crps_fair", drawn) - score(other, "crps_fair", drawn)
    old = [float(e) for e in bootstrap.interval(np.asarray(value - less), again)]
    ends = [value - less - float(error.half), value - less + float(error.half)]
    held.append(_held(truth[DIFFERENCE], old, ends, float(error.independent) < long_run.FEW))
    return held


def _held(true: float, old: list[float], new: list[float], few: bool) -> tuple[float, float, float, float]:
    wide = (new[1] - new[0]) / max(old[1] - old[0], 1e-300)
    return float(old[0] <= true <= old[1]), float(new[0] <= true <= new[1]), wide, float(few)


def text(found: dict[str, Any]) -> str:
    """A Markdown table for each law: score by row, cases and ρ by column, `before → now` in percent."""
    lines = [f"{found['records']} records; 95 % intervals that hold the truth, in %: before → now (× width)"]
    rows = found["rows"]
    for law in dict.fromkeys(r["law"] for r in rows):
        own = [r for r in rows if r["law"] == law]
        columns = list(dict.fromkeys((r["cases"], r["rho"]) for r in own))
        head = "| | " + " | ".join(f"{n}, ρ {rho:g}" for n, rho in columns) + " |"
        lines += ["", f"**{law}**", "", head, "|---" * (len(columns) + 1) + "|"]
        for name in (*SCORES, DIFFERENCE):
            at = {(r["cases"], r["rho"]): r for r in own if r["score"] == name}
            cells = [f"{100 * at[c]['before']:.0f} → {100 * at[c]['now']:.0f} (× {at[c]['width']:.1f})" for c in columns]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        few = {(r["cases"], r["rho"]): r["few"] for r in own if r["score"] == "crps_fair"}
        lines.append("| *said to be too few* | " + " | ".join(f"{100 * few[c]:.0f}" for c in columns) + " |")
    return "\n".join(lines)
