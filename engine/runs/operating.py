"""The two operating points of a sweep, chosen on the calibration split wherever there is one.

    calibration-first   argmin of the residual-scale loss  L(ν) = mean (R − Z)²   over the grid (arXiv 2604.19530, reading "grid")
    score-oriented      argmin of fair CRPS

What a sweep offers is the grid's own minimum; a calibration (`engine.runs.calibrate`) refines it between the grid's values,
and a sweep that verifies what a calibration found has its points from there.
"""

from typing import Any

import numpy as np
import xarray as xr

from engine.runs.landscape import Landscape
from engine.runs.plan import Plan
from engine.runs.scales import norm, score
from engine.runs.tune import Tune


def choose(plan: Plan, verification: xr.Dataset, landscape: Landscape | None) -> dict[str, dict[str, Any]]:
    """Both points: `nu`, the split it was `chosen_on`, the `rule`, and whether it stands at the `edge` of the grid.

    Neither where nothing tells: without a valid point, or without the scores that they are chosen by.
    """
    nu = list(plan.nu)
    if not plan.method.uses_nu:
        return {}
    if plan.spec.chosen:
        return {
            name: {"nu": n, "chosen_on": "calibrate", "rule": "found by a calibration", "edge": False}
            for name, n in plan.spec.chosen.items()
        }
    if landscape is not None:
        evaluations = [landscape.evaluate(n) for n in nu]
        scale = plan.backbone.output_sd[plan.outputs]
        residual = norm(landscape.residual, scale, Tune())
        perturbation = np.stack([norm(e.square, scale, Tune()) for e in evaluations])  # (ν, case, member)
        # a case without one valid point says nothing
        seen = np.isfinite(residual)
        if not seen.any():
            return {}
        loss = ((perturbation[:, seen] - residual[seen, None]) ** 2).mean(axis=(1, 2))
        crps = np.array([score(e.statistics[plan.variables[0]], "crps_fair") for e in evaluations])
        where, rule = "calibrate", "least residual-scale loss"
        target = np.full(len(nu), residual[seen].mean())
        curves = {"loss": loss, "crps_fair": crps, "scale": perturbation[:, seen].mean(axis=(1, 2)), "target_scale": target}
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
