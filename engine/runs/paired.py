"""Two finished runs on the same cases, score by score: the difference, and how surely it is one.

The same bootstrap resamples serve both sides, so that what both have in common (hard and easy weather) cancels.
"""

from typing import Any

import numpy as np

from engine.errors import RunError
from engine.kernels import bootstrap
from engine.runs import store
from engine.runs.accumulate import ShardStatistics
from engine.runs.scales import score
from engine.runs.verification import open_verification

SCORES = ("crps_fair", "w1_pit", "coverage_95", "width_95", "rmse", "spread_skill_ratio")


def differences(one: tuple[str, int], other: tuple[str, int], scores: tuple[str, ...] = SCORES, replicates: int = 1000) -> dict[str, Any]:
    """Score → `one`, `other`, and their `difference` (other − one) with a 95 % interval, in the runs' first region and variable.

    Each side is (run key, ν). `real` says whether the interval leaves out zero.
    """
    sides = [_statistics(*side) for side in (one, other)]
    if not np.array_equal(sides[0].case_ids, sides[1].case_ids):
        raise RunError(
            f"comparison of runs {one[0]} and {other[0]}",
            found="different cases",
            expected="the same cases on both sides",
            remedy="Verify both with the same data, lead time and max_cases.",
        )
    verification = open_verification(store.folder(one[0]))
    drawn = bootstrap.resample(len(sides[0].case_ids), int(verification.attrs["block_length"]), replicates, int(verification.attrs["seed"]))
    found: dict[str, Any] = {}
    for key in scores:
        try:
            values = [float(score(s, key)) for s in sides]
        except KeyError:  # a run may have been asked for fewer scores
            continue
        again = score(sides[1], key, drawn) - score(sides[0], key, drawn)
        low, high = (float(e) for e in bootstrap.interval(np.asarray(values[1] - values[0]), again))
        difference = {"value": values[1] - values[0], "low": low, "high": high, "real": low > 0 or high < 0}
        found[key] = {"one": values[0], "other": values[1], "difference": difference}
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
