"""What a browser has brought, kept on disk under its token: a reload of the page starts a new session, and finds it again.

The token is in a cookie that ends with the browser and is sent to this server alone, so nothing of it is in a link that someone
passes on. Only names and places of files are written here, and only files that are still in the store, or in a folder that
the server's owner offers, are given back.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from engine.errors import EngineError
from engine.settings import settings
from pages._web import uploads


def cookie() -> str:
    """The cookie's name: another one for each server, since browsers share cookies between the ports of one host."""
    return f"nuscope_{uploads.server_id()}"


def _note(who: str) -> Path:
    return settings().uploads / ".brought" / f"{who}.json"


def remember(token: str, role: str, files: Mapping[str, Path]) -> None:
    """Write down what this browser has brought for a role. Notes that are older than any token are removed."""
    who = uploads.owner(token)
    if who is None:
        return
    note = _note(who)
    note.parent.mkdir(parents=True, exist_ok=True)
    known = _read(note) | {role: {name: str(path) for name, path in files.items()}}
    draft = note.with_suffix(f".{secrets.token_hex(4)}")
    draft.write_text(json.dumps(known))
    draft.replace(note)
    for old in note.parent.glob("*.json"):
        if old != note and time.time() - old.stat().st_mtime > uploads.LIFETIME:
            old.unlink(missing_ok=True)


def recall(token: str, role: str) -> dict[str, Path]:
    """What this browser has brought for a role and is still there, by name."""
    who = uploads.owner(token)
    known = _read(_note(who)).get(role, {}) if who else {}
    return {str(name): Path(place) for name, place in known.items() if _is_ours(Path(place))}


def _read(note: Path) -> dict[str, dict[str, str]]:
    try:
        found = json.loads(note.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_ours(path: Path) -> bool:
    """A file of the store, or one that the owner's folders offer."""
    if path in uploads.offered():
        return True
    if path.parent.parent != settings().uploads or not os.access(path, os.R_OK):
        return False
    try:
        return uploads.find(path.parent.name, path.name).path == path
    except EngineError:
        return False
