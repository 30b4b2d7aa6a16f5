"""Computing a run, where the five families meet: shard by shard, each result a file, the rest by addition.

All members and all ν of a case stand together: what precedes the first sampled attention is computed once for them. A
shard's file appears whole or not at all, so a worker may die at any moment; what it left is used, and the numbers are
those of an undisturbed run, since noise is keyed by (seed, member, case, site) and never by what ran before.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.kernels.quantiles import linear_quantiles
from engine.runs import pieces
from engine.runs.accumulate import Accumulator
from engine.runs.finish import finish, of_one_member
from engine.runs.forecast import deterministic, ensemble
from engine.runs.landscape import Landscape
from engine.runs.plan import Plan, Shard, make_plan
from engine.runs.posthoc import State, after, fit_state, load_state, save_state
from engine.runs.spec import AnySpec, RunSpec
from engine.runs.spectra import Spectra
from engine.runs.verification import FAN
from engine.settings import settings
from engine.types import Array, EnsembleView

OnProgress = Callable[[int, int, str], None]
States = Mapping[tuple[int, str], State]


def execute(spec: AnySpec, folder: Path, report: OnProgress, finished: Callable[[], None] = lambda: None) -> None:
    """Compute what is not there yet of `spec` in `folder`, and write its results: `verification.nc` and `fields.nc`, or
    `calibration.nc` where the spec asks for a calibration, `classification.nc` for a classification.

    `report(done, total, message)` is told of each ensemble, with a total of 0 until it is known; `finished()` of each shard.
    """
    _use_threads()
    if not isinstance(spec, RunSpec):
        from engine.runs.classify.execute import execute_classification

        return execute_classification(spec, folder, report, finished)
    report(0, 0, "opening the model and the data")
    plan = learned(make_plan(spec), folder, report)
    if spec.tune is not None:
        from engine.runs.calibrate import calibrate

        return calibrate(plan, folder, report, finished)
    place = pieces.make_place(folder / "shards")
    shards = list(plan.shards())
    learning = plan.learning
    total = learning + sum(plan.work(s) for s in shards)
    whole = {s.name for s in shards if pieces.load(place / f"{s.name}.npz", [c.id for c in s.cases]) is not None}
    done = sum(plan.work(s) for s in shards if s.name in whole)
    report(done, total, "resumed" if done else "started")
    made = [done]  # shared with the landscape, which computes once more what it needs when all shards are there
    landscape, states = _learn(plan, folder, made, total, report, finished)
    for shard in (s for s in shards if s.name not in whole):
        run_shard(plan, shard, place, states, lambda fresh, message, base=made[0]: report(base + fresh, total, message))
        made[0] += plan.work(shard)
        finished()
    made[0] = total
    report(total, total, "verifying")
    with pieces.writing(folder):
        finish(plan, shards, folder, landscape, states)
    return None


def learned(plan: Plan, folder: Path, report: OnProgress) -> Plan:
    """The plan with what its method learns on the fit split, or reads from the file that was named."""
    if "training" not in plan.method.needs:
        return plan
    from engine.data import cases as find_cases

    fit = [] if plan.spec.student else find_cases(plan.dataset, plan.lead_hours[0], "fit")
    state = plan.method.fit(
        plan.backbone, plan.dataset, plan.params, cases=fit, seed=plan.spec.seed, folder=pieces.make_place(folder / "learning"),
        state=plan.spec.student, report=lambda done, total, message: report(0, 0, f"{message}, {done / max(1, total):.0%}"),
    )  # fmt: skip
    return replace(plan, state=state)


def _learn(
    plan: Plan, folder: Path, made: list[int], total: int, report: OnProgress, finished: Callable[[], None]
) -> tuple[Landscape | None, States]:
    """The calibration split at each ν of the grid: small, and says early if something is wrong. `made`: the work done so far."""
    if not plan.learning:
        return None, {}
    done = made[0]

    def tick(members: int, message: str) -> None:
        made[0] += members
        report(made[0], total, message)

    landscape = Landscape(plan, tick, folder)
    states: dict[tuple[int, str], State] = {}
    a_nu = plan.learning // len(plan.nu)
    for k, nu in enumerate(plan.nu):
        before = made[0]
        if plan.chooses:
            landscape.evaluate(nu)
        states |= posthoc_states(plan, folder, landscape, nu)
        if made[0] > before:  # what was found on disk is no progress: a worker that dies after it got nowhere
            finished()
        made[0] = done + (k + 1) * a_nu
    report(made[0], total, "calibration cases done")
    return landscape, states


def posthoc_states(plan: Plan, folder: Path, landscape: Landscape, nu: int) -> dict[tuple[int, str], State]:
    """What the post-hoc method learned at ν from the calibration split, by ν and variable; nothing without such a method."""
    entry, params = plan.posthoc
    if entry is None:
        return {}
    place = pieces.make_place(folder / "posthoc")
    states: dict[tuple[int, str], State] = {}
    drawn: tuple[Array, Array] | None = None
    for k, v in enumerate(plan.variables):
        path = place / f"nu-{nu}-{v}.npz"
        state = load_state(path, entry, params)
        if state is None:
            drawn = landscape.members(nu) if drawn is None else drawn
            state = fit_state(entry, drawn[0][:, :, k], drawn[1][:, k], plan.weights, params)
            save_state(path, entry, params, state)
        states[nu, v] = state
    return states


def _use_threads() -> None:
    import torch

    if settings().threads:
        torch.set_num_threads(settings().threads)


def run_shard(plan: Plan, shard: Shard, place: Path, states: States, tick: Callable[[int, str], None]) -> None:
    """One shard's file: everything that verification adds up."""
    arrays = _verify(plan, shard, states, tick) | {"cases": np.asarray([c.id for c in shard.cases])}
    pieces.save(place / f"{shard.name}.npz", arrays)


