"""From what a calibration found to `calibration.nc` (the schema is in `engine.runs.calibration`)."""

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

import engine
from engine.errors import CalibrationError
from engine.judging import edge_remark
from engine.kernels import long_run, tuner
from engine.kernels.quantiles import perfect_coverage
from engine.registry import get
from engine.runs.calibrate import Found
from engine.runs.scales import influences, pit_floor
from engine.runs.tune import READINGS, Tune
from engine.runs.warned import warnings
from engine.types import Array, Case

CURVE = 80
"""Points of the drawn fit."""


def dataset(found: Found) -> xr.Dataset:
    """The whole result; `key` is added by who writes it."""
    scales, plan = found.scales, found.scales.landscape.plan
    spec, asked = plan.spec, found.scales.tune
    nus = np.array(scales.nus)
    variables, ends = _per_nu(found, nus), _intervals(found)
    curve = np.geomspace(1, asked.nu_max, CURVE)
    mean, low, high = tuned_band(found, curve)
    variables |= {name: ("curve_nu", values) for name, values in (("fit", mean), ("fit_low", low), ("fit_high", high))}
    passes = found.tuned.evaluations
    variables |= {
        "evaluation_nu": ("evaluation", [e.nu for e in passes]),
        # of a reading by example the mean over examples is shown: what the pass gave as a whole
        "evaluation_scale": ("evaluation", [float(np.mean(e.scale)) for e in passes], {"units": scale_unit(found)}),
        "evaluation_round": ("evaluation", [e.round for e in passes]),
        "reading_nu": ("reading", [found.readings[r] for r in READINGS]),
        "reading_low": ("reading", [ends[r][0] for r in READINGS]),
        "reading_high": ("reading", [ends[r][1] for r in READINGS]),
        "reading_loss": ("reading", [float(scales.loss(found.readings[r]).mean()) for r in READINGS]),
    }
    variables |= _with_interval("target_scale", scales.target.mean(), scales.target)
    cases = [c for c, seen in zip(plan.calibrate, scales.seen, strict=True) if seen]
    coordinates: dict[str, Any] = {
        "nu": nus,
        "evaluation": np.arange(len(passes)),
        "curve_nu": curve,
        "reading": list(READINGS),
        "case": np.arange(len(cases)),
        "init_time": ("case", [c.init_time for c in cases]),
        "valid_time": ("case", [c.valid_time for c in cases]),
    }
    slope_low, slope_high = found.tuned.fit.slope_interval()
    attrs = {
        "command": spec.command(),
        "spec": spec.model_dump_json(),
        "title": spec.title,
        "version": engine.__version__,
        "method": spec.method,
        "seed": spec.seed,
        "checkpoint_revision": plan.backbone.revision,
        "dataset_fingerprint": plan.dataset.fingerprint,
        "members": spec.calibrate_members,
        "cases": scales.cases,
        "variable": plan.variables[0],
        "unit": plan.backbone.out_units[plan.outputs[0]],
        "lead_hours": float(plan.lead_hours[0]),
        "region": next(iter(plan.regions)),
        "nominal_95": perfect_coverage(spec.calibrate_members, 95),
        "norm": f"{asked.norm} units, {'area weighted' if asked.area_weighted else 'every point alike'}{_over(found)}",
        "scale_unit": scale_unit(found),
        "objective": asked.objective,
        "nu_max": asked.nu_max,
        "slope": found.tuned.fit.slope,
        "slope_low": slope_low,
        "slope_high": slope_high,
        "rounds": found.tuned.rounds,
        "stop": found.tuned.stop,
        "block_length": scales.block,
        "bootstrap": spec.bootstrap,
        "changes": json.dumps(list(plan.dataset.changes), ensure_ascii=False),
        "notes": json.dumps(list(plan.notes), ensure_ascii=False),
        "operating_points": json.dumps(_points(found, ends), ensure_ascii=False),
        "warnings": json.dumps(warnings(found), ensure_ascii=False),
        "periods": json.dumps({"calibrate": _period(plan.calibrate), "verify": _period(plan.cases[0])}, ensure_ascii=False),
        "per_layer": json.dumps(found.per_layer, ensure_ascii=False) if found.per_layer else "",
        "estimator": "mean over passes and cases of (R − Z)²; scores of ensembles of the stated members, averaged",
    }
    return xr.Dataset(variables, coordinates, attrs)


