"""One self-contained HTML file of a run: what it says, the table, the pictures, and the command that reproduces it.

Nothing in the file asks the network for anything, and nothing in it runs: a policy inside it forbids both.
"""

import base64
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ExportError, SpecError
from engine.judging import coverage_sentence
from engine.lexicon import at_nu, has_nu, title_of
from engine.registry import get
from engine.runs.picture import describe, export
from engine.runs.rows import COLUMNS, document, point_line

if TYPE_CHECKING:
    import xarray as xr

OVERVIEW = ("trade_off", "coverage_over_nu", "width_over_nu", "spread_skill_over_nu")
AT_NU = ("pit_histogram", "pit_ecdf", "reliability", "spread_skill")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2730; background: #fff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
figure { margin: 1.5rem 0 } img { max-width: 100% }
figcaption, .small { color: #5b6770; font-size: .875rem } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #dde3e8 }
pre { white-space: pre-wrap; background: #f4f6f8; padding: 1rem }
"""


def write_report(verification: "xr.Dataset", path: Path) -> None:
    """Write the report of one Verification to `path`; an existing file is replaced only when the new one is whole."""
    if "nu" not in verification.dims:
        kind = "classification" if "entry" in verification.dims else "calibration"
        raise ExportError(
            f"report of run {verification.attrs.get('key')}",
            found=f"a {kind}",
            expected="a sweep, which reports are made of",
            remedy=f"Open it in the app on the page {'Classify' if kind == 'classification' else 'Calibrate'}, or take the pictures and "
            f"{kind}.nc from there.",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(_page(verification), encoding="utf-8")
        part.replace(path)
    except OSError as fault:
        raise ExportError(
            f"report {path}", found=str(fault), expected="a place that can be written", remedy="Name another file with --out."
        ) from fault


def _page(verification: "xr.Dataset") -> str:
    answer = document(verification)
    points = answer["operating_points"]
    # a run without the scores that choose an operating point is shown at the middle of its grid
    nu = int(points["calibration_first"]["nu"]) if points else answer["rows"][len(answer["rows"]) // 2]["nu"]
    title = verification.attrs.get("title") or f"Run {answer['key']}"
    where = (
        f"{title_of(answer['variable'])}, {answer['lead_hours']:g} h ahead, {answer['cases']} cases, M = {verification.attrs['members']}"
    )
    at = next(r for r in answer["rows"] if r["nu"] == nu)
    uses_nu, name = has_nu(verification.attrs), at_nu(verification.attrs, nu)
    lead, says = f"{'At' if uses_nu else 'With'} {html.escape(name)}", ""
    if "coverage_95" in at:
        held = at["coverage_95"]
        says = f"<p>{lead} {html.escape(coverage_sentence(verification.attrs, held['value'], held['low'], held['high']))}.</p>"
    says += "".join(f"<p>{html.escape(point_line(name, point))}</p>" for name, point in points.items())
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(where)}</p>",
        says,
        f"<h2>How much to trust it{', over ν' if uses_nu else ''}</h2>",
        *(_figure(verification, key) for key in OVERVIEW),
        _table(answer, "ν" if uses_nu else html.escape(name)),
        f"<h2>{lead}</h2>",
        *(_figure(verification, key, nu=nu) for key in AT_NU),
        "<h2>How it was made</h2>",
        f"<pre>{html.escape(verification.attrs['command'])}</pre>",
        f"<pre class=small>{html.escape(json.dumps(json.loads(verification.attrs['spec']), indent=1, ensure_ascii=False))}</pre>",
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _figure(verification: "xr.Dataset", key: str, **select: Any) -> str:
    """The printed picture as an embedded SVG image (an image cannot run scripts), with its text alternative.

    Where the run lacks the scores that a picture needs, it says which, in its place.
    """
    try:
        drawn = base64.b64encode(export(key, verification, "svg", **select)[0]).decode()
        words = html.escape(describe(key, verification, **select))
    except SpecError as lacking:
        said = f"{get('figures', key).title}: not drawn; found {lacking.found}. {lacking.remedy}"
        return f"<p class=small>{html.escape(said)}</p>"
    return f'<figure><img alt="{words}" src="data:image/svg+xml;base64,{drawn}"><figcaption>{words}</figcaption></figure>'


def _table(answer: dict[str, Any], first: str) -> str:
    """`first`: "ν", or the name of a method that has none."""
    head = "".join(f"<th>{c}</th>" for c in ("ν" if first == "ν" else "method", *COLUMNS))
    body = ""
    for r in answer["rows"]:
        cells = "".join(
            f"<td>{r[c]['value']:.4g}<br><span class=small>{r[c]['low']:.4g} … {r[c]['high']:.4g}</span></td>" if c in r else "<td>–</td>"
            for c in COLUMNS
        )
        body += f"<tr><td>{r['nu'] if first == 'ν' else first}</td>{cells}</tr>"
    below = "<p class=small>below each value: its 95 % interval, for cases that hang together</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
