"""Learned states on disk: safetensors with what they belong to recorded beside the tensors.

A state is bound to the classifier's revision (a hash of its weights and architecture), to a method and to its parameters: with
another model it would give numbers that mean nothing, so it is refused.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine
from engine.errors import CheckpointError
from engine.runs import pieces

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "nuscope_state"
"""The metadata entry that makes a safetensors file a state."""


def save_state(
    path: Path,
    state: "Mapping[str, Tensor]",
    *,
    method: str,
    params: Mapping[str, Any],
    seed: int,
    revision: str,
    half: bool = False,
    **more: Any,
) -> Path:
    """Write a state, whole or not at all. `half`: floating-point tensors of more than one element rounded to 16 bits.

    `more` is recorded too (JSON): `fit_seconds`, `data`, ….
    """
    import torch
    from safetensors.torch import save

    def stored(tensor: "Tensor") -> "Tensor":
        tensor = tensor.detach().to("cpu")
        rounded = half and tensor.is_floating_point() and tensor.numel() > 1
        return (tensor.to(torch.float16) if rounded else tensor).contiguous().clone()

    record = {"method": method, "params": dict(params), "seed": seed, "revision": revision, "version": engine.__version__, **more}
    text = json.dumps(record, sort_keys=True, ensure_ascii=False, default=str)
    part = path.with_suffix(".part")
    with pieces.writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(save({name: stored(t) for name, t in state.items()}, metadata={FORMAT: text}))
        part.replace(path)
    return path


def read_record(path: Path) -> dict[str, Any]:
    """What a state file says of itself; without its tensors. Raises CheckpointError where it is no state."""
    from safetensors import SafetensorError, safe_open

    found = "nothing there" if not path.exists() else "a file that is no learned state"
    try:
        with safe_open(path, framework="numpy") as file:
            facts = file.metadata() or {}
        record = json.loads(facts.get(FORMAT, "null"))
        if json.loads(facts.get("nuscope", "{}")).get("method") == "director":
            found = "DIRECTOR's student of a model of fields, which is named by --student"
        if isinstance(record, dict) and {"method", "params", "seed", "revision"} <= record.keys() and isinstance(record["params"], dict):
            return record
    except (SafetensorError, OSError, ValueError) as fault:
        found = found if not path.exists() else f"a file that cannot be read: {str(fault)[:120]}"
    raise CheckpointError(
        f"state {path.name}",
        found=found,
        expected="a learned state (safetensors, written by a run)",
        remedy="Take one from the folder 'states' of a finished run, or leave it out: it is then learned from the fit split.",
    )


def load_state(path: Path, *, method: str, revision: str) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The tensors (16-bit ones as float32) and the record. Raises CheckpointError for another method's or another model's state."""
    from safetensors.torch import load_file

    record = read_record(path)
    for name, expected, words in (("method", method, "method"), ("revision", revision, "classifier of revision")):
        if record[name] != expected:
            raise CheckpointError(
                f"state {path.name}",
                found=f"a state that was learned for {words} {str(record[name])[:40]}",
                expected=f"{words} {expected}",
                remedy="Bring the state that was learned with this checkpoint, or leave it out: it is then learned from the fit split.",
            )
    state = load_file(path)
    return {name: t.float() if t.is_floating_point() and t.element_size() == 2 else t for name, t in state.items()}, record
