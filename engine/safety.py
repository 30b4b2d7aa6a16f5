"""What a file is, and whether it may be opened: the checks that come before any reader. Source of each: a real report.

A file's first bytes decide what it is; its name never does.
"""

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from engine.errors import CheckpointError, DatasetError, EngineError, UnsafeFileError

MAX_RATIO = 200
"""Compression beyond this is a bomb: real fields pack 2 to 20 times, a mask of zeros some 100 times."""


def readable_file(path: str | Path, what: str = "file") -> Path:
    """The resolved path of a regular, readable, non-empty local file."""
    kind = _error(what)
    file = resolved(path, what)
    if file.is_dir():
        raise kind(f"{what} {file.name}", found="a folder", expected="a file", remedy="Choose a file inside it.")
    if not stat.S_ISREG(file.stat().st_mode):
        raise UnsafeFileError(
            f"{what} {file.name}", found="a device or pipe", expected="a regular file", remedy="Copy the data to a file first."
        )
    if file.stat().st_size == 0:
        raise kind(
            f"{what} {file.name}", found="an empty file (0 bytes)", expected="a file with content", remedy="Copy or download it again."
        )
    return file


@contextmanager
def reading(what: str, kind: type[EngineError] = DatasetError) -> Iterator[None]:
    """Whatever a library raises while it reads what someone brought is a refusal that names it.

    Damaged files make libraries fail in ways that none of them lists (IndexError, MemoryError, errors of C code); for who brought
    the file they all mean one thing. What was refused in words already stays as it is.
    """
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        lines = str(error).splitlines()
        detail = f"{type(error).__name__}: {lines[0][:160]}" if lines and lines[0] else type(error).__name__
        raise kind(
            what,
            found=f"content that cannot be read ({detail})",
            expected="a complete file of its kind",
            remedy="Copy or download it again and compare the sizes, or write it anew.",
        ) from error


def _error(what: str) -> type[EngineError]:
    return CheckpointError if what == "checkpoint" else DatasetError


def resolved(path: str | Path, what: str = "file") -> Path:
    """The absolute local path of an existing, readable file or folder."""
    text, kind = str(path), _error(what)
    if "://" in text or text.startswith(("//", "\\\\")):
        raise UnsafeFileError(
            f"{what} {text[:80]}", found="an address", expected="a file on this machine", remedy="Download it first and give its path."
        )
    file = Path(path).expanduser().resolve()
    if not file.exists():
        raise kind(f"{what} {file.name}", found="no such file", expected="an existing file", remedy=f"Check the path {text}.")
    if not os.access(file, os.R_OK):
        raise kind(f"{what} {file.name}", found="no permission to read it", expected="a readable file", remedy="Change its permissions.")
    return file


def kind_of(path: Path) -> str:
    """The format by the first bytes: hdf5, netcdf3, grib, zip, npy, safetensors, pickle, gzip, tar, html, lfs, text or unknown."""
    with path.open("rb") as stream:
        head = stream.read(512)
        # an HDF5 file may begin with a user block of 512, 1024, ... bytes
        for offset in (512, 1024, 2048):
            stream.seek(offset)
            if stream.read(8) == b"\x89HDF\r\n\x1a\n":
                return "hdf5"
    start = head.lstrip()[:64].lower()
    for kind, magic in (
        ("hdf5", b"\x89HDF\r\n\x1a\n"),
        ("grib", b"GRIB"),
        ("zip", b"PK\x03\x04"),
        ("zip", b"PK\x05\x06"),
        ("npy", b"\x93NUMPY"),
        ("gzip", b"\x1f\x8b"),
    ):
        if head.startswith(magic):
            return kind
    if head[:3] == b"CDF" and head[3:4] in (b"\x01", b"\x02", b"\x05"):
        return "netcdf3"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**40:
        return "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if head[257:262] == b"ustar":
        return "tar"
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "html"
    if start.startswith(b"version https://git-lfs"):
        return "lfs"
    at = head.find(b"GRIB")
    if 0 < at < 256 and head[at + 7 : at + 8] in (b"\x01", b"\x02"):  # a bulletin's heading before the first message
        return "grib"
    if head and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        return "text"
    return "unknown"


