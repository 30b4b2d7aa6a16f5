"""The table of runs: one SQLite file (WAL) and one folder a run. Both together are the only truth about a run.

Any process may ask; only one changes a row at a time (`BEGIN IMMEDIATE`). A worker is known by its process id *and*
the time at which that process started, since ids are used again; a zombie counts as dead.
"""

import json
import shutil
import sqlite3
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
    """A transaction on the table; rolled back on an exception."""
    settings().runs.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(settings().table, timeout=30, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(COLUMNS)
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def folder(key: str) -> Path:
    """The run's folder. The key is checked: it comes from URLs and must not leave the folder of runs."""
    if not key.isalnum() or len(key) > 64:
        raise RunError("run key", found=repr(key)[:80], expected="letters and digits", remedy="Copy the key from the list of runs.")
    return settings().runs / key


def row(connection: sqlite3.Connection, key: str) -> sqlite3.Row:
    """The run's row, or an error that says where to look."""
    found = connection.execute("SELECT * FROM runs WHERE key = ?", (key,)).fetchone()
    if found is None:
        raise RunError(f"run {key}", found="no such run", expected="a key of the list of runs", remedy="See: python -m engine runs list")
    return found


def as_progress(r: sqlite3.Row) -> Progress:
    """Row to Progress, with the remaining time from this attempt's own rate."""
    left = None
    fresh = r["done"] - r["done_before"]
    if r["status"] == "running" and fresh > 0 and r["started"]:
        left = (time.time() - r["started"]) / fresh * max(0, r["total"] - r["done"])
    error = json.loads(r["error"]) if r["error"] else None
    return Progress(
        r["key"], r["title"], r["status"], r["done"], r["total"], left, r["message"], error, r["created"], r["finished"], json.loads(r["spec"])
    )


def update(key: str, **values: Any) -> None:
    """Set columns of one row. A cancelled run keeps its status: cancelling wins over whatever the worker still says."""
    names = ", ".join(f"{name} = ?" for name in values)
    guard = " AND status != 'cancelled'" if "status" in values else ""
    with table() as connection:
        connection.execute(f"UPDATE runs SET {names} WHERE key = ?{guard}", (*values.values(), key))


def alive(pid: int | None, started: float | None) -> bool:
    """Whether that very process still runs."""
    if pid is None:
        return False
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and (started is None or abs(process.create_time() - started) < 1.0)
    except psutil.NoSuchProcess:
        return False


def forget(key: str) -> None:
    """Remove a run's row and folder."""
    with table() as connection:
        row(connection, key)
        connection.execute("DELETE FROM runs WHERE key = ?", (key,))
    shutil.rmtree(folder(key), ignore_errors=True)
