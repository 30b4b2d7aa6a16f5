"""Reading tensors from files that nobody vouches for. Nothing in a file is ever executed.

    safetensors      header checked against the file's size, then mapped
    torch zip        members must be stored, not deflated (a 1 MB file can unpack to 1 GB); `weights_only` load, mapped
    torch zip with   what `weights_only` refuses: a worker process under resource limits reads the tensors with an unpickler
      other globals  that knows four torch names and turns everything else into inert stubs (`_extract.py`)
    torch legacy     `weights_only` load or nothing

The first bytes decide, never the suffix. Every tensor is checked against its storage: a stride of zero lets a file of one
kilobyte claim 10^12 elements.
"""

import json
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backbones._keys import Facts, choose
from engine.errors import CheckpointError, UnsafeFileError
from engine.safety import kind_of, readable_file
from engine.settings import settings

if TYPE_CHECKING:
    from torch import Tensor

_EXPECTED = "a safetensors file, or a PyTorch checkpoint (.ckpt, .pt, .pth, .bin)"


def read_state_dict(path: str | Path, *, weights: str | None = None) -> tuple[dict[str, "Tensor"], Facts]:
    """Tensors by key, on the CPU and mapped from the file where the format allows, and what the file says of itself.

    `weights` names the entry to take where a file holds several ("ema"). Raises CheckpointError for a file of another
    kind or a truncated one, UnsafeFileError for one that would unpack without bound or run code.
    """
    file = readable_file(path, "checkpoint")
    kind = kind_of(file)
    if kind == "safetensors":
        if weights is not None:
            raise CheckpointError(
                f"checkpoint {file.name}",
                found=f"a safetensors file, which holds one set of tensors, and the entry {weights!r} asked for",
                expected="no entry to be named",
                remedy="Leave it out of --architecture (weights= in Python), or bring the file that holds that entry.",
            )
        state, facts = _safetensors(file)
    elif kind == "zip":
        state, facts = _torch_zip(file, weights)
    elif kind == "pickle":
        state, facts = _torch_legacy(file, weights)
    else:
        raise CheckpointError(
            f"checkpoint {file.name}", found=_named(kind), expected=_EXPECTED, remedy="Choose the file that holds the model's weights."
        )
    _check_tensors(state, file)
    return state, facts


def _named(kind: str) -> str:
    return {
        "html": "a web page (HTML): the download was a login or error page",
        "lfs": "a Git LFS pointer, not the file it points to",
        "hdf5": "an HDF5 or NetCDF4 file (data, or Keras weights)",
        "netcdf3": "a NetCDF3 file, which is data",
        "grib": "a GRIB file, which is data",
        "npy": "a NumPy array",
        "text": "a text file",
        "gzip": "a gzip archive",
        "tar": "a tar archive",
    }.get(kind, "bytes of no format known here")


def _truncated(file: Path, detail: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {file.name}",
        found=f"a truncated or damaged file ({detail})",
        expected="a complete file",
        remedy="Copy or download it again and compare the sizes.",
    )


def _safetensors(file: Path) -> tuple[dict[str, "Tensor"], Facts]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > min(size - 8, 100 * 2**20):
            raise _truncated(file, f"its header claims {length} bytes, the file has {size}")
        try:
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _truncated(file, f"its header cannot be read: {error}") from error
    if not ends:
        raise CheckpointError(f"checkpoint {file.name}", found="no tensors", expected="a model's weights", remedy="Choose another file.")
    if 8 + length + max(ends) != size:
        raise _truncated(file, f"its header describes {8 + length + max(ends)} bytes, the file has {size}")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    metadata = {str(k): str(v) for k, v in header.get("__metadata__", {}).items()}
    try:
        state = load_file(file)
    except SafetensorError as error:
        raise _truncated(file, str(error)) from error
    facts = Facts("safetensors", size, metadata=metadata)
    if "nuscope" in metadata:
        try:
            recorded = json.loads(metadata["nuscope"])
        except ValueError as error:
            raise CheckpointError(
                f"checkpoint {file.name}",
                found=f"recorded facts that are not JSON ({error})",
                expected="JSON in the metadata entry 'nuscope'",
                remedy="Write the file again.",
            ) from error
        facts.recorded = recorded if isinstance(recorded, dict) else {}
    return state, facts