def check_zip(path: Path, limit: int, what: str) -> list[zipfile.ZipInfo]:
    """The members of a zip file, none of which leaves its folder, is a link, or unpacks without bound."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except NotImplementedError as error:
        raise DatasetError(
            f"{what} {path.name}",
            found=f"an archive of an unknown kind ({error})",
            expected="a plain zip archive",
            remedy="Copy or download it again, or pack it anew.",
        ) from error
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise DatasetError(
            f"{what} {path.name}",
            found=f"a truncated or damaged zip archive ({error})",
            expected="a complete archive",
            remedy="Copy or download it again.",
        ) from error
    for member in members:
        name = PurePosixPath(member.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or (name.parts and ":" in name.parts[0]):
            raise UnsafeFileError(
                f"{what} {path.name}",
                found=f"a member that leaves its folder: {member.filename!r}",
                expected="plain relative names",
                remedy="Pack it again without such names.",
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise UnsafeFileError(
                f"{what} {path.name}", found=f"a symbolic link: {member.filename!r}", expected="files only", remedy="Pack the file itself."
            )
        if member.flag_bits & 1:
            raise DatasetError(
                f"{what} {path.name}", found="an encrypted archive", expected="no password", remedy="Pack it again without a password."
            )
        if member.file_size > 10**7 and member.file_size > MAX_RATIO * max(1, member.compress_size):
            raise UnsafeFileError(
                f"{what} {path.name}",
                found=f"{member.filename!r}: {member.compress_size} bytes unpack to {member.file_size}",
                expected=f"at most {MAX_RATIO} times the packed size",
                remedy="Bring it unpacked.",
            )
    total = sum(member.file_size for member in members)
    check_bytes(total, limit, f"{what} {path.name}", "unpacked")
    return members


def check_bytes(count: int, limit: int, what: str, state: str) -> None:
    """Refuse what would take more than `limit` bytes, with both numbers."""
    if count > limit:
        raise UnsafeFileError(
            what,
            found=f"{human(count)} {state}",
            expected=f"at most {human(limit)}",
            remedy="Choose fewer variables or times, or raise the limit (NUSCOPE_MEMORY_LIMIT, NUSCOPE_UPLOAD_LIMIT).",
        )


def human(count: float) -> str:
    """Bytes in words: 320.0 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if abs(count) < 1000 or unit == "PB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def memory_limit() -> int:
    """Bytes that one job may plan for: the setting, else three quarters of this machine's memory."""
    from engine.settings import settings

    return settings().memory_limit or int(0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_hdf5(path: Path, what: str = "dataset") -> None:
    """Refuse an HDF5 or NetCDF4 file that reads other files: external storage or links, links out, virtual datasets."""
    import h5py

    def refuse(name: str, kind: str) -> UnsafeFileError:
        return UnsafeFileError(
            f"{what} {path.name}",
            found=f"{kind} at {name!r}, which reads another file of this machine",
            expected="a file that holds its own data",
            remedy="Copy the data into one file (for example with h5repack or nccopy).",
        )

    def walk(group: "h5py.Group", trail: str, depth: int) -> None:
        if depth > 32:
            raise UnsafeFileError(
                f"{what} {path.name}",
                found="groups nested more than 32 deep",
                expected="a flat file",
                remedy="Copy the variables into one group.",
            )
        for name in group:
            place = f"{trail}/{name}"
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise refuse(place, f"an external link to {link.filename!r}")
            if isinstance(link, h5py.SoftLink):
                raise refuse(place, f"a soft link to {link.path!r}")
            item = group[name]
            if isinstance(item, h5py.Dataset):
                if item.is_virtual:
                    raise refuse(place, "a virtual dataset")
                if item.external:
                    raise refuse(place, f"external storage in {item.external[0][0]!r}")
                check_size(place, item)
            elif isinstance(item, h5py.Group):
                if item.id in seen:
                    continue
                seen.append(item.id)
                walk(item, place, depth + 1)

    def check_size(place: str, item: "h5py.Dataset") -> None:
        claimed, stored = int(item.size or 0) * item.dtype.itemsize, item.id.get_storage_size()
        # fields that were never written take no space in the file, and all of it in memory
        if claimed > memory_limit() and claimed > MAX_RATIO * max(stored, 1):
            raise UnsafeFileError(
                f"{what} {path.name}",
                found=f"{place!r} of {human(claimed)} in a file that stores {human(stored)} of it",
                expected=f"at most {MAX_RATIO} times what is stored, or at most {human(memory_limit())}",
                remedy="Write only what holds data.",
            )

    seen: list = []
    try:
        with h5py.File(path, "r") as file:
            walk(file, "", 0)
    except (OSError, RuntimeError, KeyError) as error:
        raise DatasetError(
            f"{what} {path.name}",
            found=f"a truncated or damaged HDF5 file ({str(error)[:160]})",
            expected="a complete file",
            remedy="Copy or download it again and compare the sizes.",
        ) from error
