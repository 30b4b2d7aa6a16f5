"""Files of a figure: pictures with their origin written into them, tables that a spreadsheet cannot run, fields with their units."""

import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import ExportError
from engine.figures._charted import Table

DPI = 200
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def origin(verification: Any, title: str) -> dict[str, str]:
    """What a file says about itself: title, the command line that reproduces it, the run's key."""
    attrs = verification.attrs
    return {"title": title, "command": str(attrs.get("command", "")), "key": str(attrs.get("key", ""))}


def _picture(page: Any, fmt: str, metadata: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    page.savefig(sink, format=fmt, dpi=DPI, metadata=metadata, facecolor=page.get_facecolor(), bbox_inches="tight", pad_inches=0.15)
    return sink.getvalue()


def to_png(page: Any, source: Mapping[str, str]) -> bytes:
    """PNG of a `page()`, its origin in the text chunks."""
    return _picture(page, "png", {"Title": source["title"], "Description": source["command"], "Source": f"run {source['key']}"})


def to_svg(page: Any, source: Mapping[str, str]) -> bytes:
    """SVG of a `page()`, its origin in the metadata; without a date, so that the same figure gives the same bytes of metadata."""
    metadata = {"Title": source["title"], "Description": source["command"], "Source": f"run {source['key']}", "Date": None}
    return _picture(page, "svg", metadata)


def to_csv(data: Any) -> bytes:
    """CSV of a table or field; text that a spreadsheet would run as a formula is prefixed with an apostrophe, numbers are not."""
    import xarray as xr

    data = data.to_dataset(name=str(data.name or "value")) if isinstance(data, xr.DataArray) else data
    table: Table = data.to_dataframe().reset_index() if isinstance(data, xr.Dataset) else data.copy()
    for name in table.columns:
        if table[name].dtype.kind not in "biufcmM":
            table[name] = [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in table[name]]
    return table.to_csv(index=False).encode()


def to_netcdf(data: Any, source: Mapping[str, Any]) -> bytes:
    """NetCDF of a table or field, its origin in the attributes."""
    import xarray as xr

    if isinstance(data, xr.DataArray):
        data = data.to_dataset(name=str(data.name or "value"))
    if not isinstance(data, xr.Dataset):
        rows = data.reset_index(drop=True).rename_axis("row").rename(columns={"row": "row_"})  # a column may have the index's name
        data = rows.astype({c: str for c in rows.columns if rows[c].dtype.kind not in "biuf"}).to_xarray()
    data = data.assign_attrs({k: v for k, v in data.attrs.items() if isinstance(v, str | int | float)} | dict(source))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.nc"
        try:
            data.to_netcdf(path, engine="h5netcdf")
        except (OSError, TypeError, ValueError) as fault:
            raise ExportError("NetCDF export", found=str(fault), expected="a table or field", remedy="Export it as CSV instead.") from fault
        return path.read_bytes()
