"""GRIB by ecCodes, in a process of its own: the list of a file's messages, and the values of those that are asked for.

Run as a script under limits (`_grib_process.py` starts it by `engine.confined`): ecCodes stops its process where a damaged file
breaks an assumption. It imports neither the engine nor xarray. Each line of its standard input is a request in JSON, each answer
a line of JSON, followed by `bytes` of float32 where values were asked for; a request that takes too long ends the process.

Messages are framed here, by the lengths of their sections, before ecCodes sees them: what lies between messages is counted, a
message that is cut off is an error, and fields that share a message (sub-messages of GRIB 2) have a number in it. Scanning
modes are undone here: rows as the file has them, columns from west to east.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import eccodes as ec
import numpy as np

TEXTS = ("shortName", "cfVarName", "cfName", "name", "units", "typeOfLevel", "stepRange", "stepType", "dataType", "gridType", "stream")
TEXTS += ("md5GridSection", "packingType", "centre", "experimentVersionNumber")
NUMBERS = ("edition", "paramId", "discipline", "parameterCategory", "parameterNumber", "table2Version", "indicatorOfParameter")
NUMBERS += ("dataDate", "hour", "minute", "second", "number", "typeOfEnsembleForecast", "numberOfForecastsInEnsemble")
NUMBERS += (
    "indicatorOfUnitOfTimeRange",
    "indicatorOfUnitForTimeRange",
    "productDefinitionTemplateNumber",
    "typeOfSecondFixedSurface",
    "derivedForecast",
    "numberOfPoints",
)
REALS = ("level", "topLevel", "bottomLevel")
KEYS = (*TEXTS, *NUMBERS, *REALS)
CORNERS = ("latitudeOfFirstGridPointInDegrees", "latitudeOfLastGridPointInDegrees")
CORNERS += ("longitudeOfFirstGridPointInDegrees", "longitudeOfLastGridPointInDegrees")
SCANNING = ("iScansNegatively", "jScansPositively", "jPointsAreConsecutive", "alternativeRowScanning")
MISSING = 3.4e38
"""What ecCodes puts where the bitmap has no value: beyond any quantity, within float64."""


class Damaged(Exception):
    """A file whose messages are not whole."""


class Bytes:
    """A file's bytes by position; nothing is mapped, since the limit on memory counts what is."""

    def __init__(self, stream: Any) -> None:
        self.descriptor = stream.fileno()
        self.size = os.fstat(self.descriptor).st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return os.pread(self.descriptor, max(0, min(place.stop, self.size) - place.start), place.start)
        return os.pread(self.descriptor, 1, place)[0]

    def find(self, wanted: bytes, start: int) -> int:
        """Where `wanted` begins at or after `start`, −1 for nowhere; as a rule at once."""
        step = 64
        while start < self.size:
            part = os.pread(self.descriptor, step, start)
            if (at := part.find(wanted)) >= 0:
                return start + at
            if len(part) < len(wanted):
                return -1
            start, step = start + len(part) - len(wanted) + 1, 2**20
        return -1


def frames(data: Any) -> Iterator[tuple[int, int, int]]:
    """Offset, length (0: ask ecCodes) and number of fields of each message; then what lies between them, as fields = 0."""
    size, at, end = len(data), 0, 0
    while (at := data.find(b"GRIB", at)) >= 0:
        edition = data[at + 7] if at + 16 <= size else 0
        if edition not in (1, 2):
            if at + 16 > size:
                raise Damaged(f"a message at byte {at} that is cut off")
            at += 4
            continue
        if at > end:
            yield end, at - end, 0
        length = int.from_bytes(data[at + 4 : at + 7] if edition == 1 else data[at + 8 : at + 16], "big")
        if edition == 1 and length & 0x800000:  # a message of more than 8 MB, whose length follows from its sections
            length = _large(data, at, length)
        if length < 20 or at + length > size:
            raise Damaged(f"a message at byte {at} that is cut off: it claims {length} bytes, {size - at} are there")
        if data[at + length - 4 : at + length] != b"7777":
            raise Damaged(f"a message at byte {at} that does not end after the {length} bytes that it claims")
        yield at, length, 1 if edition == 1 else _fields(data, at, length)
        at = end = at + length
    if end < size:
        yield end, size - end, 0


