"""From finished shards to `verification.nc` and `fields.nc`: merge in shard order, intervals, names and labels for everything."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import engine
from engine.kernels import long_run
from engine.kernels.quantiles import perfect_coverage
from engine.runs import operating
from engine.runs.accumulate import ShardStatistics, finalise
from engine.runs.fields import SPACE, write, write_fields
from engine.runs.gridsums import add_exactly
from engine.runs.landscape import Landscape
from engine.runs.plan import Plan, Shard
from engine.runs.posthoc import State
from engine.runs.spectra import spectra
from engine.runs.verification import LEVELS
from engine.types import Array, PostHoc, Score

DIMENSIONS = {
    "rank_counts": ("rank",), "rank_low": ("rank",), "rank_high": ("rank",), "coverage_map": ("level",), "rank_map": ("rank_bin",),
    "exceedance_weight": ("threshold", "probability"), "exceedance_event": ("threshold", "probability"),
    "corp_event": ("threshold", "probability"), "corp_low": ("threshold", "probability"), "corp_high": ("threshold", "probability"),
    "spread_weight": ("spread_bin",), "spread_variance": ("spread_bin",), "spread_error2": ("spread_bin",),
}  # fmt: skip
"""Dimensions after (ν, region, lead time, variable), or before (latitude, longitude) in maps."""


REFERENCE = ("rmse", "acc")
"""Scores of the deterministic forecast, stored beside the ensemble's."""


def finish(plan: Plan, shards: list[Shard], folder: Path, landscape: Landscape | None, states: Mapping[tuple[int, str], State]) -> None:
    """Write both files, each whole or not at all."""
    files = {s.name: folder / "shards" / f"{s.name}.npz" for s in shards}
    verification = _verification(plan, shards, files, landscape)
    verification.attrs["key"] = folder.name
    entry, params = plan.posthoc
    if entry is not None:
        said = {str(nu): entry.report(states[nu, plan.variables[0]], params) for nu in plan.nu}
        given = type(entry).intervals is not PostHoc.intervals
        about = {"method": entry.key, "title": entry.title, "guarantee": entry.guarantee, "intervals": given, "learned": said}
        verification.attrs["posthoc"] = json.dumps(about, ensure_ascii=False)
        if given:  # intervals that are given promise the level itself
            verification.attrs["nominal_95"] = 0.95
    encoding: dict[str, Any] = {
        str(n): {"zlib": True, "complevel": 4} for n, v in verification.variables.items() if v.ndim > 1 and v.dtype.kind == "f"
    }
    write(verification, folder / "verification.nc", encoding)
    if plan.map_cases:
        write_fields(plan, shards, files, folder / "fields.nc")


def _merged(shards: list[Shard], files: dict[str, Path], lead: int, prefix: str) -> ShardStatistics:
    """All cases of one (ν, variable); gridpoint sums one shard after another, so that memory does not grow with the shards."""
    parts: list[ShardStatistics] = []
    grid: dict[str, Array] = {}
    for shard in shards:
        if shard.lead != lead:
            continue
        with np.load(files[shard.name], allow_pickle=False) as file:
            part = ShardStatistics.from_arrays({n: file[n] for n in file.files if n.startswith(prefix)}, prefix)
        for name, sums in part.grid.items():
            if name in grid:
                add_exactly(grid[name], sums[0])
                grid[name][1] += sums[1]
            else:
                grid[name] = np.array(sums)
        parts.append(replace(part, grid={}))
    return replace(ShardStatistics.concatenate(parts), grid=grid)


class _Arrays:
    """Arrays of the whole Verification by name, filled place by place; NaN where nothing was said."""

    def __init__(self, plan: Plan) -> None:
        self.sizes = {"nu": len(plan.nu), "region": len(plan.regions), "lead_time": len(plan.lead_hours), "variable": len(plan.variables)}
        self.variables: dict[str, tuple[tuple[str, ...], NDArray]] = {}

    def put(self, name: str, values: NDArray, front: tuple[str, ...], tail: tuple[str, ...], at: dict[str, int]) -> None:
        """`values` `(region if in front, *tail)` at positions on the other dimensions of `front`."""
        if name not in self.variables:
            shape = tuple(self.sizes[d] for d in front) + values.shape[("region" in front) :]
            self.variables[name] = ((*front, *tail), np.full(shape, np.nan, values.dtype if values.dtype.kind == "f" else float))
        self.variables[name][1][tuple(at[d] if d in at else slice(None) for d in front)] = values

    def score(self, values: dict[str, NDArray], at: dict[str, int]) -> None:
        """What `finalise` gives for one (ν, lead time, variable)."""
        for name, array in values.items():
            tail = DIMENSIONS.get(name, ("case",) if name.endswith("_case") else ())
            if name == "block_length":
                continue
            if name == "valid_map":
                self.put(name, array, ("lead_time", "variable"), SPACE, at)
            elif name.endswith("_map"):
                self.put(name, array, ("nu", "lead_time", "variable"), (*tail, *SPACE), at)
            elif name == "valid_fraction":
                self.put(name, array, ("region", "lead_time", "variable"), (), at)
            else:
                self.put(name, array, ("nu", "region", "lead_time", "variable"), tail, at)

    def reference(self, values: dict[str, NDArray], at: dict[str, int]) -> None:
        """Scores of the deterministic forecast, `rmse_deterministic`, `rmse_deterministic_low` …."""
        for name, array in values.items():
            stem, _, end = name.partition("_")
            if stem in REFERENCE and end in ("", "low", "high"):
                self.put("_".join(filter(None, (stem, "deterministic", end))), array, ("region", "lead_time", "variable"), (), at)


