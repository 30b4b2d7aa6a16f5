"""Opening a checkpoint: the entry that recognises the keys builds the model; writing one with its facts recorded."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.registry import entries
from engine.safety import reading, resolved

if TYPE_CHECKING:
    from torch import nn

    from engine.backbones._climax_net import ClimaXNet
    from engine.backbones._keys import Facts
    from engine.labelled import Classifier


def _find(
    path: str | Path, weights: str | None, backbone: str | None
) -> tuple[Any, dict[str, Any], "Facts", Path, tuple[str, ...], list[str]]:
    place = resolved(path, "checkpoint")
    with reading(f"checkpoint {place.name}", CheckpointError):
        return _recognised(place, weights, backbone)


def _recognised(
    place: Path, weights: str | None, backbone: str | None
) -> tuple[Any, dict[str, Any], "Facts", Path, tuple[str, ...], list[str]]:
    from engine.backbones._keys import peel
    from engine.backbones._safe_load import read_state_dict

    wanted = [entry for key, entry in entries("backbones").items() if backbone in (None, key)]
    for entry in wanted:  # those that read a folder of files, or an archive of one, by themselves
        if hasattr(entry, "takes") and entry.takes(place):
            state, facts = entry.read(place)
            return entry, state, facts, place, (), []
    state, facts = read_state_dict(place, weights=weights)
    known = {entry.key: entry for entry in wanted if hasattr(entry, "recognise")}
    for inner, stripped, outside in peel(state):
        for entry in known.values():
            if entry.recognise(list(inner)):
                return entry, inner, facts, place, stripped, sorted(outside)
    sample = ", ".join(sorted(state)[:8])
    beside = any(entry.takes(place.parent) for entry in wanted if hasattr(entry, "takes"))
    raise CheckpointError(
        f"checkpoint {place.name}",
        found=f"{len(state)} tensors of an unknown model: {sample}, …",
        expected=f"the keys of one of: {', '.join(sorted(e.title for e in known.values())) or backbone}",
        remedy=f"Give the folder {place.parent.name}: the config.json beside the file says what model it is."
        if beside
        else "Bring a checkpoint of one of these; in Python, engine.stochastic_attention takes any torch.nn.Module.",
    )


def open_checkpoint(path: str | Path, *, weights: str | None = None, backbone: str | None = None, **architecture: Any) -> Any:
    """The model of a checkpoint, a `Backbone` (fields) or a `Classifier`, on the CPU, in eval mode, its weights frozen.

    `path` is a file, or the folder (or a zip of it) of a Hugging Face classifier. `architecture` names what is not recorded there;
    for ClimaX: variables, num_heads, grid, in_variables, out_variables, lead_hours, normalisation, climatology. `weights` chooses an
    entry such as "ema". Raises CheckpointError or UnsafeFileError; a key that is missing always raises.
    """
    entry, state, facts, place, stripped, outside = _find(path, weights, backbone)
    with reading(f"checkpoint {place.name}", CheckpointError):
        return entry(state, facts, place, stripped=stripped, outside=outside, **architecture)


def tasks_of(path: str | Path, *, weights: str | None = None) -> frozenset[str]:
    """What the model of a checkpoint is for, "fields" or "classification", by its keys alone. Raises CheckpointError for unknown ones."""
    return frozenset(_find(path, weights, None)[0].tasks)


def inspect_checkpoint(path: str | Path, *, weights: str | None = None, **architecture: Any) -> dict[str, Any]:
    """What `open_checkpoint` would say, also where something is still unknown (the head count) and it would refuse.

    Returns `describe()` of the model where it opens; else format, backbone, shapes, `unknown` with candidates, and the
    refusal as a dictionary.
    """
    entry, state, facts, place, stripped, outside = _find(path, weights, None)
    try:
        with reading(f"checkpoint {place.name}", CheckpointError):
            made = entry(state, facts, place, stripped=stripped, outside=outside, **architecture)
        return made.describe() | {"refusal": None, "unknown": {}}
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


def write_classifier(classifier: "Classifier", path: str | Path, module: "nn.Module | None" = None) -> Path:
    """Write a classifier so that `open_checkpoint` opens it with nothing named; with `module`, the weights of that one.

    Our own become a safetensors file, a Hugging Face classifier a folder. Returns the path; raises CheckpointError where the module
    is of another architecture.
    """
    writer: Any = classifier
    return writer.write(path, module)