def _over(found: Found) -> str:
    """Which outputs the scales are taken over, where they are not simply those that the scores are about."""
    names = [found.scales.landscape.plan.variables[v] for v in found.scales.variables]
    return "" if names == [found.scales.landscape.plan.variables[0]] else f", over {', '.join(names)}"


def scale_unit(found: Found) -> str:
    """What the scales are measured in."""
    plan = found.scales.landscape.plan
    if found.scales.tune.norm == "normalised":
        return "standard deviations"
    return plan.backbone.out_units[plan.outputs[found.scales.variables[0]]]


def tuned_band(found: Found, curve: Array) -> tuple[Array, Array, Array]:
    """The fit's mean scale over `curve` with its posterior band."""
    return found.tuned.fit.band(curve, np.random.default_rng([found.scales.landscape.plan.spec.seed, 0xBA4D]))


def _with_interval(
    name: str,
    value: Any,
    influence: Array,
    dims: str | tuple[()] = (),
    attrs: dict[str, Any] | None = None,
    bounds: tuple[float, float] = (-np.inf, np.inf),
    floor: ArrayLike = 0.0,
) -> dict[str, Any]:
    """`influence` `(case, *dims)`, how far each case moves the value; `floor`: how far the value may be biased upwards."""
    half = long_run.error_of_mean(influence).half
    low, high = long_run.interval(np.asarray(value), half, bounds)
    if np.any(floor):
        low, high = np.maximum(value - half - floor, bounds[0]), np.minimum(value + half, bounds[1])
    return {name: (dims, np.asarray(value), attrs or {}), f"{name}_low": (dims, low), f"{name}_high": (dims, high)}


def _per_nu(found: Found, nus: Array) -> dict[str, Any]:
    """Scale, loss and scores at every ν that was evaluated."""
    scales = found.scales
    variables: dict[str, Any] = {
        "passes": ("nu", [len(scales.all_at(nu)) * scales.landscape.plan.spec.calibrate_members for nu in nus]),
        "seconds": ("nu", [sum(e.seconds for e in scales.all_at(nu)) for nu in nus], {"units": "s"}),
    }
    for name, of_case in (("scale", [scales.passes(nu).mean(axis=1) for nu in nus]), ("loss", [scales.loss(nu) for nu in nus])):
        each = np.stack(of_case, axis=1)  # (case, ν)
        variables |= _with_interval(name, each.mean(axis=0), each, "nu", bounds=(0.0, np.inf))
    for name, k in (("shift", 0), ("spread", 1)):  # roots of means: their squares add up to the mean square departure
        each = np.stack([scales.parts(nu)[k] for nu in nus], axis=1)
        half, value = long_run.error_of_mean(each).half, each.mean(axis=0)
        low, high = long_run.interval(value, half, (0.0, np.inf))  # of the square: a shift of nearly nothing has no slope at its root
        ends = {"": value, "_low": low, "_high": high}
        variables |= {name + end: ("nu", np.sqrt(np.maximum(square, 0.0))) for end, square in ends.items()}
    for key in scales.landscape.scores:
        entry = get("scoring", key)
        both = [influences(scales.statistics(nu), key) for nu in nus]
        floor = np.array([pit_floor(scales.statistics(nu)) for nu in nus]) if key == "w1_pit" else 0.0
        about = {"title": entry.title, "symbol": entry.symbol, "units": "" if entry.unit == "variable" else entry.unit}
        about |= {"better": entry.better, "perfect": entry.perfect, "estimator": entry.estimator, "reference": entry.reference}
        value, moved = np.array([v for v, _ in both]), np.stack([m for _, m in both], axis=1)
        variables |= _with_interval(key, value, moved, "nu", about, entry.range, floor)
    return variables


