"""Routes of result files: a run's NetCDF files, and its figures as PNG, SVG, CSV or NetCDF, made when asked for.

Names are looked up in lists, never joined from what a request says; the key is checked by the store.
"""

import math
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response

import engine
from engine.errors import EngineError, RunError
from pages._parts.results import run_folder, verification_of

FILES = {
    "verification.nc": "application/x-netcdf",
    "calibration.nc": "application/x-netcdf",
    "classification.nc": "application/x-netcdf",
    "fields.nc": "application/x-netcdf",
    "spec.json": "application/json",
    "log.txt": "text/plain",
}
NUMBERS = {"lead_time": float, "latitude": float, "longitude": float, "case": int, "level": int, "threshold": int, "example": int}
LISTS = {"nu": int, "limits": float}
WORDS = ("region", "variable", "which", "projection", "calibration", "entry", "score", "ood")


def _plain(refusal: EngineError) -> PlainTextResponse:
    return PlainTextResponse(f"{refusal.what}\nFound: {refusal.found}\nExpected: {refusal.expected}\n{refusal.remedy}\n", 404)


async def run_file(request: Request) -> Response:
    """`/results/{key}/{name}`: one of the files of a run's folder."""
    key, name = request.path_params["key"], request.path_params["name"]
    try:
        if name not in FILES:
            raise RunError(
                f"file {name[:60]!r}", found="another name", expected=f"one of {', '.join(FILES)}", remedy="Use the links of the Runs page."
            )
        path = run_folder(key) / name
        if not path.is_file():
            raise RunError(
                f"run {key}", found=f"no {name}", expected="a run that has written it", remedy="Wait until it is done, or resume it."
            )
    except EngineError as refusal:
        return _plain(refusal)
    return FileResponse(path, media_type=FILES[name], filename=f"nuscope_{key}_{name}", content_disposition_type="attachment")


def selection(query: dict[str, str]) -> dict[str, Any]:
    """The selections in a query: known names only, numbers as numbers."""
    try:
        numbers: dict[str, Any] = {name: kind(query[name]) for name, kind in NUMBERS.items() if name in query}
        lists = {name: [kind(part) for part in query[name].split(",")] for name, kind in LISTS.items() if name in query}
    except ValueError as fault:
        raise RunError("export", found=str(fault), expected="numbers in the address", remedy="Use the links under a picture.") from fault
    numbers_given = [*(v for v in numbers.values() if isinstance(v, float)), *(v for part in lists.values() for v in part)]
    if not all(math.isfinite(v) for v in numbers_given) or abs(numbers.get("latitude", 0.0)) > 90:
        raise RunError(
            "export",
            found=", ".join(f"{name}={query[name]}" for name in query)[:120],
            expected="finite numbers, latitude from -90 to 90",
            remedy="Use the links under a picture.",
        )
    single = {name: values[0] if len(values) == 1 else values for name, values in lists.items()}
    return numbers | single | {name: query[name] for name in WORDS if name in query}


def _make(key: str, figure: str, fmt: str, query: dict[str, str]) -> tuple[bytes, str, str]:
    return engine.export(figure, verification_of(key), fmt, dark=query.get("dark") == "1", **selection(query))


async def export(request: Request) -> Response:
    """`/export/{key}/{figure}.{fmt}?nu=…`: a figure of a run as a file."""
    key, figure, fmt = (request.path_params[name] for name in ("key", "figure", "fmt"))
    try:
        content, name, mime = await run_in_threadpool(_make, key, figure, fmt, dict(request.query_params))
    except EngineError as refusal:
        return _plain(refusal)
    return Response(
        content, media_type=mime, headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    )
