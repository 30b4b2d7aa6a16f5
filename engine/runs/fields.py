"""`fields.nc`: maps of single cases, beside `verification.nc` and read a slice at a time."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from engine.runs.plan import Plan, Shard
from engine.runs.verification import FAN

SPACE = ("latitude", "longitude")
KEPT = {
    "observed": ("variable",),
    "deterministic": ("variable",),
    "mean": ("nu", "variable"),
    "quantiles": ("nu", "variable", "quantile"),
}
"""Dimensions of what a shard keeps of a case's maps, between the case and the places."""
ORDER = ("nu", "lead_time", "variable", "map_case", "quantile", *SPACE)


def write_fields(plan: Plan, shards: list[Shard], files: dict[str, Path], path: Path) -> None:
    """Join the shards' maps. All lead times have the same initial times, so one `map_case` serves them all."""
    kept: list[dict[str, NDArray]] = []
    for lead in range(len(plan.lead_hours)):
        found: dict[str, list[NDArray]] = {}
        for shard in (s for s in shards if s.lead == lead):
            with np.load(files[shard.name], allow_pickle=False) as file:
                for name in file.files:
                    if name.startswith("map:"):
                        found.setdefault(name.removeprefix("map:"), []).append(file[name])
        kept.append({name: np.concatenate(arrays) for name, arrays in found.items()})
    variables = {}
    for name, middle in KEPT.items():
        joined = xr.DataArray(np.stack([of_lead[name] for of_lead in kept]), dims=("lead_time", "map_case", *middle, *SPACE))
        variables[name] = joined.transpose(*(d for d in ORDER if d in joined.dims))
    dataset = xr.Dataset(variables, _coordinates(plan, [of_lead["map_case"] for of_lead in kept]))
    chunks = {n: (1,) * (v.ndim - 2) + tuple(v.shape[-2:]) for n, v in dataset.data_vars.items()}
    write(dataset, path, {str(n): {"zlib": True, "complevel": 2, "shuffle": True, "chunksizes": c} for n, c in chunks.items()})


def _coordinates(plan: Plan, ids: list[NDArray]) -> dict[str, Any]:
    known = [{c.id: c for c in cases} for cases in plan.cases]
    cases = [[of_lead[int(i)] for i in chosen] for of_lead, chosen in zip(known, ids, strict=True)]
    valid = [[c.valid_time for c in of_lead] for of_lead in cases]
    return {n: plan.dataset.fields[n].values for n in SPACE} | {
        "nu": list(plan.nu),
        "lead_time": list(plan.lead_hours),
        "variable": list(plan.variables),
        "quantile": list(FAN),
        "map_case": np.arange(len(cases[0])),
        "init_time": ("map_case", [c.init_time for c in cases[0]]),
        "valid_time": ("map_case", valid[0]) if len(valid) == 1 else (("lead_time", "map_case"), valid),
        "unit": ("variable", [plan.backbone.out_units[o] for o in plan.outputs]),
    }


def write(dataset: xr.Dataset, path: Path, encoding: dict[str, Any]) -> None:
    """A NetCDF file that appears whole or not at all."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        dataset.to_netcdf(part, engine="h5netcdf", encoding=encoding)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