def _intervals(found: Found) -> dict[str, tuple[float, float]]:
    """95 % interval of each reading's and each searched score's ν; NaN where none is known."""
    scales, asked = found.scales, found.scales.tune
    passes = found.tuned.evaluations
    nu = np.array([e.nu for e in passes])
    per_pass = np.stack([scales.one_pass(e.nu, e.k) for e in passes])
    ends: dict[str, tuple[float, float]] = {}
    for reading in ("scale", "per_example"):
        try:
            low, high, _ = tuner.interval(
                nu, per_pass, scales.target, blocks=scales.block, replicates=scales.replicates, seed=scales.landscape.plan.spec.seed,
                nu_max=asked.nu_max, reading=reading,
            )  # fmt: skip
            ends[reading] = (float(low), float(high))
        except CalibrationError:  # too few blocks of cases, or no line: then no interval is known, which is said
            ends[reading] = (np.nan, np.nan)
    nus = [n for n in scales.nus if n <= asked.nu_max]
    losses = scales.resampled @ np.stack([scales.loss(n) for n in nus], axis=1)
    ends["grid"] = _argmin_interval(nus, losses)
    for key in found.scored:
        ends[key] = _argmin_interval(nus, np.stack([scales.objective(n, key, scales.resampled) for n in nus], axis=1))
    return ends


def _argmin_interval(nus: list[int], replicates: Array) -> tuple[float, float]:
    """Where the least of each replicate `(replicate, ν)` lies, central 95 %."""
    at = np.array(nus)[np.nanargmin(np.where(np.isnan(replicates), np.inf, replicates), axis=1)]
    low, high = np.quantile(at, [0.025, 0.975], method="inverted_cdf")
    return float(low), float(high)


def _points(found: Found, ends: dict[str, tuple[float, float]]) -> dict[str, dict[str, Any]]:
    asked: Tune = found.scales.tune
    rules = {
        "scale": "the members' mean departure matches the frozen model's mean error",
        "per_example": "every example's departure matches the frozen model's mean error",
        "grid": "least residual-scale loss, looked at directly",
        "w1_pit": "least distance of the PIT from uniform",
        "crps_fair": "least fair CRPS",
        "coverage_95": "coverage of the 95 % interval nearest to that of a perfect ensemble of as many members",
        "nll_gaussian": "least Gaussian negative log-likelihood",
    }
    first = asked.objective
    return {
        "calibration_first": _point(found, found.chosen(first), rules[first], ends[first], by_scale=first in ("scale", "per_example")),
        "score_oriented": _point(found, found.scored["crps_fair"], rules["crps_fair"], ends["crps_fair"]),
    }


def _point(found: Found, nu: int, rule: str, ends: tuple[float, float], *, by_scale: bool = False) -> dict[str, Any]:
    scales = found.scales
    low, high = (None if np.isnan(e) else int(e) for e in ends)
    at = {key: float(scales.score(nu, key)) if key in scales.landscape.scores else None for key in ("w1_pit", "crps_fair", "coverage_95")}
    at = {key: None if value is None or not np.isfinite(value) else value for key, value in at.items()}
    plan, edge = scales.landscape.plan, nu in (1, scales.tune.nu_max)
    place = {"variable": plan.variables[0], "region": next(iter(plan.regions)), "lead_hours": float(plan.lead_hours[0])}
    said = {"rule": rule, "edge": edge, "remark": edge_remark(nu, (1, scales.tune.nu_max), by_scale=by_scale)}
    return {"nu": nu, "low": low, "high": high, "chosen_on": "calibrate"} | place | said | at


def _period(cases: tuple[Case, ...]) -> dict[str, Any] | None:
    if not cases:
        return None
    return {"first": cases[0].init_time, "last": cases[-1].valid_time, "cases": len(cases)}