def _torch_zip(file: Path, weights: str | None) -> tuple[dict[str, "Tensor"], Facts]:
    import torch

    size, limit = file.stat().st_size, settings().upload_limit
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise _truncated(file, str(error)) from error
    names = [m.filename for m in members]
    if any(name.endswith("model.json") or "/models/" in name or name.endswith("archive_format") for name in names):
        raise CheckpointError(
            f"checkpoint {file.name}",
            found="an exported program (torch.export, .pt2)",
            expected=_EXPECTED,
            remedy="Save the weights instead, as safetensors or with torch.save(model.state_dict(), …): exported programs are not read.",
        )
    if not any(name.endswith("data.pkl") for name in names):
        listing = ", ".join(names[:6]) or "nothing"
        raise CheckpointError(
            f"checkpoint {file.name}",
            found=f"a zip archive of {listing}",
            expected=_EXPECTED,
            remedy="Unpack it and choose the weights inside. Data are named after their model.",
        )
    if any("/code/" in name or name.endswith("constants.pkl") for name in names):
        raise CheckpointError(
            f"checkpoint {file.name}",
            found="a TorchScript program",
            expected=_EXPECTED,
            remedy="Save model.state_dict() of the original model.",
        )
    packed = next((m for m in members if m.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None:
        raise UnsafeFileError(
            f"checkpoint {file.name}",
            found=f"compressed members ({packed.filename}: {packed.compress_size} bytes unpack to {packed.file_size})",
            expected="stored members, as torch.save writes them",
            remedy="Save it again with torch.save or as safetensors.",
        )
    total = sum(m.file_size for m in members)
    if total > max(size, 1) or total > 16 * limit:
        raise UnsafeFileError(
            f"checkpoint {file.name}",
            found=f"members that overlap: {total} bytes in a file of {size}",
            expected="each byte in one member",
            remedy="Save it again with torch.save or as safetensors.",
        )
    facts = Facts("PyTorch zip", size)
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises UnpicklingError, RuntimeError and more; each means that this tier does not read it
        return _guarded(file, facts, weights, error)
    return choose(content, facts, weights, file.name), facts


def _guarded(file: Path, facts: Facts, weights: str | None, refusal: Exception) -> tuple[dict[str, "Tensor"], Facts]:
    import torch

    from engine.backbones._extract_client import extract

    try:
        facts.blocked = tuple(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file)))
    except Exception as error:  # the listing reads the pickle too, and a damaged one fails in many ways
        raise _truncated(file, f"{type(refusal).__name__}: {str(refusal).splitlines()[0][:160]}") from error
    if not facts.blocked and "global" not in str(refusal).lower():
        raise _truncated(file, f"{type(refusal).__name__}: {str(refusal).splitlines()[0][:160]}") from refusal
    content, skipped = extract(file, facts.blocked)
    facts.format = "PyTorch zip (tensors extracted by the guarded reader)"
    facts.notes.append(f"the file names objects that are not tensors and were not built: {', '.join(facts.blocked) or 'unknown'}")
    facts.notes.extend(skipped)
    try:
        return choose(content, facts, weights, file.name), facts
    except CheckpointError as fault:  # what was left out may be why nothing usable remains: it is named
        found = f"{fault.found}; not built, because the file would have run it: {', '.join(facts.blocked) or 'unknown'}"
        raise CheckpointError(fault.what, found=found, expected=fault.expected, remedy=fault.remedy) from fault


def _torch_legacy(file: Path, weights: str | None) -> tuple[dict[str, "Tensor"], Facts]:
    import torch

    facts = Facts("PyTorch legacy pickle", file.stat().st_size)
    try:
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # as above: every failure of this tier is a refusal
        raise UnsafeFileError(
            f"checkpoint {file.name}",
            found=f"an old pickle file that tensors alone do not explain ({type(error).__name__})",
            expected=_EXPECTED,
            remedy="Where you trust it: load it in its own project and save model.state_dict() again with torch.save or safetensors.",
        ) from error
    return choose(content, facts, weights, file.name), facts


def _check_tensors(state: dict[str, "Tensor"], file: Path) -> None:
    import torch

    for key, tensor in state.items():
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            kind = (
                f"a tensor on the device {tensor.device.type}"
                if tensor.device.type != "cpu"
                else f"a {tensor.layout} {tensor.dtype} tensor"
            )
            raise CheckpointError(
                f"checkpoint {file.name}",
                found=f"{key}: {kind}",
                expected="dense tensors with their values",
                remedy="Convert it to a dense CPU tensor and save again.",
            )
        claimed, held = tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()
        if claimed > held:
            raise UnsafeFileError(
                f"checkpoint {file.name}",
                found=f"{key}: shape {tuple(tensor.shape)} claims {claimed} bytes, its storage holds {held}",
                expected="tensors no larger than what is stored",
                remedy="Save the tensors contiguously (tensor.contiguous()) and bring that file.",
            )
