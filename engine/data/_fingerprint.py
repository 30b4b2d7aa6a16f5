"""Hash of the content of files, remembered by (path, size, time of change) so that a large file is read once."""

import hashlib
import os
from pathlib import Path

from engine.settings import settings


def content_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, or of a folder's files with their relative names."""
    if path.is_dir():
        digest = hashlib.sha256()
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()}\0{content_hash(file)}\n".encode())
        return digest.hexdigest()
    state = path.stat()
    key = hashlib.sha256(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}".encode()).hexdigest()
    note = settings().home / "fingerprints" / key
    if state.st_size >= 2**20 and note.exists():
        return note.read_text()
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if state.st_size >= 2**20:
        note.parent.mkdir(parents=True, exist_ok=True)
        # written whole under another name, then moved: two processes may hash the same file
        draft = note.with_suffix(f".{os.getpid()}")
        draft.write_text(found)
        draft.replace(note)
    return found


def fingerprint(roles: dict[str, list[Path]], options: dict[str, object]) -> str:
    """Hash of what was read: file contents by role, and the options that change what is read; file names do not count."""
    digest = hashlib.sha256()
    for role in sorted(roles):
        for part in sorted(content_hash(path) for path in roles[role]):
            digest.update(f"{role}\0{part}\n".encode())
    for name, value in sorted(options.items()):
        digest.update(f"{name}={value!r}\n".encode())
    return digest.hexdigest()
