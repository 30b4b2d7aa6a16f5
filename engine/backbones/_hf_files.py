"""A Hugging Face model's folder, or a zip of one: what is read of it, and what is not.

Read: `config.json`, `*.safetensors` (one file, or the shards of an index), `tokenizer.json`, `tokenizer_config.json`,
`preprocessor_config.json`; where there are no safetensors, `pytorch_model.bin` (or the shards of its index) by the guarded
reader, tensors alone. Never read: code, and other pickles, which the notes name.
"""

import json
import shutil
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from engine.backbones._keys import Facts
from engine.backbones._safe_load import read_state_dict
from engine.errors import CheckpointError, UnsafeFileError
from engine.safety import check_bytes, check_zip, human, kind_of, memory_limit, readable_file
from engine.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

_BIN = "pytorch_model.bin"
_INDICES = {".safetensors": "model.safetensors.index.json", ".bin": f"{_BIN}.index.json"}
"""Which file lists the shards of each kind of weights; safetensors come first."""
_JSON = ("config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", *_INDICES.values())
_LIMIT = 8 * 10**6
_LIMIT_TOKENIZER = 10**8
_NOT_READ = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".gguf", ".onnx", ".py")


@dataclass
class FolderFacts(Facts):
    """What the folder says beside its tensors: parsed JSON, `tokenizer` as text; `files` holds the weights' names."""

    config: dict[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
    tokenizer_config: dict[str, Any] = field(default_factory=dict)
    preprocessor: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def is_model_folder(place: Path) -> bool:
    """A folder with a `config.json`, or a zip archive with one."""
    if place.is_dir():
        return (place / "config.json").is_file()
    if not place.is_file() or kind_of(place) != "zip":
        return False
    try:
        with zipfile.ZipFile(place) as archive:
            names = [PurePosixPath(name).name for name in archive.namelist()]
    except (zipfile.BadZipFile, ValueError, OSError):
        return False
    return "config.json" in names and "data.pkl" not in names


def read_model_folder(place: Path) -> "tuple[dict[str, Tensor], FolderFacts]":
    """Tensors by key, and the folder's facts. Raises CheckpointError or UnsafeFileError."""
    if place.is_dir():
        return _read(place, place.name, "Hugging Face folder")
    with tempfile.TemporaryDirectory(prefix="nuscope-model-") as folder:
        beside = _unpack(place, Path(folder))
        state, facts = _read(Path(folder), place.name, "zip of a Hugging Face folder")
        facts.notes.extend(_unread(beside))
        return {key: tensor.clone() for key, tensor in state.items()}, facts  # the mapped files go with the folder


def _unpack(place: Path, target: Path) -> list[str]:
    """Put the files that are read into `target`; returns the names of those beside them."""
    members = [m for m in check_zip(place, 16 * settings().upload_limit, "checkpoint") if not m.is_dir()]
    check_bytes(sum(m.file_size for m in members), shutil.disk_usage(target).free, f"checkpoint {place.name}", "unpacked")
    paths = [PurePosixPath(m.filename.replace("\\", "/")) for m in members]
    home = min((p.parent for p in paths if p.name == "config.json"), key=lambda parent: (len(parent.parts), str(parent)))
    # pickled weights only where there are no others; what else is pickled stays in the archive
    plain = any(p.suffix == ".safetensors" for p in paths if p.parent == home)
    wanted = (".safetensors",) if plain else (".bin",)
    beside = []
    with zipfile.ZipFile(place) as archive:
        for member, path in zip(members, paths, strict=True):
            if path.parent != home:
                continue
            if path.name in _JSON or path.suffix in wanted:
                try:
                    with archive.open(member) as source, (target / path.name).open("wb") as sink:
                        shutil.copyfileobj(source, sink)
                except (zipfile.BadZipFile, OSError, NotImplementedError, EOFError) as error:
                    raise CheckpointError(
                        f"checkpoint {place.name}",
                        found=f"{path.name} cannot be unpacked ({error})",
                        expected="a complete archive",
                        remedy="Copy or download it again.",
                    ) from error
            else:
                beside.append(path.name)
    return beside


def _read(folder: Path, name: str, form: str) -> "tuple[dict[str, Tensor], FolderFacts]":
    what = f"checkpoint {name}"
    config = _json(folder / "config.json", what)
    files = _weights(folder, what)
    size = sum(readable_file(file, "checkpoint").stat().st_size for file in files)
    check_bytes(size, memory_limit(), what, "of weights")
    state: dict[str, Tensor] = {}
    for file in files:
        pickled = file.suffix == ".bin"
        if (kind_of(file) == "safetensors") is pickled:
            raise CheckpointError(
                what,
                found=f"{file.name}, whose bytes are {'' if pickled else 'not '}safetensors",
                expected="weights as torch.save writes them" if pickled else "safetensors files",
                remedy="Copy or download it again; a file under 1 kB is often a Git LFS pointer.",
            )
        state |= _tensors(file, what)
    _complete(folder, files, state, what)
    facts = FolderFacts(
        f"{form} ({'PyTorch' if files[0].suffix == '.bin' else 'safetensors'})",
        size,
        config=config,
        files=tuple(file.name for file in files),
    )
    if "auto_map" in config:
        facts.notes.append("config.json names code of its own (auto_map), which is never run: the library's own class is used")
    facts.notes.extend(_unread([p.name for p in folder.iterdir() if p not in files]))
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        facts.tokenizer = _text(tokenizer, what, _LIMIT_TOKENIZER)
    for attribute, file in (("tokenizer_config", "tokenizer_config.json"), ("preprocessor", "preprocessor_config.json")):
        if (folder / file).is_file():
            setattr(facts, attribute, _json(folder / file, what))
    return state, facts


def _unread(names: list[str]) -> list[str]:
    found = sorted(name for name in names if PurePosixPath(name).suffix in _NOT_READ)
    return [f"not read, because such files can run code: {', '.join(found[:8])}"] if found else []


def _weights(folder: Path, what: str) -> list[Path]:
    """The files that hold the model: safetensors, else PyTorch's."""
    for suffix, listing in _INDICES.items():
        index = folder / listing
        if index.is_file():
            table = _json(index, what).get("weight_map")
            names = sorted(set(table.values())) if isinstance(table, dict) and all(isinstance(v, str) for v in table.values()) else []
            if not names or any(PurePosixPath(n).name != n or "\\" in n or not n.endswith(suffix) for n in names):
                raise CheckpointError(
                    what,
                    found=f"{listing} with {len(names)} files: {', '.join(names[:4])}",
                    expected=f"a weight_map from keys to {suffix} files of this folder",
                    remedy="Save the model again with save_pretrained.",
                )
            lacking = [n for n in names if not (folder / n).is_file()]
            if lacking:
                raise CheckpointError(
                    what,
                    found=f"{len(names) - len(lacking)} of {len(names)} shards; not there: {', '.join(lacking[:4])}",
                    expected="every shard that the index names",
                    remedy="Copy or download the missing shards.",
                )
            return [folder / n for n in names]
        there = sorted(folder.glob(f"*{suffix}"))
        whole = folder / ("model.safetensors" if suffix == ".safetensors" else _BIN)
        if whole.is_file():
            return [whole]
        if suffix == ".safetensors" and len(there) == 1:
            return there
    there = sorted(folder.glob("*.safetensors"))
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in _NOT_READ)
    raise CheckpointError(
        what,
        found=f"{len(there)} safetensors files without an index"
        if there
        else f"no safetensors file and no {_BIN} ({', '.join(pickled[:4]) or 'no weights'})",
        expected=f"model.safetensors or {_BIN}, or shards with their index",
        remedy="Save the model with save_pretrained(folder), which writes safetensors.",
    )


