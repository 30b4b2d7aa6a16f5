"""Opening a checkpoint: the entry that recognises the keys builds the model; writing one with its facts recorded."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.registry import entries

if TYPE_CHECKING:
    from engine.backbones._climax_net import ClimaXNet
    from engine.backbones._keys import Facts
    from engine.types import Backbone


def _find(
    path: str | Path, weights: str | None, backbone: str | None
) -> tuple[Any, dict[str, Any], "Facts", Path, tuple[str, ...], list[str]]:
    from engine.backbones._keys import peel
    from engine.backbones._safe_load import read_state_dict

    state, facts = read_state_dict(path, weights=weights)
    known = {key: entry for key, entry in entries("backbones").items() if hasattr(entry, "recognise") and backbone in (None, key)}
    for inner, stripped, outside in peel(state):
        for entry in known.values():
            if entry.recognise(list(inner)):
                return entry, inner, facts, Path(path).expanduser().resolve(), stripped, sorted(outside)
    sample = ", ".join(sorted(state)[:8])
    raise CheckpointError(
        f"checkpoint {Path(path).name}",
        found=f"{len(state)} tensors of an unknown model: {sample}, …",
        expected=f"the keys of one of: {', '.join(sorted(e.title for e in known.values())) or backbone}",
        remedy="For any other model, export it with torch.export and bring the .pt2 file.",
    )


def open_checkpoint(path: str | Path, *, weights: str | None = None, backbone: str | None = None, **architecture: Any) -> "Backbone":
    """The model of a checkpoint file, on the CPU, in eval mode, its weights frozen.

    `architecture` names what the file does not record; for ClimaX: variables, num_heads, grid, in_variables,
    out_variables, lead_hours, normalisation, climatology. `weights` chooses an entry such as "ema". Raises
    CheckpointError or UnsafeFileError; a key that is missing always raises.
    """
    entry, state, facts, place, stripped, outside = _find(path, weights, backbone)
    return entry(state, facts, place, stripped=stripped, outside=outside, **architecture)


def inspect_checkpoint(path: str | Path, *, weights: str | None = None, **architecture: Any) -> dict[str, Any]:
    """What `open_checkpoint` would say, also where something is still unknown (the head count) and it would refuse.

    Returns `describe()` of the model where it opens; else format, backbone, shapes, `unknown` with candidates, and the
    refusal as a dictionary.
    """
    entry, state, facts, place, stripped, outside = _find(path, weights, None)
    try:
        return entry(state, facts, place, stripped=stripped, outside=outside, **architecture).describe() | {"refusal": None, "unknown": {}}
    except CheckpointError as error:
        partial = {
            "format": facts.format,
            "backbone": entry.key,
            "parameters": sum(t.numel() for t in state.values()),
            "stripped": list(stripped),
        }
        return (
            partial
            | entry.survey(state, facts, place, outside, architecture)
            | {"notes": facts.notes, "blocked": list(facts.blocked), "refusal": error.as_dict()}
        )


def write_checkpoint(net: "ClimaXNet", path: str | Path, **facts: Any) -> Path:
    """Write a ClimaX network as safetensors with its architecture recorded, so that nothing has to be named to open it.

    Recorded from the network: variables, grid, num_heads. `facts` adds in_variables, out_variables, lead_hours, units
    (by variable), title, data, and whatever else is JSON.
    """
    from safetensors.torch import save_file

    record = {"backbone": "climax", "variables": list(net.variables), "grid": list(net.grid), "num_heads": net.var_agg.num_heads, **facts}
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    state = {key: tensor.detach().to("cpu").contiguous().clone() for key, tensor in net.state_dict().items()}
    save_file(state, target, metadata={"nuscope": json.dumps(record, sort_keys=True), "format": "pt"})
    return target
