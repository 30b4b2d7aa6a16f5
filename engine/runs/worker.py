"""The worker process: `python -m engine.runs.worker KEY` computes one run, then takes the next from the queue."""

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from engine.errors import EngineError, RunError
from engine.runs import jobs, store
from engine.runs.spec import AnySpec, spec_from_json

log = logging.getLogger("engine.worker")
OnProgress = Callable[[int, int, str], None]
PERIOD = 0.4
"""Seconds between two writes of progress to the table."""
LAST_WORD = 600.0
"""Seconds for which the end of a run is told again to a table that cannot be written: hours of work hang on that one row."""


class Superseded(RunError):
    """The run was cancelled, removed or given to another worker: this process has nothing more to say about it."""


class _Reporter:
    """Progress from the computation to the table, and to whoever else listens. A table that is held for a while stops nothing."""

    def __init__(self, key: str, listener: OnProgress | None) -> None:
        self.key, self.listener, self.me = key, listener, os.getpid()
        self.written, self.began, self.first = -PERIOD, 0.0, -1

    def __call__(self, done: int, total: int, message: str) -> None:
        """`total` 0: not known yet. The first known `done` is where this attempt began: what is new since then tells the remaining time."""
        if self.listener:
            self.listener(done, total, message)
        now = time.monotonic()
        if not total:
            self.tell(message=message)
        elif self.first < 0:
            self.first, self.began, self.written = done, now, now
            self.tell(done=done, total=total, message=message, started=time.time(), done_before=done)
        elif now - self.written >= PERIOD or done == total:
            self.written = now
            # the start is given anew by the clock as it is now: when someone sets it, the remaining time recovers
            self.tell(done=done, total=total, message=message, started=time.time() - (now - self.began))

    def shard_finished(self) -> None:
        """A worker that dies from here on has got somewhere: its restarts are counted from this one."""
        self.tell(attempts=1)

    def tell(self, **values: Any) -> None:
        """Write to the row where the table allows it. Raises `Superseded` where the row is no longer this process's."""
        try:
            if store.update(self.key, owner=self.me, **values):
                return
        except store.TableError as busy:
            log.warning("run %s goes on without telling: %s", self.key, busy)
            return
        raise Superseded(
            f"run {self.key}",
            found="it was cancelled, removed or given to another worker",
            expected="a run of this process",
            remedy="Resume it to go on from its last finished shard.",
        )

    def end(self, status: str, message: str, error: dict[str, str] | None = None) -> None:
        """The run's end. Told until the table takes it; if it never does, the row's dead worker is found and the run goes on."""
        values: dict[str, Any] = {
            "status": status,
            "message": message,
            "error": json.dumps(error) if error else None,
            "finished": time.time(),
        }
        until = time.monotonic() + LAST_WORD
        while True:
            try:
                store.update(self.key, owner=self.me, **values)
                return
            except store.TableError as busy:
                log.warning("run %s has ended (%s) and cannot tell: %s", self.key, status, busy)
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)


def work(key: str, on_progress: OnProgress | None = None) -> None:
    """Compute the run `key` in this process and record how it ended. A refusal is raised after it was recorded."""
    reporter = _Reporter(key, on_progress)
    try:
        from engine.runs.execute import execute

        reporter.tell(message="starting")
        execute(_spec_of(key), store.make_folder(key), reporter, reporter.shard_finished)
    except Superseded:
        raise
    except EngineError as refusal:
        reporter.end("failed", "refused", refusal.as_dict())
        raise
    except KeyboardInterrupt:
        reporter.end("cancelled", "interrupted")
        raise
    except Exception as fault:
        log.exception("run %s", key)
        last = traceback.extract_tb(fault.__traceback__)[-1]
        error = RunError(
            f"run {key}: a fault inside the engine",
            found=f"{type(fault).__name__}: {fault}"[:500],
            expected="no fault",
            remedy=f"Please report it with {store.folder(key) / 'log.txt'}. "
            f"It happened in {last.name}, {Path(last.filename).name} line {last.lineno}.",
        )
        reporter.end("failed", "failed", error.as_dict())
        raise
    reporter.end("done", "done")


def _spec_of(key: str) -> "AnySpec":
    """The spec in the table, which must still give the run's key: neither it nor a file that it names may have changed.

    `spec.json` in the folder is its copy for people. Where that was edited or lost, it is written again.
    """
    with store.table() as connection:
        text = store.row(connection, key)["spec"]
    what = f"run {key}"
    try:
        spec = spec_from_json(text)
    except ValidationError as fault:
        raise RunError(
            what,
            found=f"a spec of another version: {fault.errors()[0]['msg']}",
            expected="this version's fields",
            remedy="Submit it again.",
        ) from fault
    if spec.key() != key:
        raise RunError(
            what,
            found="the spec, a file that it names, or this engine's version changed after it was submitted",
            expected="what was submitted",
            remedy="Submit it again: it becomes a run of its own, and no shards are mixed.",
        )
    path = store.make_folder(key) / "spec.json"
    try:
        same = spec_from_json(path.read_text()) == spec
    except (OSError, ValueError):  # lost, or not a spec any more
        same = False
    if not same:
        log.warning("%s differed from what was submitted and was written again", path)
        store.write_spec(key, spec.model_dump_json(indent=1))
    return spec


def _claim(key: str) -> bool:
    """Make the run this process's own, unless another worker that lives has it.

    Whoever started this process may have died before it could write so into the row.
    """
    me = os.getpid()
    with store.table() as connection:
        r = store.row(connection, key)
        other = r["status"] == "running" and r["pid"] != me and store.alive(r["pid"], r["pid_started"])
        if other or r["status"] not in ("queued", "running"):
            return False
        connection.execute("UPDATE runs SET status = 'running', pid = ?, pid_started = ? WHERE key = ?", (me, store.born(me), key))
    return True


def main(key: str) -> int:
    """Work on `key`; on a finished run, look after the queue, so that the next starts without anybody watching."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        if not _claim(key):
            log.info("run %s has another worker, or needs none", key)
            return 0
        log.info("run %s: worker %d", key, os.getpid())
        work(key)
    except EngineError as refusal:
        log.error("%s", refusal)
        return 2
    except Exception:
        return 1
    finally:
        with suppress(store.TableError):
            jobs.dispatch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
