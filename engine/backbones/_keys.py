"""From whatever dictionary a training framework wrote to one network's tensors: containers, averages and prefixes; which of
a network's keys they are, and the hash that names the result.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "ema_model.", "model_ema.", "ema.")
"""Stripped one at a time: DataParallel, torch.compile, Lightning modules, averaged copies."""

STATE_DICTS = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")
"""How files of a state dict end. Their content decides; a page asks for these, so that a look into a folder finds them."""
CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params")
AVERAGES = ("ema", "ema_state_dict", "model_ema", "ema_model", "state_dict_ema")
HYPERPARAMETERS = ("hyper_parameters", "datamodule_hyper_parameters")
"""Where Lightning keeps what a model and its data were set up with."""
_COUNTERS = ("n_averaged", "num_updates", "decay")


@dataclass
class Facts:
    """What a checkpoint file says about itself, beside its tensors.

    `format` in words; `container` is the entry of the file that held the tensors ("" for the file itself); `others` are
    entries with tensors that were not read (optimiser state, averages); `recorded` is the architecture that this engine
    wrote into the file; `blocked` lists the globals that were refused, where the file needed the guarded reader.
    """

    format: str
    size_bytes: int
    container: str = ""
    others: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    blocked: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def _tensors(value: Any) -> dict[str, "Tensor"] | None:
    import torch

    if isinstance(value, Mapping) and value and all(isinstance(k, str) for k in value):
        found = {k: v for k, v in value.items() if isinstance(v, torch.Tensor)}
        # an AveragedModel counts its updates beside the weights, so a few plain entries are fine
        if len(found) >= max(1, len(value) - 3):
            return found
    return None


def choose(content: Any, facts: Facts, weights: str | None, name: str) -> dict[str, "Tensor"]:
    """The state dict in a loaded checkpoint; `weights` names the entry to take ("ema", "state_dict"), None the plain one."""
    whole = _tensors(content)
    if whole is not None and weights is None:
        return whole
    if not isinstance(content, Mapping):
        raise CheckpointError(
            f"checkpoint {name}",
            found=f"a {type(content).__name__} at the top of the file",
            expected="a dictionary of tensors, or a dictionary that holds one under 'state_dict'",
            remedy="Save model.state_dict() instead of the model or a list.",
        )
    groups = {str(key): state for key, value in content.items() if (state := _tensors(value)) is not None}
    order = [weights] if weights else [*CONTAINERS, *AVERAGES, *groups]
    picked = next((key for key in order if key in groups), None)
    if picked is None:
        listing = ", ".join(sorted(str(k) for k in content)[:12]) or "nothing"
        wanted = f"an entry {weights!r} with tensors" if weights else "tensors, or an entry such as 'state_dict' with tensors"
        raise CheckpointError(
            f"checkpoint {name}",
            found=f"entries {listing}",
            expected=wanted,
            remedy='Save model.state_dict(), or name the entry with --architecture \'{"weights": "NAME"}\' (weights= in Python).',
        )
    facts.container, facts.others = picked, tuple(sorted(set(groups) - {picked}))
    facts.scalars = {str(k): v for k, v in content.items() if isinstance(v, str | int | float | bool)}
    for kept in HYPERPARAMETERS:
        told = content.get(kept)
        if isinstance(told, Mapping):
            facts.scalars |= {f"{kept}.{k}": v for k, v in told.items() if isinstance(v, str | int | float | bool)}
    averages = [key for key in facts.others if key in AVERAGES]
    if averages:
        facts.notes.append(
            f"the file also holds averaged weights ({', '.join(averages)}), which were not used: weights={averages[0]!r} takes them"
        )
    elif picked in AVERAGES and not weights:
        facts.notes.append(f"only averaged weights ({picked}) are in the file; they are used")
    return groups[picked]


def peel(state: dict[str, "Tensor"]) -> Iterator[tuple[dict[str, "Tensor"], tuple[str, ...], dict[str, "Tensor"]]]:
    """The state dict under ever fewer prefixes: yields (tensors, prefixes stripped so far, tensors left outside).

    Each step takes off the prefix that most keys share. Keys without it are set aside and reported, never dropped.
    """
    stripped: tuple[str, ...] = ()
    outside: dict[str, Tensor] = {}
    while True:
        yield state, stripped, outside
        counts = {p: sum(key.startswith(p) for key in state) for p in PREFIXES}
        prefix = max(counts, key=lambda p: (counts[p], -PREFIXES.index(p)))
        if counts[prefix] == 0:
            return
        rest = {key: value for key, value in state.items() if not key.startswith(prefix) and key not in _COUNTERS}
        outside = {**outside, **rest}
        state = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
        stripped = (*stripped, prefix)


def match_keys(state: Mapping[str, "Tensor"], wanted: Mapping[str, "Tensor"], outside: Sequence[str], what: str) -> dict[str, list[str]]:
    """Matched, missing, unexpected keys and shapes that differ; raises where anything is missing or differs."""
    shapes = [
        f"{k}: {tuple(state[k].shape)} instead of {tuple(wanted[k].shape)}"
        for k in wanted
        if k in state and state[k].shape != wanted[k].shape
    ]
    table = {
        "matched": [k for k in wanted if k in state and state[k].shape == wanted[k].shape],
        "missing": [k for k in wanted if k not in state],
        "unexpected": [k for k in state if k not in wanted] + list(outside),
        "shapes": shapes,
    }
    broken = [k for k in table["matched"] if not bool(state[k].isfinite().all())]
    if broken:
        raise CheckpointError(
            what,
            found=f"weights that are not finite in {', '.join(broken[:5])}",
            expected="finite weights",
            remedy="Use an earlier checkpoint: this training run had diverged.",
        )
    if table["missing"] or shapes:
        parts = [f"{len(table['matched'])} keys matched"]
        for name in ("missing", "shapes", "unexpected"):
            if table[name]:
                parts.append(f"{len(table[name])} {name}: {', '.join(table[name][:5])}{', …' if len(table[name]) > 5 else ''}")
        raise CheckpointError(
            what,
            found="; ".join(parts),
            expected=f"all {len(wanted)} keys of the network with their shapes",
            remedy="Missing weights would stay random, so nothing is run. Export the whole state dict, or name the right architecture.",
        )
    return table


def check_same(state: Mapping[str, "Tensor"], wanted: Mapping[str, "Tensor"], what: str) -> None:
    """Weights that are to be written under an architecture's name are all of it, and nothing else; raises CheckpointError."""
    more = match_keys(state, wanted, [], what)["unexpected"]
    if more:
        raise CheckpointError(
            what,
            found=f"{len(more)} tensors that the architecture does not have: {', '.join(more[:5])}",
            expected=f"its {len(wanted)} tensors",
            remedy="Write a module of the classifier's own architecture.",
        )


def revision(state: Mapping[str, "Tensor"], architecture: Mapping[str, Any]) -> str:
    """Hash of tensor contents and of the architecture that was named."""
    digest = hashlib.sha256(json.dumps(architecture, sort_keys=True).encode())
    for key in sorted(state):
        tensor = state[key].detach().to("cpu").contiguous()
        digest.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