def _large(data: Any, at: int, length: int) -> int:
    """Length of a GRIB 1 message that counts in units of 120 bytes (a convention of ECMWF's)."""
    place, flags = at + 8, data[at + 15]
    for present in (True, bool(flags & 128), bool(flags & 64)):
        if present:
            place += int.from_bytes(data[place : place + 3], "big")
    last = int.from_bytes(data[place : place + 3], "big")
    return (length & 0x7FFFFF) * 120 - last + 4 if last < 120 else length


def _fields(data: Any, at: int, length: int) -> int:
    """Number of fields of a GRIB 2 message: its data sections."""
    place, stop, found = at + 16, at + length - 4, 0
    while place < stop:
        section = int.from_bytes(data[place : place + 4], "big")
        if section < 5 or place + section > stop:
            raise Damaged(f"a message at byte {at} whose sections do not add up")
        found += data[place + 4] == 7
        place += section
    if not found:
        raise Damaged(f"a message at byte {at} without a data section")
    return found


def handles(stream: Any, offset: int, fields: int, headers: bool) -> Iterator[Any]:
    """The fields of one message in order; each is released after its turn."""
    stream.seek(offset)
    if fields > 1:
        ec.codes_grib_multi_support_on()
        ec.codes_grib_multi_support_reset_file(stream)
    try:
        for _ in range(fields):
            handle = ec.codes_grib_new_from_file(stream, headers_only=headers and fields == 1)
            if handle is None:
                raise Damaged(f"a message at byte {offset} that cannot be read")
            try:
                yield handle
            finally:
                ec.codes_release(handle)
    finally:
        if fields > 1:
            ec.codes_grib_multi_support_reset_file(stream)
            ec.codes_grib_multi_support_off()


def _get(handle: Any, key: str, kind: type) -> Any:
    try:
        return ec.codes_get(handle, key, kind)
    except ec.CodesInternalError:
        return None


def _must(handle: Any, key: str, kind: type) -> Any:
    return ec.codes_get(handle, key, kind)


def _minutes(handle: Any) -> tuple[Any, Any]:
    """First and last step in minutes; None where the unit is of no fixed length (months, years)."""
    try:
        ec.codes_set(handle, "stepUnits", "m")
        return ec.codes_get(handle, "startStep", int), ec.codes_get(handle, "endStep", int)
    except (ec.CodesInternalError, ValueError, TypeError):
        return None, None


def grid(handle: Any) -> dict[str, Any]:
    """A regular grid's axes, or why there are none."""
    kind = _get(handle, "gridType", str)
    if kind not in ("regular_ll", "regular_gg"):
        return {"type": kind, "error": "no regular latitude-longitude grid"}
    try:
        rows, columns = (_must(handle, key, int) for key in ("Nj", "Ni"))
        north, south, west, east = (_must(handle, key, float) for key in CORNERS)
        flags = [_must(handle, key, int) for key in SCANNING]
        latitude = np.linspace(north, south, rows)
        if kind == "regular_gg":
            latitude = np.sort(np.asarray(ec.codes_get_array(handle, "distinctLatitudes"), np.float64))
            latitude = latitude if flags[1] else latitude[::-1]
        points = _must(handle, "numberOfPoints", int)
    except (ec.CodesInternalError, ValueError, MemoryError) as error:
        return {"type": kind, "error": f"a grid description that cannot be used ({str(error)[:120]})"}
    if rows < 1 or columns < 1 or points != rows * columns or len(latitude) != rows or points > 10**9:
        return {"type": kind, "error": f"a grid of {rows} rows and {columns} columns with {points} points"}
    if rows > 1 and (south > north) != bool(flags[1]):
        return {"type": kind, "error": f"rows from {north:g} to {south:g} degrees against their scanning mode"}
    if flags[0]:
        west, east = east, west
    span = (east - west) % 360
    if columns > 1 and span < 1e-6:
        span = 360.0
    step = span / max(1, columns - 1)
    if columns > 1 and abs(step * columns - 360) < 0.5 * step:  # the last corner is rounded to a thousandth of a degree
        step = 360 / columns
    longitude = west + step * np.arange(columns)
    return {"type": kind, "latitude": latitude.tolist(), "longitude": longitude.tolist(), "scanning": flags}


