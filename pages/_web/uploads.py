"""The store of files that users bring: streamed to disk in pieces, resumable, kept under the hash of their content.

A token is given to each browser and signed, so that pieces of two users never meet and nobody uploads without a page of
this app. While a file grows it lies under its token; when it is whole it moves to `uploads/<hash>/<name>`.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import engine
from engine.errors import DatasetError, UnsafeFileError
from engine.settings import settings

RESERVE = 1 << 30
"""Bytes of disk that uploads leave free: runs and the table need room to end properly."""
LIFETIME = 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{8,64}")


class TooLargeError(DatasetError):
    """More bytes than one upload may have."""


class DiskFullError(DatasetError):
    """An upload that would leave too little disk."""


@dataclass(frozen=True)
class Brought:
    """A whole file in the store; `id` and `name` find it again, `path` stays on the server."""

    id: str
    name: str
    bytes: int
    path: Path


def _secret() -> bytes:
    """The key that signs tokens, made once. It appears under its name only when whole: nobody may read an empty key."""
    path = settings().uploads / ".secret"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f".secret-{secrets.token_hex(8)}")
        with os.fdopen(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        with contextlib.suppress(FileExistsError):
            os.link(own, path)
        own.unlink()
    return path.read_bytes()


def server_id() -> str:
    """Eight digits that tell this server from others, and nothing of its secret."""
    return hashlib.sha256(b"name" + _secret()).hexdigest()[:8]


def grant() -> str:
    """A token for one browser."""
    body = f"{secrets.token_hex(16)}.{int(time.time())}"
    return f"{body}.{hmac.new(_secret(), body.encode(), 'sha256').hexdigest()}"


def owner(token: str) -> str | None:
    """Whose token it is, or None if it is not ours or too old."""
    body, _, signature = token.rpartition(".")
    who, _, issued = body.partition(".")
    if not hmac.compare_digest(hmac.new(_secret(), body.encode(), "sha256").hexdigest().encode(), signature.encode()):
        return None
    return who if issued.isdigit() and time.time() - int(issued) < LIFETIME else None


def safe_name(name: str) -> str:
    """The file's own name reduced to harmless letters."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", Path(name.replace("\\", "/")).name)[-120:].lstrip(".-_")
    if not plain:
        raise UnsafeFileError("upload", found=f"the name {name[:40]!r}", expected="letters or digits in it", remedy="Rename the file.")
    return plain


def check_kind(who: str, upload: str, name: str) -> None:
    """Refuse a growing file that no reader takes, by its name and by its first bytes; what has arrived of it is dropped."""
    part = _part(who, upload)
    if not engine.brings(part, name):
        part.unlink(missing_ok=True)
        raise UnsafeFileError(
            f"upload {name}",
            found="a name and first bytes of no kind that is read here",
            expected=f"a name ending in {', '.join(engine.every_ending())}",
            remedy="Bring the file in one of these forms. Pack a folder as a .zip.",
        )


def _part(who: str, upload: str) -> Path:
    """The growing file. Both parts are checked: they come from a request."""
    if not _ID.fullmatch(who) or not _ID.fullmatch(upload):
        raise UnsafeFileError(
            "upload", found="an id with other characters", expected="8 to 64 hex digits", remedy="Reload the page and try again."
        )
    return settings().uploads / ".parts" / who / upload


def received(who: str, upload: str) -> int:
    """Bytes that have arrived, from which a broken upload goes on."""
    part = _part(who, upload)
    return part.stat().st_size if part.exists() else 0


def check_room(total: int, have: int = 0) -> None:
    """Refuse what is too large or would fill the disk."""
    limit = settings().upload_limit
    if not 0 < total <= limit:
        raise TooLargeError(
            "upload",
            found=f"{total:,} bytes",
            expected=f"1 to {limit:,} bytes",
            remedy="Put larger files into a folder of NUSCOPE_DATA_FOLDERS and pick them there.",
        )
    settings().uploads.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(settings().uploads).free
    if free - (total - have) < RESERVE:
        raise DiskFullError(
            "upload",
            found=f"{free:,} bytes of free disk",
            expected=f"{total - have + RESERVE:,} bytes",
            remedy="Free some disk, or pick the file from a folder.",
        )


def open_part(who: str, upload: str) -> Path:
    """The growing file's path, its folder made."""
    part = _part(who, upload)
    part.parent.mkdir(parents=True, exist_ok=True)
    return part


def finish(who: str, upload: str, name: str) -> Brought:
    """Move a whole file to its place under the hash of its content."""
    part, name = _part(who, upload), safe_name(name)
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    place = settings().uploads / digest.hexdigest()[:32]
    place.mkdir(parents=True, exist_ok=True)
    part.replace(place / name)
    return Brought(place.name, name, (place / name).stat().st_size, place / name)


def find(file_id: str, name: str) -> Brought:
    """A file of the store by its id and name."""
    path = settings().uploads / file_id / safe_name(name) if _ID.fullmatch(file_id) else None
    if path is None or not path.is_file():
        raise DatasetError(
            f"uploaded file {name}", found="nothing in the store", expected="a file that was uploaded whole", remedy="Upload it again."
        )
    return Brought(file_id, path.name, path.stat().st_size, path)


def together(files: Sequence[Path]) -> tuple[Path, ...]:
    """The files to open, in a folder of their own where one of them is to be found beside another (an array and its labels)."""
    if len(engine.leading(files)) == len(files):
        return tuple(files)
    store = settings().uploads
    mine = [f for f in files if f.is_relative_to(store) and f.is_file()]
    name = hashlib.sha256("\n".join(sorted(str(f.relative_to(store)) for f in mine)).encode()).hexdigest()[:32]
    place = store / ".sets" / name
    place.mkdir(parents=True, exist_ok=True)
    for file in mine:
        with contextlib.suppress(FileExistsError):
            os.link(file, place / file.name)
    return engine.leading([place / f.name if f in mine else f for f in files])


def offered() -> list[Path]:
    """Files of the folders that this server's owner allows (`NUSCOPE_DATA_FOLDERS`), sorted; links that lead out are left out."""
    found: list[Path] = []
    endings, whole = engine.every_ending(), engine.folders("fields")
    for folder in filter(None, settings().data_folders.split(":")):
        root = Path(folder).resolve()
        for path in sorted(root.rglob("*")) if root.is_dir() else ():
            name = path.name.lower()
            if ((name.endswith(endings) and path.is_file()) or (name.endswith(whole) and path.is_dir())) and path.resolve().is_relative_to(
                root
            ):
                found.append(path)
        if len(found) > 2000:
            break
    return found[:2000]
