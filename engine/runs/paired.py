"""Two finished runs on the same cases, score by score: the difference, and how surely it is one.

Each case's influence on one side is taken from its influence on the other, so that what both have in common (hard and easy
weather) cancels; the interval is that of `engine.kernels.long_run`.
"""

from typing import Any

import numpy as np

from engine.errors import RunError
from engine.kernels import long_run
from engine.runs import store
from engine.runs.accumulate import ShardStatistics
from engine.runs.scales import influences, pit_floor
from engine.runs.verification import open_verification

SCORES = ("crps_fair", "w1_pit", "coverage_95", "width_95", "rmse", "spread_skill_ratio")


def differences(one: tuple[str, int], other: tuple[str, int], scores: tuple[str, ...] = SCORES) -> dict[str, Any]:
    """Score → `one`, `other`, and their `difference` (other − one) with a 95 % interval, in the runs' first region and variable.

    Each side is (run key, ν). `real` says whether the interval leaves out zero, and `independent` how many independent cases the
    difference is worth. Of `w1_pit` the interval allows for both sides' upward bias, which is at most the floor of each.
    """
    sides = [_statistics(*side) for side in (one, other)]
    if not np.array_equal(sides[0].case_ids, sides[1].case_ids):
        raise RunError(
            f"comparison of runs {one[0]} and {other[0]}",
            found="different cases",
            expected="the same cases on both sides",
            remedy="Verify both with the same data, lead time and max_cases.",
        )
    found: dict[str, Any] = {}
    for key in scores:
        try:
            (first, of_first), (second, of_second) = (influences(s, key) for s in sides)
        except KeyError:  # a run may have been asked for fewer scores
            continue
        error = long_run.error_of_mean(of_second - of_first)
        below, above = (pit_floor(sides[1]), pit_floor(sides[0])) if key == "w1_pit" else (0.0, 0.0)
        value = second - first
        low, high = value - float(error.half) - below, value + float(error.half) + above
        difference = {"value": value, "low": low, "high": high, "real": low > 0 or high < 0, "independent": float(error.independent)}
        found[key] = {"one": first, "other": second, "difference": difference}
    return found


def _statistics(key: str, nu: int) -> ShardStatistics:
    """All cases of one run at one ν, first lead time and variable; read from the shards, which hold them case by case."""
    verification = open_verification(store.folder(key))
    prefix = f"{nu}/{verification.variable.values[0]}/"
    parts = []
    for path in sorted((store.folder(key) / "shards").glob("verify-00-*.npz")):
        with np.load(path, allow_pickle=False) as file:
            arrays = {n: file[n] for n in file.files if n.startswith(prefix) and not n.startswith(f"{prefix}grid:")}
        if not arrays:
            raise RunError(
                f"run {key}", found=f"no ν = {nu}", expected=f"one of {', '.join(map(str, verification.nu.values))}", remedy="Choose one."
            )
        parts.append(ShardStatistics.from_arrays(arrays, prefix))
    return ShardStatistics.concatenate(parts)
