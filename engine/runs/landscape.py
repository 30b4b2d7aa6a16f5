"""Ensembles on the calibration split at whatever ν is asked for, each made once and kept for every run that could use it.

One evaluation is one ensemble of `calibrate_members` at one ν for all calibration cases. Kept of it are the squared
departures of its members from the frozen forecast, from which every norm follows, and the statistics of a few scores. The
folder's name is a hash of all that these numbers depend on (files, method, cases, seed, engine), so a sweep, a calibration,
its repetition and its extension share them. Noise is keyed by ν and by the evaluation's number: passes at different ν are
independent, which the regression over ν takes for granted.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from engine.registry import entries
from engine.runs import pieces
from engine.runs.accumulate import Accumulator, ShardStatistics
from engine.runs.forecast import deterministic, ensemble
from engine.runs.plan import Plan
from engine.safety import memory_limit
from engine.settings import settings
from engine.types import Array, Batch, EnsembleView

SCORES = ("w1_pit", "coverage_95", "width_95", "crps_fair", "rmse", "acc", "spread_skill_ratio", "nll_gaussian")
"""Scores of each evaluation: the rows that a calibration answers with."""
OnTick = Callable[[int, str], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One ensemble on the calibration split.

    `square` `(case, member, variable, weighting)`: mean over the valid points of the squared departure from the frozen
    forecast, in the variable's unit squared, unweighted and area weighted; `shift` `(case, variable, weighting)`: the same of
    the ensemble's mean.
    """

    nu: int
    number: int
    square: Array
    shift: Array
    statistics: Mapping[str, ShardStatistics]
    seconds: float


