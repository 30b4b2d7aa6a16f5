"""Finished pieces of a run on disk: npz files that appear whole or not at all, and are used only where they are undamaged."""

import errno
import logging
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from engine.errors import RunError

log = logging.getLogger("engine.runs")


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn what an operating system says about a full disk or a folder without rights into a refusal that says what to do.

    HDF5 reports a failed write as an OSError or a RuntimeError, by where it happens.
    """
    try:
        yield
    except (OSError, RuntimeError) as fault:
        full = "errno = 28" in str(fault) or getattr(fault, "errno", None) == errno.ENOSPC
        if isinstance(fault, RuntimeError) and not full:
            raise
        raise RunError(
            f"writing to {place}",
            found="no space left" if full else str(fault),
            expected="a folder that can be written",
            remedy="Free some space or mend the rights, then resume the run: it goes on from its last finished shard.",
        ) from fault


def make_place(place: Path) -> Path:
    """The folder of pieces, made where it is not there; what a dead worker left half written is swept out of it."""
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob("*.part"):
            owner = left.name.split(".")[-2]
            if not (owner.isdigit() and psutil.pid_exists(int(owner)) and int(owner) != os.getpid()):
                left.unlink(missing_ok=True)
    return place


def save(path: Path, arrays: Mapping[str, NDArray]) -> None:
    """Write a piece. The process's id is in the temporary name: should two ever write one piece, each file is still whole."""
    part = path.with_name(f"{path.stem}.{os.getpid()}.part")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def load(path: Path, cases: list[int]) -> dict[str, NDArray] | None:
    """The piece's arrays where they are whole and of these cases; None where it is missing, damaged or of other cases."""
    arrays = read(path)
    if arrays is not None and ("cases" not in arrays or arrays["cases"].tolist() != cases):
        log.warning("%s holds other cases and is computed again", path.name)
        return None
    return arrays


def read(path: Path) -> dict[str, NDArray] | None:
    """The piece's arrays, every one read against its checksum; None where it is missing or damaged."""
    if not path.exists():
        return None
    try:
        # opened here: NumPy leaves a file that it opened itself open when it is no archive
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, TypeError) as fault:
        log.warning("%s is damaged and is computed again: %s", path.name, fault)
        return None
