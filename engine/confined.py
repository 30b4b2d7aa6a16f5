"""Reading what nobody vouches for in a process of its own, under limits that it cannot lift again.

`command` is what to start; run as a script (`confined.py LIMITS SCRIPT ARGUMENT …`) this file puts its own process under the
limits, and only then runs the script. A library that aborts, or a file that asks for more memory than there is, ends that
process alone. Limits are the system's resource limits: bytes of memory, seconds of processor time, bytes of any file that is
written, open files, no core dump, no further processes (root is exempt from the last).
"""

import json
import os
import resource
import runpy
import sys
from pathlib import Path

THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
"""Linear algebra would start threads, which the limits forbid."""


def command(script: Path, *arguments: str, memory: int, written: int, seconds: int, files: int = 64) -> list[str]:
    """The command line that runs `script` under limits; to be started with `environment()`.

    `memory` and `written` in bytes, `seconds` of processor time, `files` open at once.
    """
    limits = {"AS": memory, "FSIZE": written, "CPU": seconds, "NOFILE": files, "CORE": 0, "NPROC": 0}
    # -I: no user site, no PYTHON* variables, no current folder on the path
    return [sys.executable, "-I", str(Path(__file__).resolve()), json.dumps(limits), str(script), *arguments]


def environment() -> dict[str, str]:
    """No variable of this process but the default search path."""
    return {"PATH": os.defpath, **THREADS}


def confine(limits: dict[str, int]) -> None:
    """Put this process under limits, never above those that it has already."""
    for name, bound in limits.items():
        what = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(what)[1]
        bound = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (bound, bound))


if __name__ == "__main__":
    confine(json.loads(sys.argv[1]))
    script, sys.argv = sys.argv[2], sys.argv[2:]
    runpy.run_path(script, run_name="__main__")
