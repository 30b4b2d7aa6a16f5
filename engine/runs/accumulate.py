"""From ensembles to the numbers of a Verification: per-case statistics by shard, gridpoint sums, and intervals.

Only three things are kept of a case: its statistics (a few hundred numbers), its share of valid area, and its part of the
gridpoint sums. A case's statistics are the same whatever cases are beside it. Gridpoint sums carry their rounding error
along (Knuth's exact two-sum), so that the order of addition shows in the 32nd digit, not in the 16th: shards merged in any
split give the same float32 maps, and shards merged in the same order the same bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import ScoreError
from engine.kernels import bootstrap, long_run
from engine.kernels.area import case_means, valid_share
from engine.kernels.corp import recalibrate
from engine.kernels.exceedance import probabilities
from engine.kernels.pit import pit_interval
from engine.kernels.quantiles import central, linear_quantiles
from engine.kernels.wasserstein import pit_cdf, sampling_scale
from engine.registry import get
from engine.runs.gridsums import GridSums, add_exactly, maps
from engine.types import Array, EnsembleView, Score


def chosen(scores: Iterable[str | Score]) -> tuple[Score, ...]:
    """Scores of ensembles by name or as they are. Raises `ScoreError` at a score of class probabilities."""
    entries = tuple(get("scoring", s) if isinstance(s, str) else s for s in scores)
    strange = [s for s in entries if not isinstance(s, Score)]
    if strange:
        raise ScoreError(
            strange[0].key,
            found="a score of class probabilities",
            expected="a score of an ensemble of fields",
            remedy="Leave it out here; engine.score takes class probabilities and labels.",
        )
    return entries


def require(score: Score, view: EnsembleView) -> None:
    """Raise `ScoreError` where this view lacks what the score needs."""
    if len(view.members) < score.min_members:
        raise ScoreError(
            score.key,
            found=f"{len(view.members)} member(s)",
            expected=f"at least {score.min_members}",
            remedy="Use more members, or a score of the ensemble mean such as rmse.",
        )
    held = {"climatology": view.climatology is not None, "reference": view.reference is not None, "thresholds": bool(view.thresholds)}
    lacking = [name for name in sorted(score.needs) if not held[name]]
    if lacking:
        raise ScoreError(
            score.key,
            found=f"no {', no '.join(lacking)}",
            expected=" and ".join(sorted(score.needs)),
            remedy=f"Give {' and '.join(lacking)}, or leave it out.",
        )


@dataclass(frozen=True, eq=False)
class ShardStatistics:
    """What is kept of some cases of one variable, lead time and ν.

    `case_ids` `(case,)`; `statistics` name → `(case, region, *k)`; `valid` `(case, region)` share of valid area; `grid` name →
    sums over cases as pairs (sum, carried rounding error) `(2, *k, *space)`. Arrays only: an npz file, or part of one.
    """

    case_ids: NDArray[np.int64]
    valid: Array
    statistics: Mapping[str, Array]
    grid: Mapping[str, Array]

    def arrays(self, prefix: str = "") -> dict[str, NDArray]:
        """Flat dictionary for `np.savez`; `prefix` keeps several apart in one file."""
        named = {"case_ids": self.case_ids, "valid": self.valid}
        named |= {f"statistic:{k}": v for k, v in self.statistics.items()} | {f"grid:{k}": v for k, v in self.grid.items()}
        return {prefix + name: np.asarray(value) for name, value in named.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray], prefix: str = "") -> "ShardStatistics":
        """The inverse of `arrays`; other entries of the mapping are left alone."""
        own = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
        parts = {
            kind: {k.removeprefix(kind + ":"): v for k, v in own.items() if k.startswith(kind + ":")} for kind in ("statistic", "grid")
        }
        return cls(own["case_ids"], own["valid"], parts["statistic"], parts["grid"])

    def save(self, path: Path) -> None:
        """Write an npz file."""
        with path.open("wb") as file:
            np.savez(file, **self.arrays())  # pyright: ignore[reportArgumentType]

    @classmethod
    def load(cls, path: Path) -> "ShardStatistics":
        """Read an npz file."""
        with np.load(path, allow_pickle=False) as file:
            return cls.from_arrays(dict(file))

    @classmethod
    def concatenate(cls, shards: Sequence["ShardStatistics"]) -> "ShardStatistics":
        """All cases together, in ascending case id; gridpoint sums are added in the order given."""
        ids = np.concatenate([s.case_ids for s in shards])
        order = np.argsort(ids, kind="stable")
        if (np.diff(ids[order]) == 0).any():
            twice = int(ids[order][1:][np.diff(ids[order]) == 0][0])
            raise ScoreError("shards", found=f"case {twice} twice", expected="each case once", remedy="Merge each shard once.")
        statistics = {name: np.concatenate([s.statistics[name] for s in shards])[order] for name in shards[0].statistics}
        grid = {name: total.copy() for name, total in shards[0].grid.items()}
        for shard in shards[1:]:
            for name, total in grid.items():
                add_exactly(total, shard.grid[name][0])
                total[1] += shard.grid[name][1]
        return cls(ids[order], np.concatenate([s.valid for s in shards])[order], statistics, grid)


class Accumulator:
    """Statistics of one variable, lead time and ν, case by case.

    `weights` `(region, *space)` as from `engine.kernels.area.region_weights`; `scores` names or objects. `thresholds` and
    `spread_edges` are set on every view, so that all shards share them. `grid`: also keep the gridpoint sums (the event
    must be the space itself); coverage and rank maps need two members.
    """

    def __init__(
        self,
        scores: Iterable[str | Score],
        weights: Array,
        members: int,
        *,
        thresholds: Sequence[float] = (),
        spread_edges: Sequence[float] = (),
        grid: bool = True,
    ) -> None:
        self.scores, self.weights, self.members = chosen(scores), np.asarray(weights, dtype=np.float64), members
        self.thresholds, self.spread_edges = tuple(thresholds), tuple(spread_edges)
        self._cases: list[ShardStatistics] = []
        self._grid = GridSums(members, self.weights.shape[1:]) if grid else None

    def add(self, view: EnsembleView, case_ids: Sequence[int]) -> None:
        """Take in the cases of a view. Raises `ScoreError` on infinite values, a wrong member count, or a score that lacks something."""
        if len(view.members) != self.members:
            raise ScoreError(
                "ensemble",
                found=f"{len(view.members)} members",
                expected=f"{self.members}",
                remedy="Score one member count at a time; mark missing members by NaN.",
            )
        if np.isinf(view.members).any() or np.isinf(view.observed).any():
            side = "forecast" if np.isinf(view.members).any() else "observation"
            raise ScoreError(
                f"{side} of cases {list(case_ids)}",
                found="infinite values",
                expected="finite values, NaN where missing",
                remedy="Check the model's output, or the data.",
            )
        if view.thresholds != self.thresholds or view.spread_edges != self.spread_edges:
            view = replace(view, thresholds=self.thresholds, spread_edges=self.spread_edges)
        low, high = pit_interval(view)
        # kept whatever is asked for: the block length is judged by them, so that no interval depends on the scores beside it
        statistics = {"error2": case_means(view, view.error2, self.weights), "pit_mean": case_means(view, (low + high) / 2, self.weights)}
        for score in self.scores:
            require(score, view)
            statistics |= score.statistics(view, self.weights)
        self._cases.append(ShardStatistics(np.asarray(case_ids, dtype=np.int64), valid_share(view, self.weights), statistics, {}))
        if self._grid is not None:
            self._grid.add(view)

    def result(self) -> ShardStatistics:
        """Everything added so far."""
        if not self._cases:
            raise ScoreError("shard", found="no case", expected="at least one", remedy="Add cases before asking for the result.")
        together = ShardStatistics.concatenate(self._cases)
        return replace(together, grid={} if self._grid is None else dict(self._grid.sums))


def finalise(
    stats: ShardStatistics,
    scores: Iterable[str | Score],
    *,
    members: int,
    replicates: int = 500,
    seed: int = 0,
    block: int | None = None,
) -> dict[str, Array]:
    """Values with 95 % intervals (`engine.kernels.long_run`), named and shaped as in a Verification without its (ν, lead time, variable).

    For each score `<key>`, `<key>_low`, `<key>_high` `(region,)` (a decomposition: `<key>_<part>` …), and `<key>_case`
    `(region, case)` of headline scores; with ranks `rank_counts`, `rank_low`, `rank_high` `(region, rank)`, and `pit_band`,
    `n_effective`, `w1_pit_floor` (what `w1_pit` of a perfect ensemble is on average) `(region,)`; with exceedances
    `exceedance_weight`, `exceedance_event`, `corp_event`, `corp_low`, `corp_high` `(region, threshold, probability)`; `spread_weight`,
    `spread_variance`, `spread_error2` `(region, spread_bin)`; maps; `valid_fraction` `(region,)`; `independent_cases` `(region,)`,
    how many independent cases these are worth for the headline score that hangs together most (below `long_run.FEW` every interval here is
    uncertain); `block_length` `()`. Cases weigh by their share of valid area. `block` (cases, from the data where None),
    `replicates` and `seed`: of the
    resampling that the consistency bands of reliability curves need, and of nothing else. Intervals of fewer than two cases are NaN.
    """
    if block is None:
        block = bootstrap.block_length(_series(stats))
    parts = {name: long_run.leave_one_out(s, stats.valid) for name, s in stats.statistics.items()}
    mean, without = {name: p[0] for name, p in parts.items()}, {name: p[1] for name, p in parts.items()}
    counts = stats.valid > 0
    out: dict[str, Array] = {"valid_fraction": stats.valid.mean(0), "block_length": np.asarray(block)}
    worth = [long_run.error_of_mean(long_run.influence(without[n], counts)).independent for n in ("error2", "pit_mean")]
    if "rank_share" in mean:
        out |= _ranks(mean["rank_share"], without["rank_share"], counts)
    for score in chosen(scores):
        if score.profile:
            continue
        rest = _parts(score, without)
        for name, number in _parts(score, mean).items():
            half, _, independent = long_run.error_of_mean(long_run.influence(rest[name], counts))
            if score.headline:
                worth.append(independent)
            low, high = long_run.interval(number, half, score.range)
            if name == "w1_pit":  # the sample's distance is above the law's by up to the floor
                low, high = np.maximum(number - half - out["w1_pit_floor"], 0.0), np.minimum(number + half, score.range[1])
            out |= {name: number, f"{name}_low": low, f"{name}_high": high}
        if score.headline:
            out |= {f"{name}_case": number.T for name, number in _parts(score, stats.statistics).items()}
    out["independent_cases"] = np.fmin.reduce(worth)
    if "exceedance_weight" in mean:
        drawn = bootstrap.resample(len(stats.case_ids), block, replicates if len(stats.case_ids) > 1 else 0, seed)
        weight, event = (bootstrap.weighted_means(drawn, stats.statistics[f"exceedance_{n}"], stats.valid) for n in ("weight", "event"))
        out |= _reliability(mean["exceedance_weight"], mean["exceedance_event"], weight, event, members)
    out |= {name: mean[name] for name in ("spread_weight", "spread_variance", "spread_error2") if name in mean}
    return out | maps(stats.grid)


def _parts(score: Score, means: Mapping[str, Array]) -> dict[str, Array]:
    value = score.combine(means)
    if isinstance(value, dict):
        return {f"{score.key}_{part}": number for part, number in value.items()}
    return {score.key: value}


def _series(stats: ShardStatistics) -> Array:
    """What the block length is judged by: squared error and mean PIT of each case in the first region, `(case, 2)`."""
    return np.stack([stats.statistics[name][:, 0] for name in ("error2", "pit_mean")], axis=-1)


SIMULTANEOUS = 1.358 / 0.98
"""95 % quantile of a Brownian bridge's greatest departure over 1.96 times its greatest standard deviation (Kolmogorov's band)."""


def _ranks(share: Array, without: Array, counts: NDArray[np.bool_]) -> dict[str, Array]:
    """Rank shares with intervals, the simultaneous band of the PIT's CDF, the floor of its distance, the effective number of points."""
    half = long_run.error_of_mean(long_run.influence(without, counts)).half
    low, high = long_run.interval(share, half, (0.0, 1.0))
    cdf = pit_cdf(share)
    error = long_run.error_of_mean(long_run.influence(pit_cdf(without), counts))
    floor = long_run.w1_floor(error.standard)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where(floor > 0, (sampling_scale(cdf) / floor) ** 2, np.nan)
    return {
        "rank_counts": share,
        "rank_low": low,
        "rank_high": high,
        "pit_band": SIMULTANEOUS * error.half.max(-1),
        "n_effective": effective,
        "w1_pit_floor": floor,
    }


def _reliability(weight: Array, event: Array, weight_again: Array, event_again: Array, members: int) -> dict[str, Array]:
    """CORP curve and its 95 % consistency band under calibration.

    The band must carry the dependence within and between cases, which drawing events independently would not: each
    replicate's departure from the record's own frequencies is laid over the stated probabilities, then recalibrated.
    """
    stated = probabilities(members)
    with np.errstate(divide="ignore", invalid="ignore"):
        frequency = np.where(weight > 0, event / weight, 0.0)
    calibrated = np.clip(weight_again * stated + (event_again - weight_again * frequency), 0.0, weight_again)
    curves = recalibrate(weight_again, calibrated)
    low, high = np.full(weight.shape, np.nan), np.full(weight.shape, np.nan)
    if len(curves):
        # a probability that no case of a replicate states has no frequency there: that replicate is left out, bin by bin
        ordered, count = np.sort(curves, axis=0), np.count_nonzero(~np.isnan(curves), axis=0)
        low, high = (linear_quantiles(ordered, p, count) for p in central(95))
    return {
        "exceedance_weight": weight,
        "exceedance_event": event,
        "corp_event": recalibrate(weight, event),
        "corp_low": low,
        "corp_high": high,
    }