def _verification(plan: Plan, shards: list[Shard], files: dict[str, Path], landscape: Landscape | None) -> xr.Dataset:
    spec = plan.spec
    options = {"replicates": spec.bootstrap, "seed": spec.seed}
    arrays, blocks, independent = _Arrays(plan), [], []
    for lead in range(len(plan.lead_hours)):
        for v, variable in enumerate(plan.variables):
            reference = _merged(shards, files, lead, f"deterministic/{variable}/")
            single = finalise(reference, of_one_member(plan.scores), members=1, **options)
            # one block length a lead time and variable, from the deterministic errors: resamples are then shared by all ν
            block = int(single["block_length"])
            blocks.append(block)
            worth = [float(single["independent_cases"][0])]
            arrays.reference(single, {"lead_time": lead, "variable": v})
            for n, nu in enumerate(plan.nu):
                stats = _merged(shards, files, lead, f"{nu}/{variable}/")
                values = finalise(stats, plan.scores, members=spec.members, block=block, **options)
                worth.append(float(values["independent_cases"][0]))
                arrays.score(values, {"nu": n, "lead_time": lead, "variable": v})
            independent.append(float(np.nanmedian(worth)))  # one number a variable: the least of many estimates would be too low
    arrays.variables |= spectra(plan, shards, files)
    return _described(plan, xr.Dataset(arrays.variables, _coordinates(plan)), files, shards, (max(blocks), min(independent)), landscape)


def of_one_member(scores: Sequence[Score]) -> list[str]:
    """Scores of the deterministic forecast that stand beside the ensemble's."""
    return [s.key for s in scores if s.key in REFERENCE]


def _coordinates(plan: Plan) -> dict[str, Any]:
    cases = plan.cases[0]
    valid = [[c.valid_time for c in of_lead] for of_lead in plan.cases]
    members = plan.spec.members
    coordinates: dict[str, Any] = {n: plan.dataset.fields[n].values for n in SPACE}
    return coordinates | {
        "nu": list(plan.nu),
        "region": list(plan.regions),
        "lead_time": list(plan.lead_hours),
        "variable": list(plan.variables),
        "case": np.arange(len(cases)),
        # the initial times are the same at all lead times; the valid times are not
        "init_time": ("case", [c.init_time for c in cases]),
        "valid_time": ("case", valid[0]) if len(valid) == 1 else (("lead_time", "case"), valid),
        "level": list(LEVELS),
        "rank": np.arange(members + 1),
        "probability": np.arange(members + 1),
        "wavenumber": np.arange(plan.dataset.grid[1] // 2 + 1),
        "threshold": np.arange(len(plan.spec.thresholds)),
        "threshold_value": (("variable", "threshold"), np.reshape([plan.thresholds[v] for v in plan.variables], (len(plan.variables), -1))),
        "unit": ("variable", [plan.backbone.out_units[o] for o in plan.outputs]),
    }


def _described(
    plan: Plan, dataset: xr.Dataset, files: dict[str, Path], shards: list[Shard], dependence: tuple[int, float], landscape: Landscape | None
) -> xr.Dataset:
    spec = plan.spec
    seconds = np.zeros(len(plan.nu))
    for shard in shards:
        with np.load(files[shard.name], allow_pickle=False) as file:
            seconds += file["seconds"]
    dataset["seconds"] = ("nu", seconds, {"units": "s", "long_name": "time of all member forwards at this ν"})
    for score in plan.scores:
        if score.key in dataset:
            unit = "" if score.unit == "variable" else score.unit
            dataset[score.key].attrs.update(
                title=score.title,
                symbol=score.symbol,
                units=unit,
                better=score.better,
                perfect=score.perfect,
                estimator=score.estimator,
                reference=score.reference,
            )
    points, elsewhere = operating.choose(plan, dataset, landscape)
    block, independent = dependence
    few = long_run.said_few(len(plan.cases[0]), independent)
    dataset.attrs = {
        "command": spec.command(),
        "spec": spec.model_dump_json(),
        "members": spec.members,
        "seed": spec.seed,
        "cases": len(plan.cases[0]),
        "method": spec.method,
        "method_title": plan.method.title,
        "uses_nu": int(plan.method.uses_nu),
        "estimator": "fair CRPS; quantile intervals from linear quantiles of the members",
        "version": engine.__version__,
        "checkpoint_revision": plan.backbone.revision,
        "dataset_fingerprint": plan.dataset.fingerprint,
        "notes": json.dumps([*plan.notes, *few], ensure_ascii=False),
        "changes": json.dumps(list(plan.dataset.changes), ensure_ascii=False),
        "nominal_95": perfect_coverage(spec.members, 95),
        "operating_points": json.dumps(points, ensure_ascii=False),
        "operating_points_elsewhere": json.dumps(elsewhere, ensure_ascii=False),
        "block_length": block,
        "independent_cases": round(independent, 1),
        "bootstrap": spec.bootstrap,
        "regions": json.dumps(dict(plan.regions)),
        "title": spec.title,
        "patch": int(getattr(plan.backbone.module, "patch", 0)),
    }
    return dataset
