"""The rows that the command line prints and tables show: one object a ν, from a Verification."""

import json
from typing import TYPE_CHECKING, Any

from engine.judging import operating_points

if TYPE_CHECKING:
    import xarray as xr

SAID = ("here", "chosen_for")
"""What is added to a point where it is shown, and is no part of it."""
COLUMNS = ("w1_pit", "coverage_95", "width_95", "crps_fair", "rmse", "acc", "spread_skill_ratio")


def rows(
    verification: "xr.Dataset", *, region: str | None = None, lead_time: float | None = None, variable: str | None = None
) -> list[dict[str, Any]]:
    """One row a ν with value, low and high of each score, for one region, lead time and variable (default: the first).

    The headline scores stand first, then whatever else the run computed that is one number.
    """
    region = str(verification.region.values[0]) if region is None else region
    lead_time = float(verification.lead_time[0]) if lead_time is None else lead_time
    variable = str(verification.variable.values[0]) if variable is None else variable
    one = verification.sel(region=region, lead_time=lead_time, variable=variable)
    others = (str(n) for n, v in one.data_vars.items() if v.dims == ("nu",) and f"{n}_low" in one and n not in COLUMNS)
    names = [n for n in (*COLUMNS, *others) if n in one]
    listing = []
    for nu in one.nu.values:
        at = one.sel(nu=nu)
        scores = {n: {"value": float(at[n]), "low": float(at[f"{n}_low"]), "high": float(at[f"{n}_high"])} for n in names}
        listing.append({"nu": int(nu), "members": int(one.attrs["members"]), **scores, "seconds": float(at.seconds)})
    return listing


def document(verification: "xr.Dataset") -> dict[str, Any]:
    """The JSON answer of `demo` and `sweep`."""
    first = verification.isel(lead_time=0, variable=0)
    reference = {n: float(first.isel(region=0)[n]) for n in ("rmse_deterministic", "acc_deterministic") if n in first}
    return {
        "key": verification.attrs["key"],
        "variable": str(first.variable.values),
        "unit": str(first.unit.values),
        "lead_hours": float(first.lead_time),
        "region": str(first.region.values[0]),
        "cases": int(verification.attrs["cases"]),
        "nominal_95": float(verification.attrs["nominal_95"]),
        "deterministic": reference,
        "operating_points": {n: {k: p[k] for k in p if k not in SAID} for n, p in operating_points(verification).items()},
        "operating_points_elsewhere": json.loads(verification.attrs.get("operating_points_elsewhere") or "[]"),
        "method": verification.attrs["method"],
        "method_title": verification.attrs.get("method_title", verification.attrs["method"]),
        "command": verification.attrs["command"],
        "changes": json.loads(verification.attrs.get("changes", "[]")),
        "notes": json.loads(verification.attrs.get("notes", "[]")),
        "posthoc": json.loads(verification.attrs.get("posthoc") or "null"),
        "rows": rows(verification),
        "regions": {str(region): rows(verification, region=str(region)) for region in verification.region.values[1:]},
    }


def table(document: dict[str, Any]) -> str:
    """The same for people."""
    other = document.get("method", "stochastic_attention") != "stochastic_attention"  # a method without ν stands by its name
    head = ["method" if other else "ν", *COLUMNS, "seconds"]
    lines = [
        [
            document.get("method_title", document["method"]) if other else str(r["nu"]),
            *(f"{r[c]['value']:.4g}" if c in r else "–" for c in COLUMNS),
            f"{r['seconds']:.1f}",
        ]
        for r in document["rows"]
    ]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    about, members = f"{document['variable']} ({document['unit']}), {document['lead_hours']:g} h", document["rows"][0]["members"]
    text = [f"{about}, {document['region']}, {document['cases']} cases, M = {members}"]
    text += ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in [head, *lines]]
    text += [f"changed: {line}" for line in document["changes"] if "dimensions renamed" not in line]
    text += [f"note: {line}" for line in document["notes"]]
    if after := document["posthoc"]:
        text += [f"after {after['title']}: {after['guarantee']}"] + [f"  ν = {nu}: {said}" for nu, said in after["learned"].items()]
    listed = [document["operating_points"], *(d for d in document["operating_points_elsewhere"] if _at_first(d, document))]
    text += [point_line(name, point) for points in listed for name, point in points.items()]
    perfect, promised = "a perfect (Gaussian) ensemble of this M covers", after and after["intervals"]
    text.append(f"{after['title'] + ', promised:' if promised else perfect} {document['nominal_95']:.1%} with its central 95 % interval")
    text.append(f"run {document['key']}")
    return "\n".join(text)


def point_line(name: str, point: dict[str, Any]) -> str:
    """`calibration-first: ν = 8 (least residual-scale loss; chosen on the calibrate split for T850, globe)`, and what to know of it."""
    ends = f" [{point['low']:g}, {point['high']:g}]" if point.get("low") is not None and point.get("high") is not None else ""
    place = f"{point['variable']}, {point['region']}, {point['lead_hours']:g} h"
    said = f"{name.replace('_', '-')}: ν = {point['nu']}{ends} ({point['rule']}; chosen on the {point['chosen_on']} split for {place})"
    return f"{said}; {point['remark']}" if point["remark"] else said


def _at_first(points: dict[str, Any], document: dict[str, Any]) -> bool:
    """Whether points are those of another variable at the region and lead time that a table is about."""
    return all(p["region"] == document["region"] and p["lead_hours"] == document["lead_hours"] for p in points.values())
