"""A figure of the catalogue, by its key: drawn for the screen, put into words, or exported as a file.

Figures read a Verification. Those that also draw single cases take the run's `fields`; they are opened here, and only
when asked for, so that a page never handles a large file.
"""

import html
import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import ExportError, RunError
from engine.registry import get
from engine.runs.store import folder

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

MIME = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv; charset=utf-8", "nc": "application/x-netcdf"}
DPI = 200
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@contextmanager
def _with_fields(entry: Any, verification: "xr.Dataset", select: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The selections, with the run's fields added where the figure takes them; None where the run stored no maps."""
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
    entry = get("figures", figure)
    with _with_fields(entry, verification, select) as chosen:
        if fmt in ("png", "svg"):
            content = _picture(entry.page(verification, dark=dark, **chosen), fmt, verification)
        elif fmt == "csv":
            content = _csv(_table(entry.data(verification, **chosen)))
        else:
            content = _netcdf(entry.data(verification, **chosen), verification, figure, select)
    return content, file_name(figure, verification, fmt, select), MIME[fmt]


def file_name(figure: str, verification: "xr.Dataset", fmt: str, select: dict[str, Any]) -> str:
    """A name by which a picture finds its run again: `nuscope_<run>_<figure>[_nu4].png`."""
    chosen = select.get("nu")
    nu = "" if chosen is None else "_nu" + ("-".join(map(str, chosen)) if isinstance(chosen, list | tuple) else str(chosen))
    which = f"_{select['which']}" if select.get("which") else ""
    return f"nuscope_{verification.attrs.get('key', 'run')}_{figure}{which}{nu}.{fmt}"


def _picture(page: Any, fmt: str, verification: "xr.Dataset") -> bytes:
    """PNG or SVG of a `matplotlib.figure.Figure`, its source in the metadata."""
    source = f"Nuscope {verification.attrs.get('version', '')}, run {verification.attrs.get('key', '')}"
    metadata = (
        {"Software": source, "Description": str(verification.attrs.get("command", ""))}
        if fmt == "png"
        else {"Creator": source, "Date": None}
    )
    sink = io.BytesIO()
    page.savefig(sink, format=fmt, dpi=DPI, metadata=metadata, facecolor=page.get_facecolor(), bbox_inches="tight", pad_inches=0.15)
    return sink.getvalue()


def _table(data: Any) -> "pd.DataFrame":
    """Tidy rows of a figure's data, whether it is a table or a field."""
    import xarray as xr

    if isinstance(data, xr.DataArray):
        data = data.to_dataset(name=str(data.name or "value"))
    return data.to_dataframe().reset_index() if isinstance(data, xr.Dataset) else data


def _csv(table: "pd.DataFrame") -> bytes:
    """CSV text; a cell that a spreadsheet would run as a formula is prefixed."""
    safe = table.copy()
    for name in safe.columns[[kind.kind not in "biufcmM" for kind in safe.dtypes]]:
        safe[name] = [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in safe[name]]
    return safe.to_csv(index=False).encode()


def _netcdf(data: Any, verification: "xr.Dataset", figure: str, select: dict[str, Any]) -> bytes:
    """NetCDF of a figure's data with the run's provenance."""
    import xarray as xr

    if isinstance(data, xr.DataArray):
        data = data.to_dataset(name=str(data.name or "value"))
    if not isinstance(data, xr.Dataset):
        rows = data.reset_index(drop=True).rename_axis("row").rename(columns={"row": "row_"})
        units = {str(k): str(v) for k, v in data.attrs.items() if isinstance(v, str | int | float)}
        data = rows.astype({c: str for c in rows.columns if rows[c].dtype.kind not in "biuf"}).to_xarray().assign_attrs(units)
    kept = {k: v for k, v in verification.attrs.items() if isinstance(v, str | int | float)}
    chosen = {f"selected_{k}": str(v) for k, v in select.items() if v is not None and k != "fields"}
    data = data.assign_attrs(data.attrs | kept | chosen | {"figure": figure})
    data.attrs = {k: v for k, v in data.attrs.items() if isinstance(v, str | int | float)}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "figure.nc"
        data.to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()
