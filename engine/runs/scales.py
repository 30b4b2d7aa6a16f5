"""From what a landscape keeps to the two scales of a calibration: R, how far a member strays, and Z, how far the model errs."""

from functools import cached_property

import numpy as np

from engine.kernels import bootstrap, long_run, residual_scale
from engine.kernels.quantiles import perfect_coverage
from engine.kernels.wasserstein import pit_cdf
from engine.registry import get
from engine.runs.accumulate import ShardStatistics
from engine.runs.landscape import Evaluation, Landscape
from engine.runs.tune import Tune
from engine.types import Array


def norm(square: Array, scale: Array, tune: Tune, chosen: list[int] | None = None) -> Array:
    """‖·‖ over the outputs, `(…)` from mean squares `(…, variable, 2)`: the root of their mean over points and variables.

    arXiv 2604.19530 takes the Euclidean norm over all output coordinates; a root mean square differs from it by √d, which
    ν* does not see, and stays comparable where points are missing (both scales count the observed points only). Normalised
    units (by `scale` `(variable,)`, the outputs' standard deviations) and area weights are our choice, and options.
    """
    weighting = 1 if tune.area_weighted else 0
    each = square[..., weighting] / (scale**2 if tune.norm == "normalised" else np.ones_like(scale))
    each = each if chosen is None else each[..., chosen]
    known = ~np.isnan(each)
    total = np.where(known, each, 0.0).sum(-1)
    return np.sqrt(total / np.where(known.any(-1), np.maximum(known.sum(-1), 1), np.nan))


def parts(square: Array, shift: Array, members: int) -> tuple[Array, Array]:
    """Mean squares of the departure's two parts, the shift that all members share and their spread around it.

    `square`: mean of the members' squared departures; `shift`: the squared departure of their mean. E square = shift² + spread².
    Both parts are unbiased in the number of members: the mean of B members scatters by spread²/B itself.
    """
    spread = (square - shift) * members / (members - 1)
    return shift - spread / members, spread


def score(statistics: ShardStatistics, key: str, resampled: Array | None = None) -> Array:
    """A score of an evaluation in its first region: its value, or with `resampled` `(replicate, case)` one a replicate."""
    drawn = np.ones((1, len(statistics.case_ids))) if resampled is None else resampled
    means = {name: bootstrap.weighted_means(drawn, s, statistics.valid)[:, 0] for name, s in statistics.statistics.items()}
    value = get("scoring", key).combine(means)
    return np.asarray(value) if resampled is not None else np.asarray(value)[0]


def influences(statistics: ShardStatistics, key: str) -> tuple[float, Array]:
    """A score in the first region, and how far each case moves it, `(case,)` (NaN where a case does not count)."""
    parts = {name: long_run.leave_one_out(s[:, :1], statistics.valid[:, :1]) for name, s in statistics.statistics.items()}
    combine = get("scoring", key).combine
    value = np.asarray(combine({name: p[0] for name, p in parts.items()}))[0]
    without = np.asarray(combine({name: p[1] for name, p in parts.items()}))[:, 0]
    return float(value), long_run.influence(without, statistics.valid[:, 0] > 0)


def pit_floor(statistics: ShardStatistics) -> float:
    """What `w1_pit` of a perfect ensemble would be on average in the first region, with as many cases that hang together as these."""
    without = pit_cdf(long_run.leave_one_out(statistics.statistics["rank_share"][:, :1], statistics.valid[:, :1])[1])[:, 0]
    return float(long_run.w1_floor(long_run.error_of_mean(long_run.influence(without, statistics.valid[:, 0] > 0)).standard))


