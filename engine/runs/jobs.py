"""Submitting, watching, cancelling and resuming runs. A run is a row, a folder, and a worker process of its own.

There is no daemon that could be missing: whoever asks about runs (`progress`, `runs`, `submit`) also looks after them
(`dispatch`): rows whose worker has died are queued again, and queued rows get a worker while a slot is free. A worker
outlives the process that started it.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from engine.errors import RunError
from engine.runs import store
from engine.runs.calibration import IN_WORDS
from engine.runs.spec import AnySpec, RunSpec, parse_spec
from engine.runs.store import Progress
from engine.runs.verification import is_readable
from engine.settings import ROOT, settings

if TYPE_CHECKING:
    import xarray as xr

MAX_ATTEMPTS = 5
"""Starts without a finished shard in between after which a run is called failed: then it is the run that kills its worker."""
QUEUED = "status = 'queued', pid = NULL, error = NULL, attempts = 0, message = '', finished = NULL"
_children: list[subprocess.Popen[bytes]] = []
_dispatching = threading.RLock()


def _record(spec: "AnySpec") -> str:
    """The run's row and folder, queued where it is new, was given up, or lost its results."""
    spec = spec.resolved()
    key = spec.key()
    path = store.make_folder(key)
    text = spec.model_dump_json()
    with store.table() as connection:
        known = connection.execute("SELECT status FROM runs WHERE key = ?", (key,)).fetchone()
        if known is None:
            connection.execute(
                "INSERT INTO runs (key, title, status, spec, created) VALUES (?, ?, 'queued', ?, ?)",
                (key, spec.title or _name(spec), text, time.time()),
            )
        elif known["status"] in ("failed", "cancelled") or _lost(known["status"], path):
            # the same content may lie elsewhere now: the newer spec's paths are the ones that exist
            connection.execute(f"UPDATE runs SET spec = ?, {QUEUED} WHERE key = ?", (text, key))
        else:
            return key
        store.write_spec(key, spec.model_dump_json(indent=1))
    return key


def _name(spec: "AnySpec") -> str:
    """What a run is called where nobody named it: model, method, data."""
    if not isinstance(spec, RunSpec):
        count = len(spec.entries)
        how = spec.entries[0].replace("_", " ") if count == 1 else f"{count} methods"
        return f"{spec.checkpoint.stem}: {how} on {spec.data[0].name}"[:200]
    how = "calibration" if spec.tune else spec.method.replace("_", " ")
    how += f" by {IN_WORDS.get(spec.tune.objective, spec.tune.objective)}" if spec.tune and spec.tune.objective != "scale" else ""
    how += f", then {spec.posthoc.replace('_', ' ')}" if spec.posthoc else ""
    return f"{spec.checkpoint.stem}: {how} on {spec.data[0].name}"[:200]


def _lost(status: str, path: Path) -> bool:
    """A finished run whose results are no longer there, or cannot be read any more."""
    return status == "done" and not any(is_readable(path / name) for name in store.RESULTS if (path / name).exists())


def submit(spec: "AnySpec | dict[str, Any]") -> str:
    """Queue a run and return its key at once. An equal spec gets the run that exists, finished or not."""
    key = _record(parse_spec(spec) if isinstance(spec, dict) else spec)
    dispatch()
    return key


def run(spec: "AnySpec | dict[str, Any]", on_progress: Any = None) -> "xr.Dataset":
    """Compute in this process and return the result; the run is listed, and resumed where it was, like any other."""
    from engine.runs.worker import work

    key = _record(parse_spec(spec) if isinstance(spec, dict) else spec)
    with store.table() as connection:
        r = store.row(connection, key)
        busy = r["status"] == "running" and store.alive(r["pid"], r["pid_started"])
        if not busy and r["status"] != "done":
            me = os.getpid()
            connection.execute(
                "UPDATE runs SET status = 'running', pid = ?, pid_started = ?, attempts = attempts + 1 WHERE key = ?",
                (me, store.born(me), key),
            )
    if r["status"] != "done" and not busy:
        work(key, on_progress)
    while busy and (state := progress(key)).status in ("queued", "running"):
        if on_progress:
            on_progress(state.done, state.total, state.message)
        time.sleep(0.5)
    return result(key)


def dispatch() -> None:
    """Queue again what lost its worker, and start workers while slots are free."""
    with _dispatching:  # threads of one process share the list of children
        _children[:] = [child for child in _children if child.poll() is None]  # reaps the finished: no zombies
        with store.table() as connection:
            for r in connection.execute("SELECT * FROM runs WHERE status = 'running'").fetchall():
                if not store.alive(r["pid"], r["pid_started"]):
                    _bury(connection, r)
            running = connection.execute("SELECT COUNT(*) FROM runs WHERE status = 'running'").fetchone()[0]
            free = max(0, settings().slots - running)
            for r in connection.execute("SELECT key FROM runs WHERE status = 'queued' ORDER BY created LIMIT ?", (free,)).fetchall():
                try:
                    pid = _start(r["key"]).pid
                except RunError as fault:  # this run's trouble, and no reason to show nobody any run
                    _give_up(connection, r["key"], fault)
                    continue
                connection.execute(
                    "UPDATE runs SET status = 'running', pid = ?, pid_started = ?, started = NULL, attempts = attempts + 1 WHERE key = ?",
                    (pid, store.born(pid), r["key"]),
                )