def _tensors(file: Path, what: str) -> "dict[str, Tensor]":
    """Tensors by key. Of a pickle tensors alone: one that names anything else is refused, whatever it is."""
    state, facts = read_state_dict(file)
    if facts.blocked:
        raise UnsafeFileError(
            what,
            found=f"{file.name}, which names objects that could run code ({', '.join(facts.blocked[:8])})",
            expected="tensors alone",
            remedy="Save the model with save_pretrained(folder), which writes safetensors.",
        )
    return state


def _complete(folder: Path, files: list[Path], state: "dict[str, Tensor]", what: str) -> None:
    """Every key that the index names must be in the shards."""
    index = folder / _INDICES[files[0].suffix]
    if index.is_file():
        lacking = [key for key in _json(index, what)["weight_map"] if key not in state]
        if lacking:
            raise CheckpointError(
                what,
                found=f"{len(lacking)} keys of the index in no shard: {', '.join(map(str, lacking[:4]))}",
                expected="the shards that belong to the index",
                remedy="Copy or download index and shards together.",
            )


def _text(file: Path, what: str, limit: int) -> str:
    size = readable_file(file, "checkpoint").stat().st_size
    if size > limit:
        raise CheckpointError(
            what, found=f"{file.name} of {human(size)}", expected=f"at most {human(limit)}", remedy="Bring the model's own file."
        )
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(file, what, error) from error


def _json(file: Path, what: str) -> dict[str, Any]:
    try:
        content = json.loads(_text(file, what, _LIMIT))
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, what, error) from error
    if not isinstance(content, dict):
        raise _unreadable(file, what, TypeError(f"a {type(content).__name__} at the top"))
    return content


def _unreadable(file: Path, what: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        what, found=f"{file.name} that is no JSON object ({str(error)[:120]})", expected="JSON", remedy="Copy or download it again."
    )
