"""From whatever dictionary a training framework wrote to one network's tensors: containers, averages and prefixes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.", "ema_model.", "model_ema.", "ema.")
"""Stripped one at a time: DataParallel, torch.compile, Lightning modules, averaged copies."""

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "module", "weights", "params")
AVERAGES = ("ema", "ema_state_dict", "model_ema", "ema_model", "state_dict_ema")
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
            remedy="Save model.state_dict(), or name the entry with weights=.",
        )
    facts.container, facts.others = picked, tuple(sorted(set(groups) - {picked}))
    facts.scalars = {str(k): v for k, v in content.items() if isinstance(v, str | int | float | bool)}
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
