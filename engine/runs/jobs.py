"""Submitting, watching, cancelling and resuming runs. A run is a row, a folder, and a worker process of its own.

There is no daemon that could be missing: whoever asks about runs (`progress`, `runs`, `submit`) also looks after them
(`dispatch`): rows whose worker has died are queued again, and queued rows get a worker while a slot is free. A worker
outlives the process that started it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from engine.errors import RunError
from engine.runs import store
from engine.runs.spec import RunSpec, parse_spec
from engine.runs.store import Progress
from engine.settings import ROOT, settings

if TYPE_CHECKING:
    import xarray as xr

MAX_ATTEMPTS = 20
"""Restarts without a finished shard in between after which a run is called failed: then it is the run that kills its worker."""
_children: list[subprocess.Popen[bytes]] = []


def _record(spec: RunSpec, status: str) -> str:
    spec = spec.resolved()
    key = spec.key()
    path = store.folder(key)
    path.mkdir(parents=True, exist_ok=True)
    text = spec.model_dump_json()
    with store.table() as connection:
        known = connection.execute("SELECT status FROM runs WHERE key = ?", (key,)).fetchone()
        if known is None:
            (path / "spec.json").write_text(spec.model_dump_json(indent=1))
            connection.execute(
                "INSERT INTO runs (key, title, status, spec, created) VALUES (?, ?, ?, ?, ?)",
                (key, spec.title or f"{spec.checkpoint.stem}: {spec.method}", status, text, time.time()),
            )
        elif known["status"] in ("failed", "cancelled"):
            # the same content may lie elsewhere now: the newer spec's paths are the ones that exist
            (path / "spec.json").write_text(spec.model_dump_json(indent=1))
            connection.execute("UPDATE runs SET status = ?, spec = ?, error = NULL, attempts = 0, message = '' WHERE key = ?", (status, text, key))
    return key


def submit(spec: RunSpec | dict[str, Any]) -> str:
    """Queue a run and return its key at once. An equal spec gets the run that exists, finished or not."""
    key = _record(spec if isinstance(spec, RunSpec) else parse_spec(spec), "queued")
    dispatch()
    return key


def run(spec: RunSpec | dict[str, Any], on_progress: Any = None) -> "xr.Dataset":
    """Compute in this process and return the Verification; the run is listed, and resumed where it was, like any other."""
    from engine.runs.worker import work

    key = _record(spec if isinstance(spec, RunSpec) else parse_spec(spec), "queued")
    with store.table() as connection:
        r = store.row(connection, key)
        busy = r["status"] == "running" and store.alive(r["pid"], r["pid_started"])
        if not busy and r["status"] != "done":
            me = psutil.Process()
            connection.execute(
                "UPDATE runs SET status = 'running', pid = ?, pid_started = ?, attempts = attempts + 1 WHERE key = ?", (me.pid, me.create_time(), key)
            )
    if r["status"] != "done" and not busy:
        work(key, on_progress)
    while busy and progress(key).status in ("queued", "running"):
        time.sleep(0.5)
    return result(key)


def dispatch() -> None:
    """Queue again what lost its worker, and start workers while slots are free."""
    _children[:] = [child for child in _children if child.poll() is None]  # reaps the finished: no zombies
    with store.table() as connection:
        for r in connection.execute("SELECT * FROM runs WHERE status = 'running'").fetchall():
            if store.alive(r["pid"], r["pid_started"]):
                continue
            if r["attempts"] >= MAX_ATTEMPTS:
                error = RunError(
                    f"run {r['key']}",
                    found=f"its worker died {r['attempts']} times",
                    expected="a worker that lives until the next shard",
                    remedy=f"See {store.folder(r['key']) / 'log.txt'}; fewer members or cases need less memory.",
                )
                connection.execute("UPDATE runs SET status = 'failed', error = ? WHERE key = ?", (json.dumps(error.as_dict()), r["key"]))
            else:
                connection.execute("UPDATE runs SET status = 'queued', pid = NULL WHERE key = ?", (r["key"],))
        running = connection.execute("SELECT COUNT(*) FROM runs WHERE status = 'running'").fetchone()[0]
        free = max(0, settings().slots - running)
        for r in connection.execute("SELECT key FROM runs WHERE status = 'queued' ORDER BY created LIMIT ?", (free,)).fetchall():
            process = _start(r["key"])
            started = psutil.Process(process.pid).create_time()
            connection.execute(
                "UPDATE runs SET status = 'running', pid = ?, pid_started = ?, started = NULL, attempts = attempts + 1 WHERE key = ?",
                (process.pid, started, r["key"]),
            )


def _start(key: str) -> subprocess.Popen[bytes]:
    """A worker in a session of its own: it survives its parent, and can be killed with all that it started."""
    path = store.folder(key)
    path.mkdir(parents=True, exist_ok=True)
    with (path / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.runs.worker", key], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
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
        connection.execute("UPDATE runs SET status = 'cancelled', message = 'cancelled' WHERE key = ?", (key,))
    if r["pid"] != os.getpid() and store.alive(r["pid"], r["pid_started"]):
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
        if r["status"] in ("failed", "cancelled"):
            connection.execute("UPDATE runs SET status = 'queued', error = NULL, attempts = 0, message = '' WHERE key = ?", (key,))
    dispatch()


def remove(key: str) -> None:
    """Cancel where needed, and delete the run's row and folder."""
    cancel(key)
    store.forget(key)


def result(key: str) -> "xr.Dataset":
    """The Verification of a finished run."""
    from engine.runs.verification import open_verification

    state = progress(key)
    if state.status == "failed" and state.error:
        raise RunError(**{"what": state.error["what"], **{k: state.error[k] for k in ("found", "expected", "remedy")}})
    if state.status != "done":
        raise RunError(f"run {key}", found=f"status {state.status}", expected="status done", remedy="Wait until it is done, or resume it.")
    return open_verification(store.folder(key))
