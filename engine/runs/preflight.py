"""A look at a checkpoint and its data before anything is computed, in a process of its own.

Reading a model needs torch, and a file that was brought may be hostile or huge: both are kept out of the process that
serves pages. What comes back is the document of `python -m engine inspect … --json`.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.errors import EngineError, RunError
from engine.runs.reading import as_options
from engine.settings import ROOT

TIMEOUT = 180.0
"""Seconds. Importing torch takes a few; a self-test of one forward on a large model takes the rest."""


def preflight(
    checkpoint: Path,
    data: Path | Sequence[Path] = (),
    *,
    calibrate: Sequence[Path] = (),
    architecture: dict[str, Any] | None = None,
    normalisation: Path | None = None,
    climatology: Path | None = None,
    timeout: float = TIMEOUT,
    **reading: Any,
) -> dict[str, Any]:
    """The `inspect` document of a checkpoint and its data. Raises what `inspect` refuses, and on a timeout.

    `reading`: how the files are to be read, by the fields of `Reading` or `LabelledReading`.
    """
    paths = (data,) if isinstance(data, Path) else tuple(data)
    command = [sys.executable, "-m", "engine", "inspect", str(checkpoint), *map(str, paths), "--json"]
    for path in calibrate:
        command += ["--calibrate", str(path)]
    for option, value in (("--normalisation", normalisation), ("--climatology", climatology)):
        command += [option, str(value)] if value else []
    command += ["--architecture", json.dumps(architecture)] if architecture else []
    command += as_options(reading)
    subject = f"preflight of {checkpoint.name}"
    # a session of its own: on a timeout everything that it started goes with it
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise RunError(
            subject,
            found=f"no answer within {timeout:.0f} s",
            expected="an answer",
            remedy="Try a smaller data file, or run `python -m engine inspect` by hand.",
        ) from None
    return read_document(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode, subject)


def read_document(out: str, err: str, code: int, subject: str) -> dict[str, Any]:
    """The document on standard output; an error document is raised as the refusal that it is."""
    try:
        document = json.loads(out)
    except json.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        last = next((line for line in reversed(err.strip().splitlines()) if line.strip()), "nothing")
        raise RunError(
            subject,
            found=f"exit code {code}, last message: {last[:300]}",
            expected="a JSON document",
            remedy="See `python -m engine doctor`.",
        )
    if "error" in document:
        fields = {name: str(document["error"].get(name, "")) for name in ("what", "found", "expected", "remedy")}
        raise EngineError(fields.pop("what") or subject, **fields)
    return document
