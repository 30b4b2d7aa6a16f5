"""The two operating points of a sweep, chosen on the calibration split wherever there is one.

    calibration-first   argmin of the residual-scale loss  L(ν) = mean (R − Z)²   over the grid (arXiv 2604.19530, reading "grid")
    score-oriented      argmin of fair CRPS

Points belong to a variable, a region and a lead time. On the calibration split they are chosen anew for each variable, over the
first region at the first lead time, on which that split is evaluated; without a calibration split they are read off the
verification, for each variable, region and lead time. What a sweep offers is the grid's own minimum; a calibration
(`engine.runs.calibrate`) refines it between the grid's values, and a sweep that verifies what a calibration found has its
points from there.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from engine.judging import POINTS, edge_remark
from engine.runs.landscape import Landscape
from engine.runs.plan import Plan
from engine.runs.scales import norm, parts, score
from engine.runs.tune import Tune

Points = dict[str, dict[str, Any]]


def choose(plan: Plan, verification: xr.Dataset, landscape: Landscape | None) -> tuple[Points, list[Points]]:
    """(points of the first variable, region and lead time; those of the others for which points were chosen anew).

    A point has `nu`, the split it was `chosen_on`, `variable`, `region` and `lead_hours` that it was chosen for, the `rule`, whether
    it stands at the `edge` of the grid, and then a `remark`. No points where nothing tells: without a valid point, or without the
    scores that they are chosen by.
    """
    if not plan.method.uses_nu:
        return {}, []
    first = {"variable": plan.variables[0], "region": next(iter(plan.regions)), "lead_hours": float(plan.lead_hours[0])}
    if plan.spec.chosen:
        found = {"chosen_on": "calibrate", **first, "rule": "found by a calibration", "edge": False, "remark": ""}
        return {name: {"nu": n} | found for name, n in plan.spec.chosen.items()}, []
    every = list(_on_calibration(plan, landscape, first) if landscape is not None else _on_verification(plan, verification))
    own = every[0] if every else {}
    return own, [points for points in every[1:] if points]


def _on_calibration(plan: Plan, landscape: Landscape, first: dict[str, Any]) -> Iterator[Points]:
    """Points of each variable."""
    evaluations = [landscape.evaluate(n) for n in plan.nu]
    scale = plan.backbone.output_sd[plan.outputs]
    for k, variable in enumerate(plan.variables):
        residual = norm(landscape.residual, scale, Tune(), [k])
        perturbation = np.stack([norm(e.square, scale, Tune(), [k]) for e in evaluations])  # (ν, case, member)
        # a case without one valid point says nothing
        seen = np.isfinite(residual)
        if not seen.any():
            yield {}
            continue
        loss = ((perturbation[:, seen] - residual[seen, None]) ** 2).mean(axis=(1, 2))
        crps = np.array([score(e.statistics[variable], "crps_fair") for e in evaluations])
        square = [parts((p[seen] ** 2).mean(axis=1), norm(e.shift, scale, Tune(), [k])[seen] ** 2, p.shape[1])
                  for p, e in zip(perturbation, evaluations, strict=True)]  # fmt: skip
        shift, spread = (np.sqrt(np.maximum([part[i].mean() for part in square], 0.0)) for i in (0, 1))
        target = np.full(len(plan.nu), residual[seen].mean())
        curves = {"loss": loss, "crps_fair": crps, "scale": perturbation[:, seen].mean(axis=(1, 2)), "target_scale": target}
        curves |= {"shift": shift, "spread": spread}
        about = {"chosen_on": "calibrate", **first, "variable": variable}
        yield _points(list(plan.nu), loss, crps, about, "least residual-scale loss", curves)


def _on_verification(plan: Plan, verification: xr.Dataset) -> Iterator[Points]:
    """Points of each variable, region and lead time. There is nothing else to choose on; it is said wherever a point is shown."""
    if "w1_pit" not in verification or "crps_fair" not in verification:
        return
    for lead in plan.lead_hours:
        for variable in plan.variables:
            for region in plan.regions:
                at = verification.sel(nu=list(plan.nu), lead_time=lead, variable=variable, region=region)
                about = {"chosen_on": "verify", "variable": variable, "region": region, "lead_hours": float(lead)}
                rule = "least w1_pit (no calibration split was given)"
                yield _points(list(plan.nu), at["w1_pit"].values, at["crps_fair"].values, about, rule, {})


def _points(
    nu: list[int], loss: np.ndarray, crps: np.ndarray, about: dict[str, Any], rule: str, curves: dict[str, np.ndarray]
) -> Points:
    if np.isnan(loss).all() or np.isnan(crps).all():
        return {}
    table = {"curves": {name: [float(x) for x in values] for name, values in curves.items()}} if curves else {}
    found: Points = {}
    for name, values, by in zip(POINTS, (loss, crps), (rule, "least fair CRPS"), strict=True):
        at = int(np.nanargmin(values))
        edge = len(nu) > 1 and at in (0, len(nu) - 1)
        found[name] = {"nu": nu[at], **about, "rule": by, "edge": edge, "remark": edge_remark(nu[at], nu)}
    found["calibration_first"] |= table
    return found
