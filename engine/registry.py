"""Discovery of plug-ins: one file each, found in its family's package, named by its key.

A family is a package of the engine (`scoring`, `methods`, `backbones`, `data`, `figures`). Each module in it whose name
does not begin with an underscore declares `ENTRIES`, a tuple of objects with a `key` and a `title`. Adding one touches no other file.
"""

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any

from engine.errors import SpecError

FAMILIES = ("data", "backbones", "methods", "scoring", "figures")


@dataclass(frozen=True)
class CatalogueEntry:
    """One plug-in as the catalogue shows it; `unavailable` says why it cannot be used here, and how to change that."""

    key: str
    title: str
    module: str
    unavailable: str | None


@cache
def entries(family: str) -> dict[str, Any]:
    """All entries of a family by key. A key declared twice raises and names both files."""
    if family not in FAMILIES:
        raise SpecError(
            "catalogue", found=f"family {family!r}", expected=f"one of {', '.join(FAMILIES)}", remedy="Name one of these families."
        )
    package = importlib.import_module(f"engine.{family}")
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for entry in module.ENTRIES:
            if entry.key in found:
                raise RuntimeError(f"key {entry.key!r} is declared twice: in {origin[entry.key]} and in {module.__file__}")
            found[entry.key], origin[entry.key] = entry, str(module.__file__)
    return found


def get(family: str, key: str) -> Any:
    """One entry, or an error that lists the keys there are."""
    known = entries(family)
    if key not in known:
        raise SpecError(
            f"{family} catalogue", found=f"{key!r}", expected=f"one of {', '.join(sorted(known))}", remedy="Use one of these names."
        )
    return known[key]


def catalogue(family: str) -> list[CatalogueEntry]:
    """The entries of a family and, where one is unavailable, why and how to install what it needs."""
    listing = []
    for key, entry in entries(family).items():
        missing = [name for name in getattr(entry, "requires", ()) if importlib.util.find_spec(name) is None]
        reason = f"needs {', '.join(missing)}: pip install {' '.join(missing)}" if missing else None
        module = entry.__module__ if isinstance(entry, type) else type(entry).__module__
        listing.append(CatalogueEntry(key, entry.title, module, reason))
    return listing
