"""The table of runs: one SQLite file (WAL) and one folder a run. Both together are the only truth about a run.

Any process may ask; only one changes a row at a time (`BEGIN IMMEDIATE`). A worker is known by its process id *and*
the time at which that process was born, since ids are used again; a zombie counts as dead.
"""

import json
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from engine.errors import RunError
from engine.settings import settings

Status = Literal["queued", "running", "done", "failed", "cancelled"]
COLUMNS = """
CREATE TABLE IF NOT EXISTS runs (
    key TEXT PRIMARY KEY, title TEXT NOT NULL, status TEXT NOT NULL, spec TEXT NOT NULL,
    created REAL NOT NULL, started REAL, finished REAL,
    done INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0, done_before INTEGER NOT NULL DEFAULT 0,
    message TEXT NOT NULL DEFAULT '', error TEXT, pid INTEGER, pid_started REAL, attempts INTEGER NOT NULL DEFAULT 0
)"""
RESULTS = ("verification.nc", "calibration.nc", "classification.nc")
"""What a finished run has one of in its folder."""
PATIENCE = 30.0
"""Seconds to wait while another process holds the table."""


class TableError(RunError):
    """The table cannot be used now: held by another process, or its folder cannot be written."""


@dataclass(frozen=True)
class Progress:
    """A run's row as people see it; `seconds_left` is None until it can be known."""

    key: str
    title: str
    status: Status
    done: int
    total: int
    seconds_left: float | None
    message: str
    error: dict[str, str] | None
    created: float
    finished: float | None
    spec: dict[str, Any]

    @property
    def share(self) -> float:
        """Finished share of the work, 0 … 1."""
        return 1.0 if self.status == "done" else min(1.0, self.done / self.total) if self.total else 0.0


@contextmanager
def table() -> Iterator[sqlite3.Connection]:
    """A transaction on the table; rolled back on an exception. Raises TableError where the table cannot be used."""
    place = settings().table
    try:
        settings().runs.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(place, timeout=PATIENCE, isolation_level=None)
    except (OSError, sqlite3.Error) as fault:
        raise _unusable(place, fault) from fault
    with closing(connection):
        try:
            _begin(connection)
            connection.execute(COLUMNS)
        except sqlite3.Error as fault:
            raise _unusable(place, fault) from fault
        try:
            yield connection
        except sqlite3.Error as fault:
            raise _unusable(place, fault) from fault
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as fault:
            raise _unusable(place, fault) from fault


def _begin(connection: sqlite3.Connection) -> None:
    """Begin to write. Two processes that make the table at one time may be told "locked" at once, without SQLite's own waiting."""
    connection.row_factory = sqlite3.Row
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as fault:
            if "locked" not in str(fault) or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _unusable(place: Path, fault: Exception) -> TableError:
    held = "locked" in str(fault)
    return TableError(
        f"table of runs {place}",
        found=str(fault),
        expected="a table that can be written",
        remedy="Another process holds it; try again, and stop that process if it hangs."
        if held
        else "Check the folder's rights and free space, or name another with NUSCOPE_HOME.",
    )


def folder(key: str) -> Path:
    """The run's folder. The key is checked: it comes from URLs and must not leave the folder of runs."""
    if not (key.isascii() and key.isalnum()) or len(key) > 64:
        raise RunError("run key", found=repr(key)[:80], expected="letters and digits", remedy="Copy the key from the list of runs.")
    return settings().runs / key


def make_folder(key: str) -> Path:
    """The run's folder, made where it is not there."""
    path = folder(key)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise RunError(
            f"folder {path}",
            found=str(fault),
            expected="a folder that can be written",
            remedy="Check the folder's rights and free space, or name another with NUSCOPE_HOME.",
        ) from fault
    return path


def write_spec(key: str, text: str) -> None:
    """`spec.json` of a run, whole or not at all."""
    path = make_folder(key) / "spec.json"
    part = path.with_suffix(".part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError as fault:
        raise RunError(f"file {path}", found=str(fault), expected="a folder that can be written", remedy="Free some space.") from fault


def row(connection: sqlite3.Connection, key: str) -> sqlite3.Row:
    """The run's row, or an error that says where to look."""
    found = connection.execute("SELECT * FROM runs WHERE key = ?", (key,)).fetchone()
    if found is None:
        raise RunError(
            f"run {key[:80]}", found="no such run", expected="a key of the list of runs", remedy="See: python -m engine runs list"
        )
    return found


def as_progress(r: sqlite3.Row) -> Progress:
    """Row to Progress, with the remaining time from this attempt's own rate."""
    left = None
    fresh = r["done"] - r["done_before"]
    if r["status"] == "running" and fresh > 0 and r["started"]:
        left = max(0.0, time.time() - r["started"]) / fresh * max(0, r["total"] - r["done"])
    error = json.loads(r["error"]) if r["error"] else None
    return Progress(
        r["key"],
        r["title"],
        r["status"],
        r["done"],
        r["total"],
        left,
        r["message"],
        error,
        r["created"],
        r["finished"],
        json.loads(r["spec"]),
    )


def update(key: str, *, owner: int | None = None, **values: Any) -> bool:
    """Set columns of one row; whether that was done.

    With `owner`, only while that process is the one that computes the run: what was cancelled, removed or given to another
    worker is no longer its to change.
    """
    names = ", ".join(f"{name} = ?" for name in values)
    guard = " AND status = 'running' AND pid = ?" if owner is not None else ""
    with table() as connection:
        found = connection.execute(f"UPDATE runs SET {names} WHERE key = ?{guard}", (*values.values(), key, *([owner] if guard else [])))
        return found.rowcount > 0


def born(pid: int) -> float | None:
    """When a process was born, on a clock that is never set; None where there is none, or only a zombie."""
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return None
        if sys.platform == "linux":
            # field 22, in ticks since boot: seconds since 1970 would move with every correction of the machine's clock
            return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        return psutil.Process(pid).create_time()
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def alive(pid: int | None, started: float | None) -> bool:
    """Whether that very process still runs."""
    if pid is None:
        return False
    now = born(pid)
    return now is not None and (started is None or abs(now - started) < 1.0)


def forget(key: str) -> None:
    """Remove a run's row and folder."""
    with table() as connection:
        row(connection, key)
        connection.execute("DELETE FROM runs WHERE key = ?", (key,))
    shutil.rmtree(folder(key), ignore_errors=True)
