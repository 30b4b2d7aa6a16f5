"""A figure of the catalogue, by its key: drawn for the screen, put into words, or exported as a file.

Figures read a Verification. Those that also draw single cases take the run's `fields`; they are opened here, and only
when asked for, so that a page never handles a large file.
"""

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.errors import ExportError, RunError
from engine.registry import get
from engine.runs.store import folder

if TYPE_CHECKING:
    import xarray as xr

MIME = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv; charset=utf-8", "nc": "application/x-netcdf"}


@contextmanager
def _with_fields(entry: Any, verification: "xr.Dataset", select: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The selections, with the run's fields added where the figure takes them; None where the run stored no maps."""
    kind = "calibration" if "curve_nu" in verification.dims else "classification" if "entry" in verification.dims else "verification"
    if entry.reads != kind:
        raise ExportError(
            f"figure {entry.key}",
            found=f"the result of a {kind}",
            expected=f"that of a {entry.reads}",
            remedy="Open the run on its own page: pictures of ν* on Calibrate, of class labels on Classify, all others on the other pages.",
        )
    if "fields" in select or not getattr(entry, "needs_fields", False):
        yield select
        return
    from engine.runs.verification import open_fields

    try:
        fields = open_fields(folder(str(verification.attrs["key"])))
    except RunError:
        yield select | {"fields": None}
        return
    with fields:
        yield select | {"fields": fields}


def draw(figure: str, verification: "xr.Dataset", *, dark: bool = False, **select: Any) -> Any:
    """The figure for the screen, a `plotly.graph_objects.Figure` without its texts.

    Title, subtitle, footer and the text alternative `words` are in `figure.layout.meta`, as plain text: a page sets them as
    text that wraps with the window and can be read aloud, where a drawing's would be cut into fixed lines.
    """
    entry = get("figures", figure)
    with _with_fields(entry, verification, select) as chosen:
        screen = entry.screen(verification, dark=dark, **chosen)
        return screen.update_layout(meta={"words": entry.describe(verification, **chosen)} | _lift_texts(screen))


def _lift_texts(screen: Any) -> dict[str, str]:
    """Take title, subtitle and footer out of a drawing and close the room they took. What is not laid out that way stays."""
    layout, texts = screen.layout, {}
    heading = re.fullmatch(r"<b>(.*?)</b>(?:<br><span[^>]*>(.*)</span>)?", layout.title.text or "", re.DOTALL)
    if heading:
        texts |= {"title": _text(heading[1]), "subtitle": _text(heading[2] or "")}
        above = any(a.yref == "paper" and a.yanchor == "bottom" for a in layout.annotations) or layout.showlegend
        top = 36 if above else 12
        screen.update_layout(title_text="", height=layout.height - layout.margin.t + top, margin_t=top)
    feet = [
        a for a in layout.annotations if a.yref == "paper" and a.xref == "paper" and a.y == 0 and a.yanchor == "top" and (a.yshift or 0) < 0
    ]
    if len(feet) == 1:
        texts["footer"] = _text(feet[0].text)
        below = int(-feet[0].yshift)
        screen.layout.annotations = [a for a in layout.annotations if a is not feet[0]]
        screen.update_layout(height=screen.layout.height - layout.margin.b + below, margin_b=below)
    return texts


def _text(markup: str) -> str:
    """Plain text of a drawing's markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", markup.replace("<br>", " "))).strip()


def describe(figure: str, verification: "xr.Dataset", **select: Any) -> str:
    """The figure in words: its text alternative."""
    entry = get("figures", figure)
    with _with_fields(entry, verification, select) as chosen:
        return entry.describe(verification, **chosen)


def export(figure: str, verification: "xr.Dataset", fmt: str, *, dark: bool = False, **select: Any) -> tuple[bytes, str, str]:
    """The figure as a file: (content, file name, MIME type). `fmt`: png, svg, csv or nc; the name carries run and ν."""
    if fmt not in MIME:
        raise ExportError(
            f"export of {figure}", found=f"format {fmt!r}", expected=f"one of {', '.join(MIME)}", remedy="Choose one of these formats."
        )
    from engine.figures._export import origin, to_csv, to_netcdf, to_png, to_svg

    entry = get("figures", figure)
    with _with_fields(entry, verification, select) as chosen:
        source = origin(verification, entry.title)
        if fmt in ("png", "svg"):
            write = to_png if fmt == "png" else to_svg
            content = write(entry.page(verification, dark=dark, **chosen), source)
        elif fmt == "csv":
            content = to_csv(entry.data(verification, **chosen))
        else:
            kept = {k: v for k, v in verification.attrs.items() if isinstance(v, str | int | float)}
            selected = {f"selected_{k}": str(v) for k, v in select.items() if v is not None and k != "fields"}
            content = to_netcdf(entry.data(verification, **chosen), kept | selected | source | {"figure": figure})
    return content, file_name(figure, verification, fmt, select), MIME[fmt]


def file_name(figure: str, verification: "xr.Dataset", fmt: str, select: dict[str, Any]) -> str:
    """A name by which a picture finds its run again: `nuscope_<run>_<figure>[_nu4].png`."""
    chosen = select.get("nu")
    nu = "" if chosen is None else "_nu" + ("-".join(map(str, chosen)) if isinstance(chosen, list | tuple) else str(chosen))
    which = "".join(f"_{str(select[n]).replace(':', '-')}" for n in ("which", "entry", "score") if select.get(n))
    return f"nuscope_{verification.attrs.get('key', 'run')}_{figure}{which}{nu}.{fmt}"
