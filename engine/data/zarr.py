"""Zarr stores, format 2 and 3, as a folder or a zip file (unpacked first). Metadata is read before the library sees it."""

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data._decode import decode
from engine.data._fingerprint import content_hash
from engine.errors import DatasetError, UnsafeFileError
from engine.kernels.sentinels import classic
from engine.safety import MAX_RATIO, check_zip, human, kind_of, memory_limit
from engine.settings import settings

if TYPE_CHECKING:
    import xarray as xr

_MARKS = (".zgroup", ".zmetadata", "zarr.json")


class Zarr:
    """A Zarr group whose arrays name their dimensions."""

    key = "zarr"
    title = "Zarr 2 and 3 (folder or zip)"
    endings = (".zip",)
    folders = (".zarr",)
    requires = ("zarr",)

    def sniff(self, path: Path) -> bool:
        """The folder, or the zip file, holds a Zarr group's metadata."""
        if path.is_dir():
            return any((path / mark).is_file() for mark in _MARKS)
        if not path.is_file() or kind_of(path) != "zip":
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return _root(archive.namelist()) is not None
        except zipfile.BadZipFile:
            return False

    def open(self, path: Path, **_: object) -> "xr.Dataset":
        """Open lazily; a zip is unpacked into the engine's folder, once for each content."""
        import xarray as xr

        folder = path if path.is_dir() else _unpack(path)
        check_store(folder, path.name)
        consolidated = (folder / ".zmetadata").exists() or "consolidated_metadata" in _json(folder / "zarr.json", path.name)
        try:
            raw = xr.open_dataset(folder, engine="zarr", consolidated=consolidated, chunks=None, decode_cf=False)
            return decode(_declared(raw, folder, path.name))
        except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise DatasetError(
                f"dataset {path.name}",
                found=f"a Zarr store that cannot be read ({str(error)[:200]})",
                expected="a complete group",
                remedy="Copy the whole folder again, or pack it as a zip.",
            ) from error


def _declared(raw: "xr.Dataset", folder: Path, name: str) -> "xr.Dataset":
    """Only what the file declares is missing. In format 2 xarray takes an array's fill_value for it: what was never written, most often 0.

    An attribute `_FillValue` counts. Without one, fill_value does where it is a number that files use for missing values
    (NaN, −9999), since xarray itself writes a `_FillValue` there and nowhere else.
    """
    for key in raw.variables:
        array = folder / str(key) / ".zarray"
        if not array.exists():
            continue
        explicit = _json(array.with_name(".zattrs"), name).get("_FillValue")
        value = raw[key].attrs.pop("_FillValue", None)
        if explicit is not None:
            raw[key].attrs["_FillValue"] = raw[key].dtype.type(explicit)
        elif isinstance(value, np.number) and (np.isnan(value) or (classic(float(value)) and not 0 <= value < 900)):
            raw[key].attrs["_FillValue"] = value
    return raw


def _root(names: list[str]) -> str | None:
    """The folder inside the archive that is the group: the top, or the only folder at the top."""
    tops = {name.split("/")[0] for name in names}
    for root in ("", *(f"{top}/" for top in tops if len(tops) == 1)):
        if any(root + mark in names for mark in _MARKS):
            return root
    return None


def _unpack(path: Path) -> Path:
    members = check_zip(path, settings().upload_limit * 4, "dataset")
    root = _root([m.filename for m in members])
    target = settings().home / "unpacked" / content_hash(path)
    if not target.exists():
        draft = target.with_suffix(".part")
        draft.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path) as archive:
            archive.extractall(draft)
        draft.replace(target)
    return target / root if root else target


def _json(path: Path, name: str) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise DatasetError(
            f"dataset {name}", found=f"{path.name} that is not JSON ({error})", expected="complete metadata", remedy="Copy the store again."
        ) from error
    return content if isinstance(content, dict) else {}


def check_store(folder: Path, name: str) -> None:
    """Refuse links that leave the store, codecs that run code, arrays that are mostly claimed, and missing dimension names."""
    nameless = []
    for file in folder.rglob("*"):
        if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve()):
            raise UnsafeFileError(
                f"dataset {name}",
                found=f"a link that leaves the store: {file.name}",
                expected="files of its own",
                remedy="Copy the store with its files.",
            )
        if file.name == ".zarray":
            meta, attrs = _json(file, name), _json(file.with_name(".zattrs"), name)
            shape, itemsize = meta.get("shape", []), _itemsize(str(meta.get("dtype", "<f8")))
            named = "_ARRAY_DIMENSIONS" in attrs
        elif file.name == "zarr.json" and (meta := _json(file, name)).get("node_type") == "array":
            shape, itemsize = meta.get("shape", []), _itemsize(str(meta.get("data_type", "float64")))
            named = bool(meta.get("dimension_names")) and None not in meta["dimension_names"]
        else:
            continue
        if "pickle" in json.dumps(meta).lower():
            raise UnsafeFileError(
                f"dataset {name}",
                found=f"array {file.parent.name} packed with pickle, which runs code when read",
                expected="numbers",
                remedy="Write the array with a numeric type.",
            )
        claimed = itemsize
        for size in shape:
            claimed *= int(size)
        stored = sum(f.stat().st_size for f in file.parent.rglob("*") if f.is_file())
        if claimed > memory_limit() and claimed > MAX_RATIO * stored:
            raise UnsafeFileError(
                f"dataset {name}",
                found=f"array {file.parent.name} of {human(claimed)}, of which {human(stored)} are stored",
                expected=f"at most {MAX_RATIO} times what is stored",
                remedy="Write only what holds data.",
            )
        if shape and not named:
            nameless.append(file.parent.name)
    if nameless:
        raise DatasetError(
            f"dataset {name}",
            found=f"arrays without dimension names: {', '.join(sorted(nameless)[:8])}",
            expected="_ARRAY_DIMENSIONS (format 2) or dimension_names (format 3) on each array",
            remedy="Write the store with xarray: Dataset.to_zarr.",
        )


def _itemsize(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    size = int(digits or 8)
    return size // 8 if not dtype.startswith(("<", ">", "|")) and size >= 8 else size


ENTRIES = (Zarr(),)
