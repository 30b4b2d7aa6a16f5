"""Files of a folder or of a zip archive, read in memory one by one, and how they lie in a folder for each class.

Nothing is unpacked to disk. Hidden files and what operating systems leave behind (`__MACOSX`, `Thumbs.db`) do not count.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from engine.data._labels import natural, some
from engine.errors import DatasetError, UnsafeFileError
from engine.safety import check_bytes, check_zip, kind_of
from engine.settings import settings

_DROPPINGS = ("__MACOSX", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class Member:
    """One file: its name below the common folder, and a way to read it, or its first bytes."""

    name: str
    size: int
    read: Callable[[int], bytes]

    @property
    def parts(self) -> tuple[str, ...]:
        """Folders and file name."""
        return PurePosixPath(self.name).parts

    @property
    def suffix(self) -> str:
        """The name's ending, in lower case."""
        return PurePosixPath(self.name).suffix.lower()


def holds_members(place: Path) -> bool:
    """Whether a path is a folder or a zip archive."""
    return place.is_dir() or (place.is_file() and kind_of(place) == "zip")


def checked_zip(place: Path) -> list[zipfile.ZipInfo]:
    """Entries of an archive that `safety.check_zip` lets pass, within the upload limit."""
    return check_zip(place, settings().upload_limit, "dataset")


@contextmanager
def members(place: Path) -> Iterator[list[Member]]:
    """The files of a folder or archive in natural order, below the folder that all share, readable while the context lasts.

    Raises UnsafeFileError for links, names that leave the folder, and what would unpack without bound.
    """
    if place.is_dir():
        yield _below_root(_of_folder(place))
        return
    checked_zip(place)
    with zipfile.ZipFile(place) as archive:
        found = [
            Member(info.filename.replace("\\", "/"), info.file_size, _reader(archive, info, place.name))
            for info in archive.infolist()
            if not info.is_dir()
        ]
        yield _below_root(found)


def _of_folder(place: Path) -> list[Member]:
    found, total = [], 0
    for folder, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = Path(folder) / name
            if path.is_symlink():
                raise UnsafeFileError(
                    f"dataset {place.name}",
                    found=f"a symbolic link: {path.relative_to(place).as_posix()!r}",
                    expected="files only",
                    remedy="Copy the file itself to its place.",
                )
        for name in files:
            path = Path(folder) / name
            if not path.is_file():
                raise UnsafeFileError(
                    f"dataset {place.name}",
                    found=f"a device or pipe: {path.relative_to(place).as_posix()!r}",
                    expected="regular files",
                    remedy="Leave it out.",
                )
            size = path.stat().st_size
            total += size
            found.append(Member(path.relative_to(place).as_posix(), size, _file_reader(path, place.name)))
    check_bytes(total, settings().upload_limit, f"dataset {place.name}", "in files")
    return found


def _file_reader(path: Path, what: str) -> Callable[[int], bytes]:
    def read(count: int = -1) -> bytes:
        try:
            with path.open("rb") as stream:
                return stream.read(count)
        except OSError as error:
            raise DatasetError(
                f"dataset {what}",
                found=f"{path.name}, which cannot be read ({error.strerror})",
                expected="readable files",
                remedy="Change its permissions, or leave it out.",
            ) from error

    return read


def _reader(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> Callable[[int], bytes]:
    def read(count: int = -1) -> bytes:
        try:
            with archive.open(info) as stream:
                return stream.read(count)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise DatasetError(
                f"dataset {what}",
                found=f"a damaged member {info.filename!r} ({error})",
                expected="a complete archive",
                remedy="Copy or download it again.",
            ) from error

    return read


def _below_root(found: list[Member]) -> list[Member]:
    """Without what does not count, and without folders at the top that hold everything."""
    kept = [m for m in found if not any(p.startswith(".") or p in _DROPPINGS for p in m.parts)]
    while kept and len({m.parts[0] for m in kept}) == 1 and max(len(m.parts) for m in kept) > 2:
        kept = [replace(m, name="/".join(m.parts[1:])) for m in kept]
    return sorted(kept, key=lambda m: [natural(p) for p in m.parts])


def by_class(found: list[Member], what: str, noun: str, outside: bool) -> list[tuple[str | None, Member]]:
    """Each file with the folder it lies in as its class; None for all from `outside`, where folders mean nothing.

    Raises DatasetError where files lie beside the folders, or in folders within them (train/cat/…: which is the class?).
    """
    if outside:
        return [(None, m) for m in found]
    deep = sorted({m.parts[0] for m in found if len(m.parts) > 2}, key=natural)
    if deep:
        raise DatasetError(
            what,
            found=f"folders within folders: {some(deep)}",
            expected="one level of folders, one for each class",
            remedy="Choose one of these folders, or flatten them.",
        )
    loose = [m.name for m in found if len(m.parts) == 1]
    if loose:
        raise DatasetError(
            what,
            found=f"{noun} in no class's folder: {some(loose, 4)}",
            expected="a folder for each class",
            remedy="Sort them into folders named by class, or bring them as outside ones: python -m engine run --outside name=FILE",
        )
    return [(m.parts[0], m) for m in found]