class Landscape:
    """The evaluations of one plan's calibration split; `tick(members, message)` is told of each case's new ensemble.

    `folder`, that of the run: it gets a note of which evaluations are used, and they are removed with the last run that does.
    """

    def __init__(self, plan: Plan, tick: OnTick = lambda members, message: None, folder: Path | None = None) -> None:
        self.plan, self.tick = plan, tick
        self.cases = [c.id for c in plan.calibrate]
        self.key = _key(plan)
        self.place = settings().home / "evaluations" / self.key
        if folder is not None:  # before the place is made: who sweeps up what no run refers to must find this
            with pieces.writing(folder):
                part = folder / "landscape.part"
                part.write_text(self.key)
                part.replace(folder / "landscape")
        pieces.make_place(self.place)
        self._held: dict[int, tuple[Batch, Array, dict[str, Any]]] = {}
        self._room: int | None = None

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """Of SCORES, those that can be computed here."""
        known, climatology = entries("scoring"), self.plan.has_climatology
        return tuple(s for s in SCORES if climatology or "climatology" not in known[s].needs)

    @cached_property
    def residual(self) -> Array:
        """Squared error of the frozen forecast, `(case, variable, weighting)`, as in `Evaluation.square`; NaN without a valid point."""
        path = self.place / "residual.npz"
        kept = pieces.load(path, self.cases)
        if kept is None or kept.get("square", np.zeros(0)).shape != (len(self.cases), len(self.plan.variables), 2):
            found = []
            for i in range(len(self.cases)):
                batch, single, _ = self._case(i)
                observed = batch.observed[:, self.plan.outputs]
                found.append(_mean_squares(observed - single, observed, self.plan.weights[0])[0])
                self.tick(0, f"frozen forecast of calibration case {batch.cases[0].init_time}")
            kept = {"cases": np.asarray(self.cases), "square": np.stack(found)}
            pieces.save(path, kept)
        return kept["square"]

    def evaluate(self, nu: int, number: int = 0, nu_of: Mapping[str, int] | None = None) -> Evaluation:
        """The `number`-th ensemble at ν; `nu_of` gives the attention modules that a pattern names a ν of their own."""
        path = self._path(nu, number, nu_of or {})
        kept = self._load(path, nu, number)
        if kept is None:
            kept = self._compute(nu, number, dict(nu_of or {}))
            pieces.save(path, kept)
        statistics = {v: ShardStatistics.from_arrays(kept, f"{v}/") for v in self.plan.variables}
        return Evaluation(nu, number, kept["square"], kept["shift"], statistics, float(kept["seconds"]))

    def _load(self, path: Path, nu: int, number: int) -> dict[str, NDArray] | None:
        """What is stored, where it says itself that it is this evaluation and is shaped like one; else it is made again."""
        kept = pieces.load(path, self.cases)
        shape = (len(self.cases), self.plan.spec.calibrate_members, len(self.plan.variables), 2)
        if kept is None:
            return None
        own = kept.get("which", np.zeros(0)).tolist() == [nu, number]
        whole = {"square", "shift", "seconds"} <= kept.keys() and kept["square"].shape == shape
        if own and whole and kept["shift"].shape == (shape[0], *shape[2:]):
            return kept
        pieces.log.warning("%s is not the evaluation that its name says and is computed again", path.name)
        return None

    def members(self, nu: int) -> tuple[Array, Array]:
        """The run's own ensemble of every calibration case at ν: members `(member, case, variable, H, W)`, and what was observed.

        Made as the ensembles that are verified, with as many members: what is learned from them holds for those.
        """
        drawn, observed = [], []
        for i, case in enumerate(self.plan.calibrate):
            batch, single, shared = self._case(i)
            drawn.append(ensemble(self.plan, batch, nu, self.plan.spec.members, shared)[:, 0, self.plan.outputs])
            observed.append(batch.observed[0, self.plan.outputs])
            self._keep(i, batch, single, shared)
            self.tick(self.plan.spec.members, f"learning from calibration case {case.init_time}, ν = {nu}")
        return np.stack(drawn, axis=1), np.stack(observed)

    def _path(self, nu: int, number: int, nu_of: Mapping[str, int]) -> Path:
        own = hashlib.sha256(json.dumps(sorted(nu_of.items())).encode()).hexdigest()[:12]
        return self.place / (f"nu-{nu}-{number}.npz" if not nu_of else f"nu-{nu}-{number}-{own}.npz")

    def _compute(self, nu: int, number: int, nu_of: dict[str, int]) -> dict[str, NDArray]:
        from engine.kernels.noise import key64

        plan, members = self.plan, self.plan.spec.calibrate_members
        params = plan.params.model_copy(update={"nu_of": plan.params.nu_of | nu_of}) if nu_of else plan.params
        seed = key64(plan.spec.seed, member=number, case=nu) >> 1
        sums = {v: Accumulator(self.scores, plan.weights[:1], members, grid=False) for v in plan.variables}
        squares, shifts, began = [], [], time.perf_counter()
        for i, case in enumerate(plan.calibrate):
            batch, single, shared = self._case(i)
            observed, climatology = batch.observed[:, plan.outputs], plan.backbone.climatology(batch)
            drawn = ensemble(plan, batch, nu, members, shared, params=params, seed=seed)[:, :, plan.outputs]
            squares.append(_mean_squares(drawn - single, observed, plan.weights[0])[:, 0])
            shifts.append(_mean_squares(drawn.mean(axis=0, dtype=np.float64) - single, observed, plan.weights[0])[0])
            for k, (v, o) in enumerate(zip(plan.variables, plan.outputs, strict=True)):
                known = None if climatology is None else climatology[:, o]
                sums[v].add(EnsembleView(drawn[:, :, k], observed[:, k], known), [case.id])
            self._keep(i, batch, single, shared)
            self.tick(members, f"calibration case {case.init_time}, ν = {nu}")
        kept: dict[str, NDArray] = {"cases": np.asarray(self.cases), "square": np.stack(squares), "shift": np.stack(shifts)}
        kept["seconds"], kept["which"] = np.asarray(time.perf_counter() - began), np.asarray([nu, number])
        for v, total in sums.items():
            kept |= total.result().arrays(f"{v}/")
        return kept

    def _case(self, i: int) -> tuple[Batch, Array, dict[str, Any]]:
        """Input, frozen forecast of the verified outputs, and what does not depend on ν, of one case."""
        if i in self._held:
            return self._held[i]
        batch = self.plan.backbone.prepare(self.plan.dataset, [self.plan.calibrate[i]])
        return batch, deterministic(self.plan, batch)[:, self.plan.outputs], {}

    def _keep(self, i: int, batch: Batch, single: Array, shared: dict[str, Any]) -> None:
        """Hold a case while a quarter of the memory has room for it; the others are prepared anew at each evaluation."""
        if self._room is None:
            self._room = memory_limit() // 4
        if i not in self._held:
            size = batch.inputs.nbytes + batch.observed.nbytes + single.nbytes + _bytes_of(shared)
            if size <= self._room:
                self._room -= size
                self._held[i] = (batch, single, shared)


def _bytes_of(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_bytes_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes_of(v) for v in value)
    return int(getattr(value, "nbytes", 0))


def _mean_squares(difference: Array, observed: Array, area: Array) -> Array:
    """Means of the squares over the points that are observed, `(…, variable, 2)` from `(…, variable, H, W)`: plain, area weighted."""
    valid = ~np.isnan(observed)
    square = np.where(valid, np.nan_to_num(difference), 0.0).astype(np.float64) ** 2
    found = []
    for weight in (np.where(valid, 1.0, 0.0), np.where(valid, area, 0.0)):
        total = weight.sum(axis=(-2, -1))
        found.append((square * weight).sum(axis=(-2, -1)) / np.where(total > 0, total, np.nan))
    return np.stack(found, axis=-1)


def _key(plan: Plan) -> str:
    """Hash of everything that an evaluation's numbers depend on."""
    spec = plan.spec
    from engine.runs.spec import contents

    plain = {
        "files": {role: hashes for role, hashes in contents(spec).items() if role != "data"},
        "architecture": spec.architecture,
        "method": [spec.method, spec.params],
        "cases": [c.id for c in plan.calibrate],
        "members": spec.calibrate_members,
        "seed": spec.seed,
        "variables": list(plan.variables),
        "version": engine.__version__,
    }
    plain |= {"reading": spec.roles()} if spec.roles() else {}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