def _bury(connection: sqlite3.Connection, r: sqlite3.Row) -> None:
    """A row whose worker has died: back into the queue, or given up where it dies again and again."""
    if r["attempts"] < MAX_ATTEMPTS:
        connection.execute("UPDATE runs SET status = 'queued', pid = NULL WHERE key = ?", (r["key"],))
        return
    error = RunError(
        f"run {r['key']}",
        found=f"its worker died {r['attempts']} times without finishing a shard",
        expected="a worker that lives until the next shard",
        remedy=f"See {store.folder(r['key']) / 'log.txt'}. If memory ran out, fewer members or outputs need less of it; then resume it.",
    )
    _give_up(connection, r["key"], error)


def _give_up(connection: sqlite3.Connection, key: str, error: RunError) -> None:
    connection.execute(
        "UPDATE runs SET status = 'failed', message = 'failed', finished = ?, error = ? WHERE key = ?",
        (time.time(), json.dumps(error.as_dict()), key),
    )


def _start(key: str) -> subprocess.Popen[bytes]:
    """A worker in a session of its own: it survives its parent, and can be killed with all that it started."""
    command = [sys.executable, "-m", "engine.runs.worker", key]
    # the worker stands in another folder: a home that was named relative to ours would be another one there
    environment = os.environ | {"NUSCOPE_HOME": str(settings().home.resolve())}
    try:
        with (store.make_folder(key) / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
    except OSError as fault:
        raise RunError(
            f"worker of run {key}",
            found=str(fault),
            expected="a process of its own and a log that can be written",
            remedy="Check memory, and the folder's rights and free space.",
        ) from fault
    _children.append(process)
    return process


def progress(key: str) -> Progress:
    """Where a run stands."""
    dispatch()
    with store.table() as connection:
        return store.as_progress(store.row(connection, key))


def runs() -> list[Progress]:
    """All runs, the newest first."""
    dispatch()
    with store.table() as connection:
        return [store.as_progress(r) for r in connection.execute("SELECT * FROM runs ORDER BY created DESC").fetchall()]


def cancel(key: str) -> None:
    """Stop a run at once: its worker is killed with all that it started. Finished shards stay; `resume` goes on from them."""
    with store.table() as connection:
        r = store.row(connection, key)
        if r["status"] not in ("queued", "running"):
            return
        connection.execute("UPDATE runs SET status = 'cancelled', message = 'cancelled', finished = ? WHERE key = ?", (time.time(), key))
    if r["status"] == "running" and r["pid"] != os.getpid() and store.alive(r["pid"], r["pid_started"]):
        with suppress(ProcessLookupError):
            # a worker leads its own group; a run computed inside another program (`engine.run`) does not, and that
            # program is asked, not killed with its group
            group = os.getpgid(r["pid"])
            os.killpg(group, signal.SIGKILL) if group == r["pid"] and _is_worker(r["pid"]) else os.kill(r["pid"], signal.SIGINT)


def _is_worker(pid: int) -> bool:
    try:
        return "engine.runs.worker" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def resume(key: str) -> None:
    """Queue a cancelled or failed run again; it goes on from its last finished shard."""
    with store.table() as connection:
        r = store.row(connection, key)
        if r["status"] in ("failed", "cancelled") or _lost(r["status"], store.folder(key)):
            connection.execute(f"UPDATE runs SET {QUEUED} WHERE key = ?", (key,))
    dispatch()


def remove(key: str) -> None:
    """Cancel where needed, and delete the run's row and folder, and the evaluations that only this run used."""
    cancel(key)
    store.forget(key)
    _forget_evaluations()


def _forget_evaluations() -> None:
    """Remove the evaluations of calibration splits that no run refers to any more."""
    kept = {p.read_text() for p in settings().runs.glob("*/landscape") if p.exists()}
    for place in (settings().home / "evaluations").glob("*"):
        if place.name not in kept:
            shutil.rmtree(place, ignore_errors=True)


def result(key: str) -> "xr.Dataset":
    """The Verification of a finished run; of a calibration or a classification its own (`engine.runs.calibration`, `.classification`)."""
    from engine.runs.calibration import open_calibration
    from engine.runs.classification import open_classification
    from engine.runs.verification import open_verification

    state = progress(key)
    if state.status == "failed" and state.error:
        raise RunError(**{"what": state.error["what"], **{k: state.error[k] for k in ("found", "expected", "remedy")}})
    if state.status != "done":
        raise RunError(f"run {key}", found=f"status {state.status}", expected="status done", remedy="Wait until it is done, or resume it.")
    if state.spec.get("task") == "classification":
        return open_classification(store.folder(key))
    return (open_calibration if state.spec.get("tune") else open_verification)(store.folder(key))
