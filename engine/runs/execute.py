"""Computing a run, where the five families meet: shard by shard, each result a file, the rest by addition.

All members and all ν of a case stand together: what precedes the first sampled attention is computed once for them. A
shard's file appears whole or not at all, so a worker may die at any moment; what it left is used, and the numbers are
those of an undisturbed run, since noise is keyed by (seed, member, case, site) and never by what ran before.
"""

import errno
import logging
import os
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import RunError
from engine.kernels.quantiles import linear_quantiles
from engine.registry import get
from engine.runs.accumulate import Accumulator
from engine.runs.finish import finish, of_one_member
from engine.runs.plan import Plan, Shard, make_plan
from engine.runs.spec import RunSpec
from engine.runs.verification import FAN
from engine.settings import settings
from engine.types import Array, Batch, EnsembleView

log = logging.getLogger("engine.runs")
OnProgress = Callable[[int, int, str], None]


def execute(spec: RunSpec, folder: Path, report: OnProgress, finished: Callable[[], None] = lambda: None) -> None:
    """Compute what is not there yet of `spec` in `folder`, and write `verification.nc` and `fields.nc`.

    `report(done, total, message)` is told of each ensemble, with a total of 0 until it is known; `finished()` of each shard.
    """
    _use_threads()
    report(0, 0, "opening the model and the data")
    plan = make_plan(spec)
    shards = list(plan.shards())
    place = folder / "shards"
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob("*.part"):  # of a worker that died while it wrote
            left.unlink(missing_ok=True)
    total = sum(plan.work(s) for s in shards)
    todo = [s for s in shards if not is_whole(place / f"{s.name}.npz", s)]
    done = total - sum(plan.work(s) for s in todo)
    report(done, total, "resumed" if done else "started")
    for shard in todo:
        run_shard(plan, shard, place, lambda fresh, message, base=done: report(base + fresh, total, message))
        done += plan.work(shard)
        finished()
    report(total, total, "verifying")
    with writing(folder):
        finish(plan, shards, folder)


def _use_threads() -> None:
    import torch

    if settings().threads:
        torch.set_num_threads(settings().threads)


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what an operating system says about a full disk or a folder without rights into a refusal that says what to do.

    HDF5 reports a failed write as an OSError or a RuntimeError, by where it happens.
    """
    try:
        yield
    except (OSError, RuntimeError) as fault:
        full = "errno = 28" in str(fault) or getattr(fault, "errno", None) == errno.ENOSPC
        if isinstance(fault, RuntimeError) and not full:
            raise
        raise RunError(
            f"writing to {place}",
            found="no space left" if full else str(fault),
            expected="a folder that can be written",
            remedy="Free some space or mend the rights, then resume the run: it goes on from its last finished shard.",
        ) from fault


def is_whole(path: Path, shard: Shard) -> bool:
    """Whether a shard's file is there, undamaged (every part is read against its checksum) and of these very cases."""
    if not path.exists():
        return False
    try:
        # opened here: NumPy leaves a file that it opened itself open when it is no archive
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            ids = [file[name] for name in file.files if name == "cases"]
            for name in file.files:
                file[name]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as fault:
        log.warning("shard %s is damaged and is computed again: %s", path.name, fault)
        return False
    if not ids or ids[0].tolist() != [c.id for c in shard.cases]:
        log.warning("shard %s holds other cases and is computed again", path.name)
        return False
    return True


def run_shard(plan: Plan, shard: Shard, place: Path, tick: Callable[[int, str], None]) -> None:
    """One shard's file: `calibrate` scales and unbiased scores, or everything that verification adds up."""
    compute = _calibrate if shard.split == "calibrate" else _verify
    arrays = compute(plan, shard, tick) | {"cases": np.asarray([c.id for c in shard.cases])}
    # the process's id in the name: should two ever write one shard, each file is still whole
    path, part = place / f"{shard.name}.npz", place / f"{shard.name}.{os.getpid()}.part"
    with writing(place):
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _verify(plan: Plan, shard: Shard, tick: Callable[[int, str], None]) -> dict[str, NDArray]:
    """Ensembles of each case at each ν, into statistics, gridpoint sums, and maps of the chosen cases."""
    spec = plan.spec
    sums = {
        (nu, v): Accumulator(plan.scores, plan.weights, spec.members, thresholds=plan.thresholds[v], spread_edges=plan.spread_edges[v])
        for nu in plan.nu
        for v in plan.variables
    }
    reference = {v: Accumulator(of_one_member(plan.scores), plan.weights, 1, grid=False) for v in plan.variables}
    seconds = np.zeros(len(plan.nu))
    maps: dict[str, list[NDArray]] = {"map_case": [], "observed": [], "deterministic": [], "mean": [], "quantiles": []}
    done = 0
    for case in shard.cases:
        batch = plan.backbone.prepare(plan.dataset, [case])
        climatology = plan.backbone.climatology(batch)
        single = _deterministic(plan, batch)
        shared: dict = {}
        drawn = []
        for k, nu in enumerate(plan.nu):
            began = time.perf_counter()
            members = _ensemble(plan, batch, nu, spec.members, shared)
            seconds[k] += time.perf_counter() - began
            for v, o in zip(plan.variables, plan.outputs, strict=True):
                view = EnsembleView(
                    members[:, :, o], batch.observed[:, o], None if climatology is None else climatology[:, o], single[:, o],
                    plan.thresholds[v], plan.spread_edges[v],
                )  # fmt: skip
                sums[nu, v].add(view, [case.id])
                if case.id in plan.map_cases:
                    drawn.append((view.mean[0], np.stack([linear_quantiles(view.ordered, q)[0] for q in FAN])))
            done += spec.members
            tick(done, f"case {case.init_time}, ν = {nu}")
        for v, o in zip(plan.variables, plan.outputs, strict=True):
            reference[v].add(
                EnsembleView(single[None, :, o], batch.observed[:, o], None if climatology is None else climatology[:, o]), [case.id]
            )
        if case.id in plan.map_cases:
            _keep_maps(maps, case.id, batch.observed[0, plan.outputs], single[0, plan.outputs], drawn, (len(plan.nu), len(plan.variables)))
    arrays: dict[str, NDArray] = {"seconds": seconds} | {f"map:{n}": np.stack(a) for n, a in maps.items() if a}
    for (nu, v), accumulator in sums.items():
        arrays |= accumulator.result().arrays(f"{nu}/{v}/")
    for v, accumulator in reference.items():
        arrays |= accumulator.result().arrays(f"deterministic/{v}/")
    return arrays


