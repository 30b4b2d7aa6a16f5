"""Fair CRPS and ranks of 50 members at a million points: this engine beside the `scores` package, interleaved medians."""

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.kernels.crps import crps_and_ranks
from engine.types import Array

MEMBERS, POINTS, ROUNDS = 50, 1_000_000, 3


def run(members: int = MEMBERS, points: int = POINTS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Median seconds of each, and their ratio (how many times faster this engine is); largest disagreement of the mean CRPS.

    The other package gives per-point CRPS in one call and the rank histogram in another, as its users would. Where it is
    not installed its part is left out, and `oracle` says why.
    """
    generator = np.random.default_rng(0)
    forecast = generator.standard_normal((members, points), dtype=np.float32)
    observed = generator.standard_normal(points, dtype=np.float32)
    found: dict[str, Any] = {"members": members, "points": points, "rounds": rounds, "dtype": "float32"}
    other = _other(forecast, observed)
    ours: list[float] = []
    theirs: list[float] = []
    value = reference = np.nan
    for _ in range(rounds):  # interleaved: a slow minute of the machine slows both
        seconds, value = _timed(lambda: _ours(forecast, observed))
        ours.append(seconds)
        if other is not None:
            seconds, reference = _timed(other)
            theirs.append(seconds)
    found |= {"seconds": statistics.median(ours), "crps_fair": value}
    if other is None:
        return found | {"oracle": "left out: the package `scores` is not installed (pip install scores)"}
    return found | {
        "seconds_scores": statistics.median(theirs),
        "times_faster": statistics.median(theirs) / statistics.median(ours),
        "difference": abs(value - reference),
        "oracle": "scores: crps_for_ensemble(method='fair') and rank_histogram",
    }


def _ours(forecast: Array, observed: Array) -> float:
    crps, below, equal = crps_and_ranks(forecast, observed)
    tied = equal > 0
    histogram = np.bincount(below[~tied], minlength=len(forecast) + 1).astype(np.float64)
    for low, number in zip(below[tied], equal[tied], strict=True):  # few, among continuous values
        histogram[low : low + number + 1] += 1 / (number + 1)
    return float(crps.mean())


def _other(forecast: Array, observed: Array) -> Callable[[], float] | None:
    if importlib.util.find_spec("scores") is None:
        return None
    import xarray as xr
    from scores.probability import crps_for_ensemble, rank_histogram

    ensemble, truth = xr.DataArray(forecast, dims=("member", "point")), xr.DataArray(observed, dims="point")

    def both() -> float:
        crps: Any = crps_for_ensemble(ensemble, truth, "member", method="fair", preserve_dims="all")
        rank_histogram(ensemble, truth, "member")
        return float(crps.mean())

    return both


def _timed(work: Callable[[], float]) -> tuple[float, float]:
    start = time.perf_counter()
    value = work()
    return time.perf_counter() - start, value
