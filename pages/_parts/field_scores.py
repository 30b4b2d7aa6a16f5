"""DIRECTOR on fields beside stochastic attention on the same forecasts: one row a method, each number with its interval."""

import html
from typing import TYPE_CHECKING, Any

import streamlit as st

from engine import judging
from pages._parts.cards import plain
from pages._parts.header import best_nu
from pages._parts.results import runs_that
from pages._parts.words import POINTS, number, percent

if TYPE_CHECKING:
    import xarray as xr

SAME = ("checkpoint", "data", "variables", "lead_hours", "max_cases", "members", "regions", "posthoc")
"""What two runs must share for their scores to be about the same forecasts."""
SHOWN = {
    "w1_pit": "Miscalibration, W₁(PIT)",
    "coverage_95": "Inside the 95% range",
    "crps_fair": "Fair CRPS",
    "spread_skill_ratio": "Spread / error",
}


def partner(run: Any) -> Any | None:
    """The newest finished run of stochastic attention on the same forecasts; None where there is none."""
    done = [r for r in runs_that(calibrate=False) if r.status == "done" and r.spec.get("method") == "stochastic_attention"]
    return next((r for r in done if all(r.spec.get(name) == run.spec.get(name) for name in SAME)), None)


def beside(mine: "xr.Dataset", other: "xr.Dataset | None") -> None:
    """The table, and what a perfect ensemble would reach."""
    where = {"region": str(mine.region.values[0]), "lead_time": float(mine.lead_time[0]), "variable": str(mine.variable.values[0])}
    at = mine.sel(**where)
    rows = [(str(mine.attrs.get("method_title", "DIRECTOR")), at.isel(nu=0))]
    if other is not None:
        points = judging.operating_points(other, **where) or {"": {"nu": best_nu(other, **where), "here": True}}
        for nu in dict.fromkeys(int(point["nu"]) for point in points.values()):
            names = [POINTS[name].lower() for name, point in points.items() if name and int(point["nu"]) == nu]
            said = f"Stochastic attention, ν = {nu}" + (f" ({' and '.join(names)})" if names else "")
            rows.append((said, other.sel(nu=nu, **where)))
    unit = str(at["unit"].item())
    scores = [name for name in SHOWN if all(name in row for _, row in rows)]
    heads = "".join(f"<th scope='col'>{SHOWN[n]}{f' ({html.escape(unit)})' if n == 'crps_fair' else ''}</th>" for n in scores)
    body = "".join(f"<tr><th scope='row'>{html.escape(said)}</th>{''.join(_cell(name, row) for name in scores)}</tr>" for said, row in rows)
    st.html(f"<div class='nu-wide'><table class='nu-scores'><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table></div>")
    perfect = mine.attrs.get("nominal_95")
    words = judging.aim(mine.attrs)[1]
    target = f" {words[0].upper()}{words[1:]} inside the 95% range; right for spread / error is 1." if perfect else ""
    if other is not None and (said := judging.where_chosen({n: p for n, p in points.items() if n})):
        target += f" Operating points: {said[0].lower()}{said[1:]}."
    plain(f"Beneath each value its 95% interval over {mine.attrs.get('cases', '?')} cases, which hang together.{target}")


def _cell(name: str, row: "xr.Dataset") -> str:
    say = percent if name == "coverage_95" else number
    value, low, high = (say(float(row[f"{name}{end}"])) for end in ("", "_low", "_high"))
    return f"<td>{value}<small>{low} … {high}</small></td>"
