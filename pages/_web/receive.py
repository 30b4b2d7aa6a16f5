"""Route `PUT /upload/{id}/{name}`: a file in pieces, written to disk as it arrives, going on where it broke off."""

import asyncio
from collections import defaultdict
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from engine.errors import DatasetError, EngineError
from pages._web import uploads

_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
"""One writer a file: a browser that retries must not write beside its own first try."""


def _refuse(status: int, what: str, found: str, expected: str, remedy: str, **more: Any) -> JSONResponse:
    return JSONResponse({"error": {"what": what, "found": found, "expected": expected, "remedy": remedy}, **more}, status)


def _stranger(request: Request) -> JSONResponse | None:
    """Streamlit's own guards do not cover this route: another site's page may not write here, nor anyone without a token."""
    origin = request.headers.get("origin")
    if origin and urlsplit(origin).netloc != request.headers.get("host"):
        return _refuse(403, "upload", "a request from another site's page", "one of this app's pages", "Upload from the page itself.")
    if uploads.owner(request.headers.get("x-nuscope-token", "")) is None:
        return _refuse(401, "upload", "no valid token", "the token of an open page", "Reload the page and try again.")
    return None


def _range(header: str) -> tuple[int, int, int]:
    """`bytes first-last/total` to (first, length, total)."""
    try:
        unit, _, rest = header.partition(" ")
        span, _, total = rest.partition("/")
        first, _, last = span.partition("-")
        numbers = int(first), int(last) - int(first) + 1, int(total)
    except ValueError:
        numbers = (0, -1, 0)
    if numbers[1] < 1 or numbers[0] < 0 or sum(numbers[:2]) > numbers[2] or unit != "bytes":
        raise DatasetError(
            "upload", found=f"Content-Range {header[:60]!r}", expected="bytes first-last/total", remedy="Reload the page and try again."
        )
    return numbers


async def receive(request: Request) -> JSONResponse:
    """`GET`: how much has arrived. `PUT`: the next piece; the last one's answer names the file."""
    if (stranger := _stranger(request)) is not None:
        return stranger
    who = uploads.owner(request.headers["x-nuscope-token"]) or ""
    upload, name = request.path_params["upload"], request.path_params["name"]
    try:
        name = uploads.safe_name(name)
        if request.method == "GET":
            return JSONResponse({"received": uploads.received(who, upload)})
        first, length, total = _range(request.headers.get("content-range", ""))
        async with _locks[f"{who}/{upload}"]:
            return await _piece(request, who, upload, name, first, length, total)
    except EngineError as refusal:
        status = 413 if isinstance(refusal, uploads.TooLargeError) else 507 if isinstance(refusal, uploads.DiskFullError) else 400
        return JSONResponse({"error": refusal.as_dict()}, status)


async def _piece(request: Request, who: str, upload: str, name: str, first: int, length: int, total: int) -> JSONResponse:
    have = uploads.received(who, upload)
    uploads.check_room(total, have)
    if first != have:
        return _refuse(409, "upload", f"a piece that begins at byte {first}", f"byte {have}", "It goes on from there.", received=have)
    part, written = uploads.open_part(who, upload), 0
    try:
        with part.open("ab") as file:
            async for data in request.stream():
                if written + len(data) > length:
                    return _refuse(400, "upload", "more bytes than announced", f"{length} bytes", "Reload the page and try again.")
                await run_in_threadpool(file.write, data)
                written += len(data)
    except ClientDisconnect:
        return JSONResponse({"received": have + written}, 400)
    if not have:
        await run_in_threadpool(uploads.check_kind, who, upload, name)
    if have + written < total:
        return JSONResponse({"received": have + written})
    brought = await run_in_threadpool(uploads.finish, who, upload, name)
    _locks.pop(f"{who}/{upload}", None)
    return JSONResponse({"received": total, "id": brought.id, "name": brought.name, "bytes": brought.bytes})
