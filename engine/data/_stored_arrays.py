"""Arrays of `.npz` and `.npy` files: headers are looked at before anything is read, Python objects are never unpickled."""

import zipfile
import zlib
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from engine.data._members import checked_zip
from engine.errors import DatasetError, UnsafeFileError
from engine.safety import check_bytes, human, memory_limit

_DAMAGE = (ValueError, EOFError, OSError, KeyError, SyntaxError, TokenError, zipfile.BadZipFile, zlib.error, NotImplementedError)
"""What NumPy and zipfile raise on damaged files; the header of an array is a Python literal, hence syntax and token."""


def from_npz(file: Path, what: str, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The arrays of these names (in any case), by name in lower case; where none is there, DatasetError lists what is."""
    shapes: dict[str, tuple[int, ...]] = {}
    total = 0
    try:
        with zipfile.ZipFile(file) as archive:
            for member in checked_zip(file):
                with archive.open(member) as stream:
                    shapes[member.filename.removesuffix(".npy")] = _shape(stream, member.file_size, member.filename, what)
                total += member.file_size
        wanted = {name.lower(): name for name in shapes if name.lower() in names}
        if not wanted:
            raise DatasetError(
                what,
                found=f"arrays {', '.join(f'{n} {s}' for n, s in list(shapes.items())[:8])}",
                expected=f"arrays named {', '.join(names)}",
                remedy="Save one set of images and labels in a file, under these names.",
            )
        check_bytes(total, memory_limit(), what, "in arrays")
        with np.load(file, allow_pickle=False) as archive:
            return {low: archive[name] for low, name in wanted.items()}
    except _DAMAGE as error:
        raise _damaged(what, error) from error


def from_npy(file: Path, what: str) -> NDArray[Any]:
    """The array of a file, mapped: read where it is used."""
    try:
        with file.open("rb") as stream:
            _shape(stream, file.stat().st_size, file.name, what)
        return np.load(file, allow_pickle=False, mmap_mode="r")
    except _DAMAGE as error:
        raise _damaged(what, error) from error


def header(stream: IO[bytes], name: str, what: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a stored array, without its values. Raises UnsafeFileError for Python objects, ValueError for another header."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise UnsafeFileError(
            what, found=f"{name} holds Python objects, which run code when read", expected="numbers", remedy="Save plain arrays."
        )
    return tuple(shape), dtype


def _shape(stream: IO[bytes], size: int, name: str, what: str) -> tuple[int, ...]:
    """The header's shape; an array of Python objects is refused, and one that claims more bytes than are stored."""
    shape, dtype = header(stream, name, what)
    claimed = prod(shape) * dtype.itemsize
    if claimed > size:
        raise DatasetError(
            what,
            found=f"{name} of {human(claimed)} by its header, with {human(size)} stored",
            expected="a complete array",
            remedy="Copy or download it again.",
        )
    return shape


def _damaged(what: str, error: Exception) -> DatasetError:
    return DatasetError(
        what, found=f"content that cannot be read ({str(error)[:160]})", expected="plain arrays", remedy="Save it again with numpy.savez."
    )
