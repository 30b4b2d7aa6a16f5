"""How files that can be brought end, as their readers and backbones declare it: each says its own, in one place.

An ending only tells a person, and a file dialog, what to look for. What a file is, its content decides.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from engine.errors import SpecError
from engine.registry import entries
from engine.safety import kind_of

TASKS = {"fields": "fields", "labels": "classification"}
"""What data are called when they are brought, and the task of their readers."""
KINDS = ("hdf5", "netcdf3", "grib", "zip", "npy", "safetensors", "pickle")
"""Formats that some reader takes under whatever name, since their first bytes tell what they are."""


def _readers(task: str) -> list[Any]:
    return [r for r in entries("data").values() if hasattr(r, "sniff") and getattr(r, "task", "fields") == task]


def _backbones(task: str) -> list[Any]:
    return [b for b in entries("backbones").values() if task in b.tasks]


def folders(role: str) -> tuple[str, ...]:
    """Endings of folders that a role takes whole; they are picked on the server, since a browser sends files alone."""
    return tuple(sorted({f for r in _readers(TASKS.get(role, "")) for f in getattr(r, "folders", ())}))


def endings(role: str) -> tuple[str, ...]:
    """Endings of the files of a role, sorted: `fields`, `labels`; `model of fields`, `model of labels`; `normalisation`, `climatology`.

    Raises SpecError for another role.
    """
    task = TASKS.get(role.removeprefix("model of "))
    if task is not None:
        found = (e.endings for e in (_backbones(task) if role.startswith("model of ") else _readers(task)))
    else:
        found = (b.beside[role] for b in entries("backbones").values() if role in getattr(b, "beside", {}))
    named = tuple(sorted({ending for some in found for ending in some}))
    if not named:
        known = [*TASKS, *(f"model of {t}" for t in TASKS), *sorted({r for b in entries("backbones").values() for r in _beside(b)})]
        raise SpecError("endings", found=f"role {role!r}", expected=f"one of {', '.join(known)}", remedy="Name one of these roles.")
    return named


def _beside(backbone: Any) -> Iterable[str]:
    return getattr(backbone, "beside", {})


def every_ending() -> tuple[str, ...]:
    """Endings of all files that any role takes."""
    roles = [*TASKS, *(f"model of {t}" for t in TASKS), *{r for b in entries("backbones").values() for r in _beside(b)}]
    return tuple(sorted({ending for role in roles for ending in endings(role)}))


def brings(path: Path, name: str | None = None) -> bool:
    """Whether some reader or backbone may take this file: by the ending of its name, or by its first bytes where the name says nothing."""
    return (name or path.name).lower().endswith(every_ending()) or (path.is_file() and path.stat().st_size > 0 and kind_of(path) in KINDS)


def leading(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are opened: without those that a reader finds beside them, like an array's labels or a grid's latitudes."""
    patterns = [p for family in ("data", "backbones") for e in entries(family).values() for p in getattr(e, "companions", ())]
    mine = tuple(path for path in paths if not any(fnmatch(path.name, pattern) for pattern in patterns))
    return mine or tuple(paths)
