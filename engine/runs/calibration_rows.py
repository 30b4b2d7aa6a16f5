"""What `calibrate` answers: its rows and points as a JSON document and as a table, and the verification that follows."""

import json
from typing import TYPE_CHECKING, Any

from engine.judging import operating_points
from engine.runs.calibration import verification_spec
from engine.runs.rows import COLUMNS, SAID

if TYPE_CHECKING:
    import xarray as xr


def verified(calibration: "xr.Dataset", on_progress: Any = None) -> dict[str, Any]:
    """Run the verification of a calibration in this process: a sweep's answer, with the layers' gain where there are layers."""
    from engine.runs import jobs, rows

    spec = verification_spec(calibration)
    answer = rows.document(jobs.run(spec, on_progress))
    if calibration.attrs["per_layer"]:
        jobs.run(verification_spec(calibration, per_layer=True), on_progress)
        answer["per_layer"] = layers_gain(calibration)
    return answer


def layers_gain(calibration: "xr.Dataset") -> dict[str, Any]:
    """Each block's own ν against the shared one on the verification split: both runs must be done."""
    from engine.runs.paired import differences

    shared, own = (verification_spec(calibration, per_layer=layers).resolved().key() for layers in (False, True))
    nu = int(json.loads(calibration.attrs["per_layer"])["shared"])
    return {"run": own, "shared_run": shared, "nu": nu, "scores": differences((shared, nu), (own, nu))}


def gain_text(verification: dict[str, Any]) -> str:
    """The layers' gain for people; nothing where none was asked for."""
    if "per_layer" not in verification:
        return ""
    lines = [f"\n\na ν for each block against the shared ν = {verification['per_layer']['nu']}, on the verification split:"]
    for name, found in verification["per_layer"]["scores"].items():
        change = found["difference"]
        verdict = "" if change["real"] else "  (within its noise)"
        ends = f"[{change['low']:+.4g}, {change['high']:+.4g}]"
        lines.append(f"{name}: {found['one']:.4g} → {found['other']:.4g}, {change['value']:+.4g} {ends}{verdict}")
    return "\n".join(lines)


def document(calibration: "xr.Dataset") -> dict[str, Any]:
    """The JSON answer of `calibrate`: rows as those of a sweep, but on the calibration split and with the scales beside."""
    attrs = calibration.attrs
    names = [n for n in COLUMNS if n in calibration] + ["nll_gaussian", "loss", "scale", "shift", "spread"]
    rows = []
    for nu in calibration.nu.values:
        at = calibration.sel(nu=nu)
        values = {n: {end or "value": float(at[f"{n}_{end}" if end else n]) for end in ("", "low", "high")} for n in names if n in at}
        rows.append({"nu": int(nu), "members": int(attrs["members"]), "passes": int(at.passes), **values, "seconds": float(at.seconds)})
    readings = {
        str(r): {"nu": int(one.reading_nu), "low": float(one.reading_low), "high": float(one.reading_high), "loss": float(one.reading_loss)}
        for r in calibration.reading.values
        for one in [calibration.sel(reading=r)]
    }
    target = {n: float(calibration[f"target_scale{e}"]) for n, e in (("value", ""), ("low", "_low"), ("high", "_high"))}
    surrogate = {n: attrs[n] for n in ("slope", "slope_low", "slope_high", "rounds", "stop")} | {"passes": calibration.sizes["evaluation"]}
    return {
        "key": attrs["key"],
        "split": "calibrate",
        "variable": attrs["variable"],
        "unit": attrs["unit"],
        "lead_hours": attrs["lead_hours"],
        "region": attrs["region"],
        "cases": attrs["cases"],
        "nominal_95": attrs["nominal_95"],
        "norm": attrs["norm"],
        "scale_unit": attrs["scale_unit"],
        "objective": attrs["objective"],
        "target_scale": target,
        "surrogate": surrogate,
        "readings": readings,
        "operating_points": {n: {k: p[k] for k in p if k not in SAID} for n, p in operating_points(calibration).items()},
        "warnings": json.loads(attrs["warnings"]),
        "periods": json.loads(attrs["periods"]),
        "per_layer": json.loads(attrs["per_layer"] or "null"),
        "seconds": float(calibration["seconds"].sum()),
        "command": attrs["command"],
        "changes": json.loads(attrs["changes"]),
        "notes": json.loads(attrs["notes"]),
        "rows": rows,
    }


def table(answer: dict[str, Any]) -> str:
    """The same for people."""
    shown = ("scale", "shift", "spread", "loss", "w1_pit", "coverage_95", "crps_fair", "spread_skill_ratio")
    head = ["ν", "passes", *shown]
    lines = [[str(r["nu"]), str(r["passes"]), *(f"{r[c]['value']:.4g}" if c in r else "–" for c in shown)] for r in answer["rows"]]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    about = f"{answer['variable']} ({answer['unit']}), {answer['lead_hours']:g} h, calibration split: {answer['cases']} cases"
    text = [f"{about}, ensembles of {answer['rows'][0]['members']}, {answer['norm']}"]
    text += ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *lines]]
    target = answer["target_scale"]
    text.append(f"the frozen model errs by {target['value']:.4g} [{target['low']:.4g}, {target['high']:.4g}] {answer['scale_unit']}")
    fit = answer["surrogate"]
    text.append(f"ln scale falls by {fit['slope']:.3f} [{fit['slope_low']:.3f}, {fit['slope_high']:.3f}] a unit of ln ν; {fit['stop']}")
    text += [f"reading {n}: ν = {r['nu']} {_ends(r)}, loss {r['loss']:.4g}" for n, r in answer["readings"].items()]
    if layers := answer["per_layer"]:
        listed = ", ".join(f"{n} {nu}" for n, nu in layers["groups"].items())
        text.append(
            f"by layer: {listed}; {layers['objective']} {layers['value']:.4g} against {layers['value_shared']:.4g} with the shared ν"
        )
    text += [
        f"{n.replace('_', '-')}: ν = {p['nu']} {_ends(p)}: {p['rule']} ({p['variable']}, {p['region']}, {p['lead_hours']:g} h)"
        f"{'; ' if p['remark'] else ''}{p['remark']}"
        for n, p in answer["operating_points"].items()
    ]
    members, perfect = answer["rows"][0]["members"], answer["nominal_95"]
    text.append(f"a perfect (Gaussian) ensemble of {members} covers {perfect:.1%} with its central 95 % interval")
    text += [f"warning: {w['text']}" for w in answer["warnings"]]
    text += [f"changed: {line}" for line in answer["changes"] if "dimensions renamed" not in line]
    text += [f"note: {line}" for line in answer["notes"]]
    return "\n".join([*text, f"run {answer['key']}"])


def _ends(found: dict[str, Any]) -> str:
    """An interval of ν, where one is known."""
    low, high = found["low"], found["high"]
    return "(no interval is known)" if low is None or low != low else f"[{low:g}, {high:g}]"
