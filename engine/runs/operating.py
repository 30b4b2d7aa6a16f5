"""The two operating points of a sweep, chosen on the calibration split wherever there is one.

    calibration-first   argmin of the residual-scale loss  L(ν) = mean (R − Z)²   over the grid (arXiv 2604.19530, reading "grid")
    score-oriented      argmin of fair CRPS

What a sweep offers is the grid's own minimum; it refines neither between the grid's values.
"""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from engine.runs.plan import Plan


def choose(plan: Plan, verification: xr.Dataset, files: list[Path]) -> dict[str, dict[str, Any]]:
    """Both points: `nu`, the split it was `chosen_on`, the `rule`, and whether it stands at the `edge` of the grid.

    Neither where nothing tells: without a valid point, or without the scores that they are chosen by.
    """
    nu = list(plan.nu)
    if files:
        parts = []
        for path in files:
            with np.load(path, allow_pickle=False) as file:
                parts.append({name: file[name] for name in file.files})
        joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        residual, perturbation = joined["residual"], joined["perturbation"]  # (case,), (case, nu, member)
        # a case without one valid point says nothing
        seen = np.isfinite(residual) & np.isfinite(joined["crps_fair"]).all(axis=1)
        if not seen.any():
            return {}
        residual, perturbation = residual[seen], perturbation[seen]
        loss = ((perturbation - residual[:, None, None]) ** 2).mean(axis=(0, 2))
        crps = joined["crps_fair"][seen].mean(axis=0)
        where, rule = "calibrate", "least residual-scale loss"
        curves = {
            "loss": loss,
            "crps_fair": crps,
            "scale": perturbation.mean(axis=(0, 2)),
            "target_scale": np.full(len(nu), residual.mean()),
        }
    else:
        first = verification.isel(region=0, lead_time=0, variable=0)
        if "w1_pit" not in first or "crps_fair" not in first:
            return {}
        loss, crps = (first[n].sel(nu=nu).values for n in ("w1_pit", "crps_fair"))
        if np.isnan(loss).all() or np.isnan(crps).all():
            return {}
        # without a calibration split there is nothing else to choose on; it is said wherever the point is shown
        where, rule, curves = "verify", "least w1_pit (no calibration split was given)", {}
    table = {name: [float(x) for x in values] for name, values in curves.items()}
    return {
        "calibration_first": _point(nu, loss, where, rule) | {"curves": table},
        "score_oriented": _point(nu, crps, where, "least fair CRPS"),
    }


def _point(nu: list[int], values: np.ndarray, where: str, rule: str) -> dict[str, Any]:
    at = int(np.nanargmin(values))
    return {"nu": nu[at], "chosen_on": where, "rule": rule, "edge": len(nu) > 1 and at in (0, len(nu) - 1)}
