"""From finished shards to `verification.nc` and `fields.nc`: merge in shard order, bootstrap, name and label everything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import engine
from engine.kernels.quantiles import perfect_coverage
from engine.runs import operating
from engine.runs.accumulate import ShardStatistics, finalise
from engine.runs.plan import Plan, Shard
from engine.runs.verification import FAN, LEVELS

DIMENSIONS = {
    "rank_counts": ("rank",), "rank_low": ("rank",), "rank_high": ("rank",), "coverage_map": ("level",), "rank_map": ("rank_bin",),
    "exceedance_weight": ("threshold", "probability"), "exceedance_event": ("threshold", "probability"),
    "corp_event": ("threshold", "probability"), "corp_low": ("threshold", "probability"), "corp_high": ("threshold", "probability"),
    "spread_weight": ("spread_bin",), "spread_variance": ("spread_bin",), "spread_error2": ("spread_bin",),
}  # fmt: skip
"""Dimensions after (ν, region, lead time, variable), or before (latitude, longitude) in maps."""


def finish(plan: Plan, shards: list[Shard], folder: Path) -> None:
    """Write both files, each whole or not at all."""
    files = {s.name: folder / "shards" / f"{s.name}.npz" for s in shards}
    verification = _verification(plan, shards, files)
    verification.attrs["key"] = folder.name
    encoding: dict[str, Any] = {str(n): {"zlib": True, "complevel": 4} for n, v in verification.variables.items() if v.ndim > 1 and v.dtype.kind == "f"}
    _write(verification, folder / "verification.nc", encoding)
    if plan.map_cases:
        _write_fields(plan, shards, files, folder / "fields.nc")


def _write(dataset: xr.Dataset, path: Path, encoding: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    dataset.to_netcdf(part, engine="h5netcdf", encoding=encoding)
    part.replace(path)


def _merged(shards: list[Shard], files: dict[str, Path], lead: int, prefix: str) -> ShardStatistics:
    parts = []
    for shard in shards:
        if shard.split == "verify" and shard.lead == lead:
            with np.load(files[shard.name], allow_pickle=False) as file:
                parts.append(ShardStatistics.from_arrays({n: file[n] for n in file.files if n.startswith(prefix)}, prefix))
    return ShardStatistics.concatenate(parts)


def _verification(plan: Plan, shards: list[Shard], files: dict[str, Path]) -> xr.Dataset:
    spec = plan.spec
    options = {"replicates": spec.bootstrap, "seed": spec.seed}
    cells: list[dict[str, Any]] = []
    blocks = []
    for lead, hours in enumerate(plan.lead_hours):
        for v in plan.variables:
            reference = _merged(shards, files, lead, f"deterministic/{v}/")
            single = finalise(reference, [n for n in ("rmse", "acc") if _has(plan, n)], members=1, **options)
            # one block length a lead time and variable, from the deterministic errors: resamples are then shared by all ν
            block = int(single["block_length"])
            blocks.append(block)
            place = {"lead_time": hours, "variable": v}
            cells.append({"place": place, "single": {n: a for n, a in single.items() if n.split("_")[0] in ("rmse", "acc") and not n.endswith("_map")}})
            for nu in plan.nu:
                stats = _merged(shards, files, lead, f"{nu}/{v}/")
                values = finalise(stats, plan.scores, members=spec.members, block=block, **options)
                cells.append({"place": place | {"nu": nu}, "values": values})
    dataset = xr.merge([_labelled(plan, cell, shards) for cell in cells], join="outer", compat="no_conflicts")
    return _described(plan, dataset, files, shards, max(blocks))


def _has(plan: Plan, name: str) -> bool:
    return any(s.key == name for s in plan.scores)


def _labelled(plan: Plan, cell: dict[str, Any], shards: list[Shard]) -> xr.Dataset:
    """One (lead time, variable) or (ν, lead time, variable) with its dimensions, sizes 1 of those three in front."""
    place: dict[str, Any] = cell["place"]
    lead = plan.lead_hours.index(place["lead_time"])
    latitude, longitude = (plan.dataset.fields[n].values for n in ("latitude", "longitude"))
    coordinates: dict[str, Any] = {"lead_time": [place["lead_time"]], "variable": [place["variable"]], "region": list(plan.regions)}
    coordinates |= {"latitude": latitude, "longitude": longitude}
    if "nu" in place:
        coordinates["nu"] = [place["nu"]]
    variables: dict[str, Any] = {}
    front = ["nu"] if "nu" in place else []
    for name, array in (cell.get("values") or {}).items():
        tail = DIMENSIONS.get(name, ())
        if name.endswith("_map"):
            lead_dims = [] if name == "valid_map" else front
            variables[name] = ([*lead_dims, "lead_time", "variable", *tail, "latitude", "longitude"], array.reshape((1,) * (len(lead_dims) + 2) + array.shape))
        elif name == "valid_fraction":
            variables[name] = (["region", "lead_time", "variable"], array[:, None, None])
        elif name != "block_length":
            tail = ("case",) if name.endswith("_case") else tail
            variables[name] = ([*front, "region", "lead_time", "variable", *tail], array.reshape((1, len(array), 1, 1, *array.shape[1:])))
    for name, array in (cell.get("single") or {}).items():
        stem, _, end = name.partition("_")
        if end != "case":
            variables[f"{stem}_deterministic{'_' + end if end else ''}"] = (["region", "lead_time", "variable"], array[:, None, None])
    if any(name.endswith("_case") for name in variables):
        ordered = sorted((c for s in shards if s.split == "verify" and s.lead == lead for c in s.cases), key=lambda c: c.id)
        coordinates["case"] = np.arange(len(ordered))
    return xr.Dataset(variables, coordinates)


def _described(plan: Plan, dataset: xr.Dataset, files: dict[str, Path], shards: list[Shard], block: int) -> xr.Dataset:
    spec = plan.spec
    seconds = np.zeros(len(plan.nu))
    for shard in shards:
        if shard.split == "verify":
            with np.load(files[shard.name], allow_pickle=False) as file:
                seconds += file["seconds"]
    dataset["seconds"] = ("nu", seconds, {"units": "s", "long_name": "time of all member forwards at this ν"})
    ordered = sorted(plan.cases[0], key=lambda c: c.id)
    dataset = dataset.assign_coords(
        init_time=("case", [c.init_time for c in ordered]),
        valid_time=("case", [c.valid_time for c in ordered]),
        level=list(LEVELS),
        unit=("variable", [plan.backbone.out_units[plan.backbone.out_variables.index(v)] for v in dataset["variable"].values]),
        threshold_value=(("variable", "threshold"), [list(plan.thresholds[str(v)]) for v in dataset["variable"].values]),
    )
    for score in plan.scores:
        if score.key in dataset:
            unit = "" if score.unit == "variable" else score.unit
            dataset[score.key].attrs.update(
                title=score.title, symbol=score.symbol, units=unit, better=score.better, perfect=score.perfect, estimator=score.estimator, reference=score.reference
            )
    points = operating.choose(plan, dataset, [files[s.name] for s in shards if s.split == "calibrate"])
    dataset.attrs = {
        "command": spec.command(),
        "spec": spec.model_dump_json(),
        "members": spec.members,
        "seed": spec.seed,
        "cases": len(plan.cases[0]),
        "method": spec.method,
        "estimator": "fair CRPS; quantile intervals from linear quantiles of the members",
        "version": engine.__version__,
        "checkpoint_revision": plan.backbone.revision,
        "dataset_fingerprint": plan.dataset.fingerprint,
        "changes": json.dumps(list(plan.dataset.changes), ensure_ascii=False),
        "nominal_95": perfect_coverage(spec.members, 95),
        "operating_points": json.dumps(points, ensure_ascii=False),
        "block_length": block,
        "bootstrap": spec.bootstrap,
        "regions": json.dumps(dict(plan.regions)),
        "title": spec.title,
    }
    return dataset


def _write_fields(plan: Plan, shards: list[Shard], files: dict[str, Path], path: Path) -> None:
    """Maps of single cases, one lead time after another (`map_case` positions are those of the first lead time's cases)."""
    parts = []
    for lead, hours in enumerate(plan.lead_hours):
        kept: dict[str, list[NDArray]] = {}
        for shard in shards:
            if shard.split == "verify" and shard.lead == lead:
                with np.load(files[shard.name], allow_pickle=False) as file:
                    for name in file.files:
                        if name.startswith("map:"):
                            kept.setdefault(name.removeprefix("map:"), []).append(file[name])
        if not kept:
            continue
        arrays = {name: np.concatenate(a) for name, a in kept.items()}
        known = {c.id: c for c in plan.cases[lead]}
        cases = [known[int(i)] for i in arrays.pop("map_case")]
        parts.append(_fields_of(plan, hours, cases, arrays))
    dataset = xr.concat(parts, dim="lead_time", join="outer") if len(parts) > 1 else parts[0]
    chunks = {n: (1,) * (v.ndim - 2) + tuple(v.shape[-2:]) for n, v in dataset.data_vars.items()}
    _write(dataset, path, {str(n): {"zlib": True, "complevel": 2, "shuffle": True, "chunksizes": c} for n, c in chunks.items()})


def _fields_of(plan: Plan, hours: float, cases: list[Any], arrays: dict[str, NDArray]) -> xr.Dataset:
    order = {"observed": ("map_case", "variable"), "deterministic": ("map_case", "variable"), "mean": ("map_case", "nu", "variable")}
    order |= {"quantiles": ("map_case", "nu", "variable", "quantile")}
    final = {"mean": ("nu", "variable", "map_case"), "quantiles": ("nu", "variable", "map_case", "quantile")}
    variables = {}
    for name, array in arrays.items():
        labelled = xr.Variable((*order[name], "latitude", "longitude"), array)
        wanted = final.get(name, ("variable", "map_case"))
        labelled = labelled.transpose(*wanted, "latitude", "longitude")
        at = 1 if "nu" in wanted else 0
        variables[name] = labelled.expand_dims("lead_time").transpose(*wanted[:at], "lead_time", *wanted[at:], "latitude", "longitude")
    fields = plan.dataset.fields
    coordinates = {
        "nu": list(plan.nu), "lead_time": [hours], "variable": list(plan.variables), "quantile": list(FAN), "map_case": np.arange(len(cases)),
        "latitude": fields["latitude"].values, "longitude": fields["longitude"].values,
        "init_time": ("map_case", [c.init_time for c in cases]), "valid_time": ("map_case", [c.valid_time for c in cases]),
        "unit": ("variable", [plan.backbone.out_units[o] for o in plan.outputs]),
    }  # fmt: skip
    return xr.Dataset(variables, coordinates)
