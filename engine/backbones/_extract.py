"""The guarded reader: tensors out of a torch zip whose pickle names classes that nobody here trusts.

Run as a script in a process of its own, under limits on memory, time, file size and child processes (`_extract_client.py`
starts it by `engine.confined`): `_extract.py IN OUT`. It imports neither torch nor the engine. The unpickler knows a fixed
short list of names (four of torch and the storage types) and answers every other with an inert class: no attribute of a
module is ever looked up, so nothing that a pickle names can run. Tensors stay descriptions (storage, offset, shape, stride)
until each is checked against the bytes of its storage; they are then written as safetensors. On stdout: one JSON document
{"tree", "skipped"}.
"""

import json
import math
import pickle
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {
    "FloatStorage": ("F32", 4),
    "DoubleStorage": ("F64", 8),
    "HalfStorage": ("F16", 2),
    "BFloat16Storage": ("BF16", 2),
    "LongStorage": ("I64", 8),
    "IntStorage": ("I32", 4),
    "ShortStorage": ("I16", 2),
    "CharStorage": ("I8", 1),
    "ByteStorage": ("U8", 1),
    "BoolStorage": ("BOOL", 1),
}


class Inert:
    """Stands for any object that is not a tensor: accepts whatever a pickle does to it, and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> "Inert":
        """Whatever the arguments."""
        return object.__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever the arguments."""

    def __setstate__(self, _: Any) -> None:
        """State is dropped; without this method a pickle could set attributes."""

    def __setitem__(self, _: Any, __: Any) -> None:
        """Items are dropped."""

    def append(self, _: Any) -> None:
        """Elements are dropped."""

    def extend(self, _: Any) -> None:
        """Elements are dropped."""

    def add(self, _: Any) -> None:
        """Elements are dropped."""

    def __hash__(self) -> int:
        """By identity: an inert object may be a key."""
        return id(self)


class Described:
    """A tensor before it is read: where its storage lies, and how it looks at it."""

    def __init__(self, storage: Any, offset: Any, shape: Any, stride: Any) -> None:
        self.storage, self.offset, self.shape, self.stride = storage, offset, shape, stride


def _tensor(storage: Any = None, offset: Any = 0, shape: Any = (), stride: Any = (), *_: Any) -> Any:
    return Described(storage, offset, shape, stride)


def _parameter(data: Any = None, *_: Any) -> Any:
    return data


def _size(shape: Any = (), *_: Any) -> Any:
    return tuple(shape) if isinstance(shape, tuple | list) else ()


class Reader(pickle.Unpickler):
    """An unpickler that can build tensors' descriptions, plain containers, and inert objects."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.stubbed: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """A fixed table; everything else is inert. Nothing is imported."""
        fixed = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("torch", "Size"): _size,
        }
        if (module, name) in fixed:
            return fixed[module, name]
        if module in ("torch", "torch.storage") and name in _TYPES:
            return ("storage", name)
        self.stubbed.add(f"{module}.{name}")
        return type("Inert", (Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        """('storage', type, key, location, number of elements)."""
        if isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], tuple) and pid[1][0] == "storage":
            return pid[1][1], str(pid[2]), pid[4]
        return None


def _read(archive: zipfile.ZipFile, prefix: str, tensor: Described, claimed: str) -> tuple[str, bytes]:
    kind, key, elements = tensor.storage
    dtype, size = _TYPES[kind]
    shape, stride, offset = tensor.shape, tensor.stride, tensor.offset
    numbers = [*shape, *stride, offset, elements]
    if len(shape) != len(stride) or len(shape) > 12 or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"{claimed}: shape {shape}, stride {stride}, offset {offset} are not a tensor's")
    data = archive.read(f"{prefix}data/{key}")
    count = math.prod(shape)
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1 if count else 0
    # a stride of zero passes the check of the last element, the count does not
    if last * size > len(data) or count * size > len(data):
        raise ValueError(f"{claimed}: shape {tuple(shape)} claims {count * size} bytes, its storage holds {len(data)}")
    flat = np.frombuffer(data, np.dtype(f"u{size}"))
    view = np.lib.stride_tricks.as_strided(flat[offset:], shape, tuple(s * size for s in stride)) if count else np.empty(shape, flat.dtype)
    return dtype, np.ascontiguousarray(view).tobytes()


def extract(source: Path, target: Path) -> dict[str, Any]:
    """Write all tensors of `source` as safetensors, named by their path in it; return where each lies, and what was skipped."""
    with zipfile.ZipFile(source) as archive:
        pickled = next(n for n in archive.namelist() if n.endswith("data.pkl"))
        prefix = pickled.removesuffix("data.pkl")
        if f"{prefix}byteorder" in archive.namelist() and archive.read(f"{prefix}byteorder") != b"little":
            raise ValueError("a big-endian file")
        with archive.open(pickled) as stream:
            reader = Reader(stream)
            content = reader.load()
        found: list[tuple[list[str], Described]] = []
        skipped: list[str] = []

        def walk(value: Any, trail: list[str]) -> None:
            if len(trail) > 12:
                return
            if isinstance(value, Described):
                if isinstance(value.storage, tuple):
                    found.append((trail, value))
                else:
                    skipped.append(f"{'/'.join(trail)}: a tensor of a kind that is not read")
            elif isinstance(value, dict):
                for key, inner in value.items():
                    if type(key) in (str, int):
                        walk(inner, [*trail, str(key)])

        walk(content, [])
        header: dict[str, Any] = {}
        with target.with_suffix(".body").open("wb") as body:
            at = 0
            for i, (trail, tensor) in enumerate(found):
                dtype, raw = _read(archive, prefix, tensor, "/".join(trail))
                body.write(raw)
                header[str(i)] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
                at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with target.open("wb") as out, target.with_suffix(".body").open("rb") as body:
        out.write(len(text).to_bytes(8, "little") + text)
        while block := body.read(2**22):
            out.write(block)
    target.with_suffix(".body").unlink()
    return {"tree": [trail for trail, _ in found], "skipped": skipped, "stubbed": sorted(reader.stubbed)}


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(extract(Path(sys.argv[1]), Path(sys.argv[2]))))
    except Exception as error:  # the parent turns it into a refusal; there is nobody else to tell
        sys.stdout.write(json.dumps({"error": f"{type(error).__name__}: {error}"[:500]}))
        sys.exit(3)