class Scales:
    """The landscape as one calibration looks at it: only what it asked for counts, whatever other runs left there.

    Cases without one valid point say nothing and are left out; `cases` counts the others.
    """

    def __init__(self, landscape: Landscape, tune: Tune, replicates: int) -> None:
        plan = landscape.plan
        self.landscape, self.tune, self.replicates = landscape, tune, replicates
        self.variables = [plan.variables.index(v) for v in tune.norm_variables] or list(range(len(plan.variables)))
        self.unit_of = plan.backbone.output_sd[plan.outputs]
        everything = norm(landscape.residual, self.unit_of, tune, self.variables)
        self.seen = np.isfinite(everything)
        self.target = everything[self.seen]
        self._asked: dict[tuple[int, int], Evaluation] = {}

    @property
    def cases(self) -> int:
        """Cases that count."""
        return int(self.seen.sum())

    @cached_property
    def block(self) -> int:
        """Block length of the bootstrap in cases, from the errors of the frozen forecast."""
        return bootstrap.block_length(self.target)

    @cached_property
    def resampled(self) -> Array:
        """How often each case that counts occurs in each replicate, `(replicate, case)`."""
        return bootstrap.resample(self.cases, self.block, self.replicates, self.landscape.plan.spec.seed)

    @property
    def nus(self) -> list[int]:
        """Every ν that was asked for, ascending."""
        return sorted({nu for nu, _ in self._asked})

    def at(self, nu: int, number: int = 0) -> Evaluation:
        """One evaluation, made where it is not there."""
        if (nu, number) not in self._asked:
            self._asked[nu, number] = self.landscape.evaluate(nu, number)
        return self._asked[nu, number]

    def all_at(self, nu: int) -> list[Evaluation]:
        """Every evaluation at ν that was asked for."""
        return [self._asked[key] for key in sorted(self._asked) if key[0] == nu]

    def one_pass(self, nu: int, k: int) -> Array:
        """R of the k-th pass at ν, `(case,)`."""
        members = self.landscape.plan.spec.calibrate_members
        return self._norm(self.at(nu, k // members))[:, k % members]

    def passes(self, nu: int) -> Array:
        """R of every pass at ν, `(case, pass)`."""
        return np.concatenate([self._norm(e) for e in self.all_at(nu)], axis=1)

    def _norm(self, evaluation: Evaluation) -> Array:
        return norm(evaluation.square, self.unit_of, self.tune, self.variables)[self.seen]

    def parts(self, nu: int) -> tuple[Array, Array]:
        """Mean squares `(case,)` of the departure's two parts: the shift that all members share, and their spread around it.

        E R² = shift² + spread². The shift is the network's bias, O(1/ν): it counts as departure and widens no interval. Both
        are unbiased in the number of members: the mean of B members scatters by spread²/B itself.
        """
        members = self.landscape.plan.spec.calibrate_members
        whole = np.mean([(self._norm(e) ** 2).mean(axis=1) for e in self.all_at(nu)], axis=0)
        ofmean = np.mean([norm(e.shift, self.unit_of, self.tune, self.variables)[self.seen] ** 2 for e in self.all_at(nu)], axis=0)
        return parts(whole, ofmean, members)

    def loss(self, nu: int) -> Array:
        """Mean over the passes of (R − Z)², `(case,)`: its mean over cases is the unbiased estimate of the loss."""
        return residual_scale.loss(self.passes(nu).T, self.target).by_case

    def statistics(self, nu: int) -> ShardStatistics:
        """Statistics of the first variable's scores, averaged over the evaluations at ν."""
        name = self.landscape.plan.variables[0]
        parts = [e.statistics[name] for e in self.all_at(nu)]
        averaged = {key: np.mean([p.statistics[key] for p in parts], axis=0)[self.seen] for key in parts[0].statistics}
        return ShardStatistics(parts[0].case_ids[self.seen], parts[0].valid[self.seen], averaged, {})

    def score(self, nu: int, key: str, resampled: Array | None = None) -> Array:
        """A score at ν, or one a replicate."""
        return score(self.statistics(nu), key, resampled)

    def objective(self, nu: int, key: str, resampled: Array | None = None) -> Array:
        """What is to be least: the score itself, or how far coverage is from that of a perfect ensemble of as many members."""
        value = self.score(nu, key, resampled)
        level = key.removeprefix("coverage_")
        return np.abs(value - perfect_coverage(self.landscape.plan.spec.calibrate_members, int(level))) if level != key else value
