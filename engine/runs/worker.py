"""The worker process: `python -m engine.runs.worker KEY` computes one run, then takes the next from the queue."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable

from engine.errors import EngineError
from engine.runs import jobs, store
from engine.runs.spec import RunSpec

log = logging.getLogger("engine.worker")
OnProgress = Callable[[int, int, str], None]
PERIOD = 0.4
"""Seconds between two writes of progress to the table."""


def work(key: str, on_progress: OnProgress | None = None) -> None:
    """Compute the run `key` in this process and record how it ended. A refusal is raised after it was recorded."""
    from engine.runs.execute import execute

    path = store.folder(key)
    spec = RunSpec.model_validate_json((path / "spec.json").read_text())
    store.update(key, started=time.time(), message="starting")
    last = -1.0
    first_done: int | None = None

    def report(done: int, total: int, message: str) -> None:
        nonlocal last, first_done
        if on_progress:
            on_progress(done, total, message)
        now = time.monotonic()
        if first_done is None:
            first_done = done
            store.update(key, started=time.time(), done_before=done)
        if now - last >= PERIOD or done == total:
            last = now
            store.update(key, done=done, total=total, message=message, **({"attempts": 1} if done > first_done else {}))

    try:
        execute(spec, path, report)
        store.update(key, status="done", finished=time.time(), message="done", error=None)
    except EngineError as refusal:
        store.update(key, status="failed", finished=time.time(), error=json.dumps(refusal.as_dict()), message="refused")
        raise
    except KeyboardInterrupt:
        store.update(key, status="cancelled", message="interrupted")
        raise
    except Exception as fault:
        log.exception("run %s", key)
        error = {
            "what": f"run {key}: a fault inside the engine",
            "found": f"{type(fault).__name__}: {fault}"[:500],
            "expected": "no fault",
            "remedy": f"Please report it with {path / 'log.txt'}. Last frame: {traceback.format_exc().strip().splitlines()[-3].strip()}",
        }
        store.update(key, status="failed", finished=time.time(), error=json.dumps(error), message="failed")
        raise


def main(key: str) -> int:
    """Work on `key`; on a finished run, look after the queue, so that the next starts without anybody watching."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        work(key)
    except EngineError as refusal:
        log.error("%s", refusal)
        return 2
    except Exception:
        return 1
    finally:
        jobs.dispatch()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