def index(path: str) -> dict[str, Any]:
    """Every field of a file as a row of `KEYS`, with offset, number in its message and steps; each grid once; bytes between."""
    rows, grids, between, place = [], {}, [], KEYS.index("md5GridSection")
    with Path(path).open("rb") as stream:
        data = Bytes(stream)
        for offset, length, fields in frames(data):
            if not fields:
                last = data[max(offset, offset + length - 2**20) : offset + length].strip(b"\0\r\n \t")
                something = bool(last or data[offset : offset + min(length, 2**20)].strip(b"\0\r\n \t"))
                between.append([offset, length, something, last.endswith(b"7777")])
                continue
            try:
                for number, handle in enumerate(handles(stream, offset, fields, True)):
                    row = [_get(handle, key, str) for key in TEXTS]
                    row += [_get(handle, key, int) for key in NUMBERS] + [_get(handle, key, float) for key in REALS]
                    known = row[place] = row[place] or ""
                    if known not in grids:
                        grids[known] = grid(handle)
                    rows.append([offset, length, number, fields, *_minutes(handle), *row])
            except ec.CodesInternalError as error:
                raise Damaged(f"a message at byte {offset} that cannot be read ({error})") from error
    return {"keys": ["offset", "length", "part", "parts", "start", "end", *KEYS], "rows": rows, "grids": grids, "between": between}


def values(handle: Any, scanning: list[int], rows: int, columns: int) -> np.ndarray:
    """A field as `(row, column)` float32, columns from west to east, NaN where there is no value; rows turned where that is asked."""
    ec.codes_set(handle, "missingValue", MISSING)
    flat = np.asarray(ec.codes_get_values(handle), np.float64)
    if flat.size != rows * columns:
        raise ValueError(f"{flat.size} values on a grid of {rows} × {columns}")
    flat[flat == MISSING] = np.nan
    negative, _, by_columns, alternate, turned = scanning
    field = flat.reshape((columns, rows) if by_columns else (rows, columns))
    if alternate:
        field[1::2] = field[1::2, ::-1]
    field = field.T if by_columns else field
    field = field[:, ::-1] if negative else field
    return np.ascontiguousarray(field[::-1] if turned else field, np.float32)


def read(path: str, places: list[list[int]], shape: list[int]) -> bytes:
    """The fields at `places`, one after another: offset, number in its message, fields of the message, then how it is scanned."""
    found = []
    with Path(path).open("rb") as stream:
        for offset, part, parts, *scanning in places:
            for number, handle in enumerate(handles(stream, offset, parts, False)):
                if number == part:
                    found.append(values(handle, scanning, *shape).tobytes())
    return b"".join(found)


def answer(asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What a request gives: an answer, and the bytes that follow it."""
    try:
        if asked["do"] == "index":
            return index(asked["file"]), b""
        body = read(asked["file"], asked["places"], asked["shape"])
        return {"bytes": len(body)}, body
    except (Damaged, ec.CodesInternalError, ValueError, TypeError, KeyError, OSError, MemoryError) as error:
        return {"error": str(error)[:300] or type(error).__name__}, b""


def serve() -> None:
    """Answer requests until there are no more. What ecCodes prints goes nowhere: standard output is the answers' alone."""
    out = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, asked["seconds"])
        said, body = answer(asked)
        signal.setitimer(signal.ITIMER_REAL, 0)
        out.write(json.dumps(said).encode() + b"\n" + body)
        out.flush()


if __name__ == "__main__":
    serve()
