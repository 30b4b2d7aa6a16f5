"""What the shapes of a ClimaX state dict say about its architecture, and what has to be named.

Shapes give width, depth, number of variables, patch, decoder depth, MLP ratio and token count. They do not give the number
of heads (a wrong one loads with all keys matched and forecasts something else), the variables' names, or the grid.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.lexicon import CLIMAX_48

if TYPE_CHECKING:
    from torch import Tensor


def modern(key: str) -> str:
    """Keys of early releases say `channel` where later ones say `var`."""
    return key.replace("channel_embed", "var_embed").replace("channel_query", "var_query").replace("channel_agg", "var_agg")


def recognise(keys: Sequence[str]) -> bool:
    """The keys are those of a ClimaX network, whatever is missing besides."""
    found = {modern(key) for key in keys}
    return (
        {"var_query", "pos_embed"} <= found
        and any(k.startswith("var_agg.") for k in found)
        and any(k.startswith("token_embeds.") for k in found)
    )


@dataclass(frozen=True)
class Shapes:
    """Architecture from shapes alone."""

    width: int
    depth: int
    variables: int
    patch: int
    decoder_depth: int
    mlp_ratio: float
    tokens: int
    parallel_patch_embedding: bool

    @property
    def head_candidates(self) -> tuple[int, ...]:
        """Head counts that divide the width and leave at least four channels a head."""
        return tuple(n for n in range(1, self.width // 4 + 1) if self.width % n == 0)

    @property
    def likely_grid(self) -> tuple[int, int] | None:
        """The 2:1 grid with this many tokens, None where there is none."""
        rows = math.isqrt(self.tokens // 2)
        return (rows * self.patch, 2 * rows * self.patch) if 2 * rows * rows == self.tokens else None

    def describe(self) -> dict[str, Any]:
        """As `inspect` prints it."""
        return {
            "width": self.width,
            "depth": self.depth,
            "variables": self.variables,
            "patch": self.patch,
            "decoder_depth": self.decoder_depth,
            "mlp_ratio": self.mlp_ratio,
            "tokens": self.tokens,
            "parallel_patch_embedding": self.parallel_patch_embedding,
        }


def _indices(state: Mapping[str, "Tensor"], stem: str) -> list[int]:
    return sorted({int(part) for key in state if key.startswith(f"{stem}.") and (part := key.split(".")[1]).isdigit()})


def infer(state: Mapping[str, "Tensor"], what: str) -> Shapes:
    """Read the architecture from shapes; raises CheckpointError where a tensor that is needed for it is not there."""

    def shape(key: str, ndim: int) -> tuple[int, ...]:
        if key not in state:
            raise CheckpointError(
                what,
                found=f"no {key} among its {len(state)} tensors",
                expected="a complete ClimaX state dict",
                remedy="Export the whole model's state dict; missing weights would be random.",
            )
        if state[key].ndim != ndim:
            raise CheckpointError(
                what,
                found=f"{key} with shape {tuple(state[key].shape)}",
                expected=f"{ndim} dimensions",
                remedy="Check which model this checkpoint belongs to.",
            )
        return tuple(state[key].shape)

    _, tokens, width = shape("pos_embed", 3)
    variables = shape("var_embed", 3)[1]
    parallel = "token_embeds.proj_weights" in state
    patch = shape("token_embeds.proj_weights", 5)[-1] if parallel else shape("token_embeds.0.proj.weight", 4)[-1]
    blocks, layers = _indices(state, "blocks"), _indices(state, "head")
    depth, decoder_depth = (blocks[-1] + 1 if blocks else 0), (layers[-1] // 2 if layers else 0)
    hidden = shape("blocks.0.mlp.fc1.weight", 2)[0]
    if width < 1 or patch < 1 or depth > 1000 or decoder_depth > 1000:
        raise CheckpointError(
            what,
            found=f"width {width}, patch {patch}, depth {depth}",
            expected="a plausible network",
            remedy="Check which model this checkpoint belongs to.",
        )
    return Shapes(width, depth, variables, patch, decoder_depth, hidden / width, tokens, parallel)


def settle(name: str, given: Any, recorded: Any, what: str) -> tuple[Any, str]:
    """A fact from the argument or from the file's own record, and where it came from; a contradiction is refused."""
    if given is not None and recorded is not None and given != recorded:
        raise CheckpointError(
            what,
            found=f"{name} {_short(given)} named, but the file records {_short(recorded)}",
            expected="the recorded value",
            remedy=f"Leave {name} out; with another value the weights load and the forecasts are wrong.",
        )
    return (given, "given") if given is not None else (recorded, "recorded" if recorded is not None else "unknown")


def _short(value: Any) -> str:
    return f"{len(value)} names ({', '.join(map(str, value[:3]))}, …)" if isinstance(value, tuple) and len(value) > 4 else str(value)


def default_variables(shapes: Shapes, what: str) -> tuple[str, ...]:
    """The 48 published variables where the count fits, an error otherwise."""
    if shapes.variables == len(CLIMAX_48):
        return CLIMAX_48
    raise CheckpointError(
        what,
        found=f"{shapes.variables} variables without names (a ClimaX file does not record them)",
        expected=f"their {shapes.variables} names in training order",
        remedy='Name them with --architecture \'{"variables": ["…", …]}\' (variables= in Python). '
        "Only the published set of 48 is known by default.",
    )


def expected_keys(shapes: Shapes) -> tuple[str, ...]:
    """Every key of a network of these shapes."""
    linear = ("weight", "bias")
    keys = ["var_embed", "var_query", "pos_embed", "var_agg.in_proj_weight", "var_agg.in_proj_bias"]
    if shapes.parallel_patch_embedding:
        keys += ["token_embeds.proj_weights", "token_embeds.proj_biases"]
    else:
        keys += [f"token_embeds.{i}.proj.{p}" for i in range(shapes.variables) for p in linear]
    stems = ["var_agg.out_proj", "lead_time_embed", "norm", *(f"head.{2 * i}" for i in range(shapes.decoder_depth + 1))]
    stems += [
        f"blocks.{i}.{part}" for i in range(shapes.depth) for part in ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
    ]
    return tuple(keys + [f"{stem}.{p}" for stem in stems for p in linear])
