"""Asking the process that reads GRIB: one for all files of this process, started when it is needed, and anew after it died.

ecCodes ends its process where a damaged file breaks an assumption, and may not come back from others: each request has a time
limit, the process a limit on memory, and the death of it is a DatasetError. It also keeps ecCodes' libraries (a second libproj
among them) out of this process.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine.confined import command, environment
from engine.errors import DatasetError

_WORKER = Path(__file__).with_name("_grib_worker.py")
MEMORY = 2 * 10**9
"""Bytes that reading one message may take, libraries included."""
SECONDS = 15.0
"""For a request, beside a second for each 4 MB of the file that it reads. Our choice."""
_PROCESSOR = 3600
"""Seconds of processor time of one process over all requests; then it is started anew."""


class _Process:
    """The one child, behind a lock."""

    def __init__(self) -> None:
        self.lock, self.child, self.owner = threading.Lock(), None, 0

    def ask(self, request: dict[str, Any], what: str) -> tuple[dict[str, Any], bytes]:
        """The answer and the bytes after it. A child that has served others before is replaced once where it dies."""
        with self.lock:
            fresh = self._start()
            try:
                return self._exchange(request)
            except _Died as death:
                if fresh or death.late:
                    raise _refused(what, str(death)) from death
            self._start()
            try:
                return self._exchange(request)
            except _Died as death:
                raise _refused(what, str(death)) from death

    def _start(self) -> bool:
        if self.child is not None and self.owner == os.getpid() and self.child.poll() is None:
            return False
        limits: dict[str, Any] = {"memory": MEMORY, "written": 0, "seconds": _PROCESSOR, "files": 256}
        self.child, self.owner = (
            subprocess.Popen(
                command(_WORKER, **limits),
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                close_fds=True,
            ),
            os.getpid(),
        )
        return True

    def _exchange(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        child = self.child
        assert child is not None and child.stdin is not None and child.stdout is not None
        until = time.monotonic() + request["seconds"] + 5
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        except OSError as error:
            raise self._dead(False) from error
        line = b""
        while not line.endswith(b"\n") and b"\n" not in line:
            line += self._some(until)
        head, _, body = line.partition(b"\n")
        said = json.loads(head)
        pieces, there = [body], len(body)
        while there < said.get("bytes", 0):
            pieces.append(self._some(until))
            there += len(pieces[-1])
        return said, b"".join(pieces)

    def _some(self, until: float) -> bytes:
        assert self.child is not None and self.child.stdout is not None
        descriptor = self.child.stdout.fileno()
        if not select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            raise self._dead(True)
        if not (found := os.read(descriptor, 2**20)):
            raise self._dead(False)
        return found

    def _dead(self, late: bool) -> "_Died":
        """Why it is gone; nothing of it stays."""
        assert self.child is not None
        if late:
            self.child.kill()
        status = self.child.wait()
        self.close()
        if late or status == -signal.SIGALRM:
            return _Died("it took too long", late=True)
        return _Died(f"its reader ended with {signal.Signals(-status).name if status < 0 else f'status {status}'}")

    def close(self) -> None:
        """End the child, where there is one of this process."""
        child, self.child = self.child, None
        if child is None or self.owner != os.getpid():
            return
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not read any more
                    stream.close()
        if child.poll() is None:
            child.kill()
            child.wait()


class _Died(Exception):
    def __init__(self, why: str, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


_PROCESS = _Process()
atexit.register(_PROCESS.close)


def _refused(what: str, why: str) -> DatasetError:
    return DatasetError(
        what,
        found=f"GRIB messages that cannot be read ({why})",
        expected="complete messages on a regular grid",
        remedy="Copy or download it again; check it with grib_ls, and regrid reduced grids.",
    )


def list_messages(file: Path) -> dict[str, Any]:
    """Keys and rows of all fields, the grids, and what lies between messages. Raises DatasetError."""
    what = f"dataset {file.name}"
    seconds = SECONDS + file.stat().st_size / 4e6
    said, _ = _PROCESS.ask({"do": "index", "file": str(file), "seconds": min(seconds, 3600.0)}, what)
    if "error" in said:
        raise _refused(what, said["error"])
    return said


def read_fields(file: Path, places: list[tuple[int, ...]], shape: tuple[int, int]) -> np.ndarray:
    """`(field, row, column)` float32 at places: offset, number in its message, fields of the message, scanning. Raises DatasetError."""
    what, result = f"dataset {file.name}", np.empty((len(places), *shape), np.float32)
    at_once = max(1, 2**25 // (4 * shape[0] * shape[1]))
    for start in range(0, len(places), at_once):
        part = places[start : start + at_once]
        request = {"do": "read", "file": str(file), "places": part, "shape": shape}
        seconds = SECONDS + len(part) * (1 + shape[0] * shape[1] / 1e6)
        said, body = _PROCESS.ask(request | {"seconds": seconds}, what)
        if "error" in said:
            raise _refused(what, said["error"])
        result[start : start + len(part)] = np.frombuffer(body, np.float32).reshape(len(part), *shape)
    return result