def _refuse_not_finite(output: Array, what: str) -> None:
    """A model's NaN must not pass for a missing member, which scores leave out."""
    if not np.isfinite(output).all():
        raise RunError(
            what,
            found=f"{1 - np.isfinite(output).mean():.2%} of the values not finite",
            expected="finite values",
            remedy="Check the weights, the normalisation and the inputs of this case.",
        )


def _ensemble(plan: Plan, batch: Batch, nu: int, members: int, shared: dict[str, Any]) -> Array:
    """Members `(member, case, variable, H, W)` of the run's method; whichever split they are for, they are finite."""
    drawn = plan.method.predict(
        plan.backbone, batch, state=None, params=plan.params, nu=nu, members=members, seed=plan.spec.seed, shared=shared
    ).members
    _refuse_not_finite(drawn, f"model output, case {batch.cases[0].init_time}, ν = {nu}")
    return drawn


def _deterministic(plan: Plan, batch: Batch) -> Array:
    method = get("methods", "deterministic")
    output = method.predict(plan.backbone, batch, state=None, params=None, nu=0, members=1, seed=0, shared={}).members[0]
    _refuse_not_finite(output, f"deterministic forecast of {batch.cases[0].init_time}")
    return output


def _keep_maps(
    maps: dict[str, list[NDArray]], case: int, observed: Array, single: Array, drawn: list[tuple[Array, Array]], shape: tuple[int, int]
) -> None:
    maps["map_case"].append(np.asarray(case))
    maps["observed"].append(observed.astype(np.float32))
    maps["deterministic"].append(single.astype(np.float32))
    for name, part in (("mean", [m for m, _ in drawn]), ("quantiles", [q for _, q in drawn])):
        stacked = np.stack(part).astype(np.float32)
        maps[name].append(stacked.reshape(*shape, *stacked.shape[1:]))


def _calibrate(plan: Plan, shard: Shard, tick: Callable[[int, str], None]) -> dict[str, NDArray]:
    """Residual scale Z, perturbation R of each member, and fair CRPS, on the calibration split; with few members.

    R = ‖f_ν(x) − f(x)‖ and Z = ‖y − f(x)‖ over the verified outputs in normalised units, area weighted (arXiv 2604.19530; the
    norm is our choice). Fair CRPS has the same expectation for any number of members, so few are enough to compare ν.
    """
    spec, out = plan.spec, plan.outputs
    area, scale = plan.weights[0], plan.backbone.output_sd[out]
    crps = get("scoring", "crps_fair")

    def norm(difference: Array) -> Array:
        """Root of the area mean over points and outputs, `(…)` from `(…, variable, H, W)`."""
        square = (difference / scale[:, None, None]) ** 2
        weight = np.where(np.isnan(square), 0.0, area)
        total = weight.sum(axis=(-3, -2, -1))
        # a case without one valid point has no scale: NaN, which choosing the operating points leaves out
        return np.sqrt(np.nansum(square * weight, axis=(-3, -2, -1)) / np.where(total > 0, total, np.nan))

    z, r, scores, done = [], [], [], 0
    for case in shard.cases:
        batch = plan.backbone.prepare(plan.dataset, [case])
        single = _deterministic(plan, batch)[:, out]
        observed = batch.observed[:, out]
        z.append(norm(observed - single)[0])
        shared: dict = {}
        of_case, scores_of_case = [], []
        for nu in plan.nu:
            members = _ensemble(plan, batch, nu, spec.calibrate_members, shared)[:, :, out]
            of_case.append(norm(members - single)[:, 0])
            view = EnsembleView(members[:, :, 0], observed[:, 0])
            scores_of_case.append(crps.statistics(view, plan.weights[:1])["crps_fair"][0, 0])
            done += spec.calibrate_members
            tick(done, f"calibration case {case.init_time}, ν = {nu}")
        r.append(of_case)
        scores.append(scores_of_case)
    return {"residual": np.asarray(z), "perturbation": np.asarray(r), "crps_fair": np.asarray(scores)}
