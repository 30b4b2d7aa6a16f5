"""Which reader opens a path: readers say by `task` what they read ("fields", unless they say otherwise), and by `sniff` what is theirs."""

from pathlib import Path
from typing import Any

from engine.errors import DatasetError


def readers(task: str, kind: str | None = None) -> dict[str, Any]:
    """The readers of one task, by key; `kind` keeps those that give this kind of input."""
    from engine.registry import entries

    mine = {k: r for k, r in entries("data").items() if hasattr(r, "sniff") and getattr(r, "task", "fields") == task}
    return {k: r for k, r in mine.items() if kind is None or r.kind == kind}


def recognise(place: Path, task: str, what: str, kind: str | None = None) -> tuple[Any, str]:
    """The first reader of a task that recognises the content of a path, and its key.

    Raises DatasetError where none does, or where the one that does lacks a package.
    """
    from engine.data._members import checked_zip
    from engine.registry import catalogue
    from engine.safety import kind_of, readable_file

    known = readers(task, kind)
    for key, reader in known.items():
        if reader.sniff(place):
            lacking = next(e.unavailable for e in catalogue("data") if e.key == key)
            if lacking:
                raise DatasetError(
                    f"{what} {place.name}",
                    found=f"{reader.title}, which cannot be read here",
                    expected="an installed reader",
                    remedy=lacking,
                )
            return reader, key
    found = "a folder of no known layout" if place.is_dir() else f"a file of kind {kind_of(readable_file(place, 'dataset'))}"
    if place.is_file() and kind_of(place) == "zip" and not checked_zip(place):
        found = "a zip archive with nothing in it"
    raise DatasetError(
        f"{what} {place.name}",
        found=found,
        expected=f"one of: {', '.join(reader.title for reader in known.values())}",
        remedy="Choose a data file of one of these kinds; its content counts, not its name."
        + (f" This model classifies {kind}." if kind else ""),
    )