def _verify(plan: Plan, shard: Shard, states: States, tick: Callable[[int, str], None]) -> dict[str, NDArray]:
    """Ensembles of each case at each ν, into statistics, gridpoint sums, and maps of the chosen cases."""
    entry, params = plan.posthoc
    spec = plan.spec
    sums = {
        (nu, v): Accumulator(plan.scores, plan.weights, spec.members, thresholds=plan.thresholds[v], spread_edges=plan.spread_edges[v])
        for nu in plan.nu
        for v in plan.variables
    }
    reference = {v: Accumulator(of_one_member(plan.scores), plan.weights, 1, grid=False) for v in plan.variables}
    seconds = np.zeros(len(plan.nu))
    spectra = Spectra(plan)
    maps: dict[str, list[NDArray]] = {"map_case": [], "observed": [], "deterministic": [], "mean": [], "quantiles": []}
    done = 0
    for case in shard.cases:
        batch = plan.backbone.prepare(plan.dataset, [case])
        climatology = plan.backbone.climatology(batch)
        single = deterministic(plan, batch)
        shared: dict = {}
        drawn = []
        for k, nu in enumerate(plan.nu):
            began = time.perf_counter()
            members = ensemble(plan, batch, nu, spec.members, shared)
            seconds[k] += time.perf_counter() - began
            for v, o in zip(plan.variables, plan.outputs, strict=True):
                view = after(
                    entry, params, states.get((nu, v), {}), members[:, :, o], batch.observed[:, o], plan.weights,
                    climatology=None if climatology is None else climatology[:, o], reference=single[:, o],
                    thresholds=plan.thresholds[v], spread_edges=plan.spread_edges[v],
                )  # fmt: skip
                sums[nu, v].add(view, [case.id])
                spectra.members(nu, v, view.members[:, 0])
                if case.id in plan.map_cases:
                    drawn.append((view.mean[0], np.stack([linear_quantiles(view.ordered, q)[0] for q in FAN])))
            done += spec.members
            tick(done, f"case {case.init_time}, ν = {nu}")
        for v, o in zip(plan.variables, plan.outputs, strict=True):
            spectra.case(v, batch.observed[0, o], single[0, o])
            reference[v].add(
                EnsembleView(single[None, :, o], batch.observed[:, o], None if climatology is None else climatology[:, o]), [case.id]
            )
        if case.id in plan.map_cases:
            _keep_maps(maps, case.id, batch.observed[0, plan.outputs], single[0, plan.outputs], drawn, (len(plan.nu), len(plan.variables)))
    arrays: dict[str, NDArray] = {"seconds": seconds} | spectra.arrays() | {f"map:{n}": np.stack(a) for n, a in maps.items() if a}
    for (nu, v), accumulator in sums.items():
        arrays |= accumulator.result().arrays(f"{nu}/{v}/")
    for v, accumulator in reference.items():
        arrays |= accumulator.result().arrays(f"deterministic/{v}/")
    return arrays


def _keep_maps(
    maps: dict[str, list[NDArray]], case: int, observed: Array, single: Array, drawn: list[tuple[Array, Array]], shape: tuple[int, int]
) -> None:
    maps["map_case"].append(np.asarray(case))
    maps["observed"].append(observed.astype(np.float32))
    maps["deterministic"].append(single.astype(np.float32))
    for name, part in (("mean", [m for m, _ in drawn]), ("quantiles", [q for _, q in drawn])):
        stacked = np.stack(part).astype(np.float32)
        maps[name].append(stacked.reshape(*shape, *stacked.shape[1:]))
