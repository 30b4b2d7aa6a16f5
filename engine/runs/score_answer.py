"""The answer of `engine score`: scores with intervals, and beside them what was changed, what was left out, and which times met."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.errors import ScoreError
from engine.runs.accumulate import chosen
from engine.runs.align import Say

BESIDE = ("variable", "units", "valid", "changes", "notes", "times")
"""Keys of the answer that are no scores."""


@dataclass
class Said:
    """What is said on the way, in order: `changes` were made or assumed, `notes` is all else; each line also goes to `say`."""

    say: Say
    changes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def change(self, line: str) -> None:
        """Something of the files was changed or assumed."""
        if line not in self.changes:
            self.changes.append(line)
            self.say(line)

    def note(self, line: str) -> None:
        """Something was left out, or is worth knowing."""
        if line not in self.notes:
            self.notes.append(line)
            self.say(line)


def scores_in(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The scores of an answer, without what stands beside them."""
    return {name: entry for name, entry in answer.items() if name not in BESIDE}


def answers(values: dict[str, Any], scores: Sequence[str], times: int, variable: str) -> dict[str, dict[str, Any]]:
    """One entry a score, of a decomposition one a part, with what all share: `times` cases and the share that is valid.

    Raises ScoreError where nothing is valid.
    """
    valid = float(values["valid_fraction"][0])
    if valid == 0:
        raise ScoreError(
            variable,
            found="no valid point at any time",
            expected="observations and at least two members",
            remedy="Check the missing values.",
        )
    same = {"cases": times, "valid_fraction": valid, "independent_cases": round(float(values["independent_cases"][0]), 1)}
    found: dict[str, dict[str, Any]] = {}
    for score in chosen(scores):
        if score.profile:
            curve = score.key == "rank_histogram"
            names = ("rank_counts", "rank_low", "rank_high") if curve else None
            if names:
                found[score.key] = dict(zip(("value", "low", "high"), (values[n][0].tolist() for n in names), strict=True)) | same
            else:
                prefix = "exceedance_" if score.key == "exceedance" else "spread_"
                parts = {
                    n.removeprefix(prefix): v[0].tolist() for n, v in values.items() if n.startswith(prefix) and n != "spread_skill_ratio"
                }
                found[score.key] = {"value": parts, "low": None, "high": None} | same
            continue
        parts = [
            n for n in values if f"{n}_low" in values and (n == score.key or n.startswith(f"{score.key}_")) and np.ndim(values[n]) == 1
        ]
        own = [score.key] if score.key in values else parts
        for name in own:
            found[name] = {
                "value": float(values[name][0]),
                "low": float(values[f"{name}_low"][0]),
                "high": float(values[f"{name}_high"][0]),
            } | same
    return found
