"""Our own encoder in a checkpoint file: written with its facts recorded, opened from tensors and facts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, Field, PositiveInt, ValidationError

from engine.backbones._climax_shapes import settle
from engine.backbones._keys import STATE_DICTS, Facts, check_same, match_keys, revision
from engine.errors import CheckpointError
from engine.labelled import Classifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from engine.stack import Stack

PLACES = 2**16
"""Most tokens of one example: positions are no weights, so that nothing else in a file bounds them."""


def different(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names, none of them twice."""
    if len(set(names)) != len(names):
        raise ValueError("a name that occurs twice")
    return names


class Recorded(BaseModel):
    """Facts that no weight tells, as they stand in the file's metadata."""

    classes: Annotated[tuple[str, ...], Field(min_length=2), AfterValidator(different)]
    num_heads: PositiveInt
    dropout: float = Field(0.0, ge=0, lt=1)


class EncoderClassifier(Classifier):
    """What images and texts have in common; a subclass names its facts, builds the network and prepares examples."""

    endings: ClassVar[tuple[str, ...]] = STATE_DICTS
    required: ClassVar[tuple[str, ...]]
    """Facts that have to be recorded or named."""
    recorded: ClassVar[type[Recorded]]
    embedding_keys: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        state: Mapping[str, "Tensor"],
        facts: Facts,
        path: Path,
        *,
        stripped: Sequence[str] = (),
        outside: Sequence[str] = (),
        **named: Any,
    ) -> None:
        """Build the network of a state dict; `named` gives what the file does not record. Raises CheckpointError."""
        import torch

        what = f"checkpoint {path.name}"
        self.plan = self._settled(facts, named, what)
        self.classes = self.plan["classes"]
        self._facts, self._stripped = facts, tuple(stripped)
        self._sizes = _sizes(state, self.plan["num_heads"], what)
        with torch.device("meta"):  # shapes before memory: a record or a tensor may claim any size
            wanted = self.build().state_dict()
        self._keys = match_keys(state, wanted, [*outside], what)
        with torch.random.fork_rng(devices=[]):
            self.module = self.build()
        self.module.load_state_dict({key: state[key] for key in wanted})
        self.module.float().eval().requires_grad_(False)
        self.revision = revision(self.module.state_dict(), {name: self.plan[name] for name in self.required})

    @classmethod
    def _settled(cls, facts: Facts, named: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Facts as named or as recorded; what is lacking, contradicts or makes no sense is refused."""
        known = {n: settle(n, _plain(named.get(n)), _plain(facts.recorded.get(n)), what)[0] for n in cls.recorded.model_fields}
        known = {name: value for name, value in known.items() if value is not None}
        lacking = [name for name in cls.required if name not in known]
        if lacking:
            raise CheckpointError(
                what,
                found=f"no {', '.join(lacking)} recorded or named",
                expected=f"{', '.join(cls.required)}",
                remedy="Name them as in training with --architecture (keywords in Python): wrong ones load without complaint.",
            )
        try:
            return cls.recorded(**known).model_dump()
        except ValidationError as error:
            first = error.errors()[0]
            raise CheckpointError(
                what,
                found=f"{'.'.join(map(str, first['loc'])) or 'facts'}: {first['msg']} ({first['input']!r:.80})",
                expected="the facts that the model was trained with",
                remedy="Name them as in training with --architecture (keywords in Python); a wrong record must be written anew.",
            ) from error

    @classmethod
    def survey(
        cls, state: Mapping[str, "Tensor"], facts: Facts, path: Path, outside: Sequence[str], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What can be said without building the network: its keys, and the facts that are lacking."""
        lacking = [n for n in cls.required if named.get(n) is None and facts.recorded.get(n) is None]
        keys: dict[str, list[str]] = {"matched": [], "missing": [], "unexpected": list(outside), "shapes": []}
        found: dict[str, Any] = {"keys": keys, "unknown": {name: "as in training" for name in lacking}}
        try:
            sizes = _sizes(state, 1, f"checkpoint {path.name}")
        except CheckpointError:
            return found
        width = sizes["width"]
        if "num_heads" in lacking:
            found["unknown"]["num_heads"] = [n for n in range(1, width // 4 + 1) if width % n == 0]
        parts = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
        stems = [*(f"blocks.{i}.{part}" for i in range(sizes["depth"]) for part in parts), "norm", "head"]
        wanted = [*cls.embedding_keys, *(f"{stem}.{p}" for stem in stems for p in ("weight", "bias"))]
        keys["matched"] = [k for k in wanted if k in state]
        keys["missing"] = [k for k in wanted if k not in state]
        keys["unexpected"] = [k for k in state if k not in wanted] + list(outside)
        return found | {"architecture": {n: sizes[n] for n in ("width", "depth", "hidden")}}

    def build(self) -> "nn.Module":
        """The network with newly drawn weights."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        """width, depth, num_heads, hidden, classes of the encoder."""
        return self._sizes | {"classes": len(self.classes)}

    def describe(self) -> dict[str, Any]:
        """Format, architecture, key table."""
        facts = {name: self.plan[name] for name in self.recorded.model_fields if name not in ("classes", "vocabulary")}
        return {
            "format": self._facts.format,
            "backbone": self.key,
            "task": "classification",
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "revision": self.revision,
            "architecture": self.sizes() | {n: list(v) if isinstance(v, tuple) else v for n, v in facts.items()},
            "classes": list(self.classes),
            "keys": {name: list(self._keys[name]) for name in ("matched", "missing", "unexpected", "shapes")},
            "stripped": list(self._stripped),
            "blocked": list(self._facts.blocked),
            "notes": list(self._facts.notes),
        }

    def sites(self) -> tuple[str, ...]:
        """Each block's attention."""
        return tuple(f"blocks.{i}.attn" for i in range(self._sizes["depth"]))

    def fresh(self, seed: int) -> "nn.Module":
        """The same sizes with weights drawn from `seed`; the global generator is put back."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build().train().requires_grad_(True)

    def logits(self, inputs: Mapping[str, "Tensor"], module: "nn.Module | None" = None) -> "Tensor":
        """`(case, class)`."""
        return (self.module if module is None else module)(next(iter(inputs.values())))

    def stack(self, module: "nn.Module | None" = None) -> "Stack":
        """The blocks as transitions."""
        from engine.backbones._encoder import encoder_stack

        return encoder_stack(self.module if module is None else module, lambda inputs: next(iter(inputs.values())))

    def write(self, path: str | Path, module: "nn.Module | None" = None) -> Path:
        """The weights of `module`, one of this architecture, as a checkpoint file. Raises CheckpointError for another's."""
        net = self.module if module is None else module
        check_same(net.state_dict(), self.module.state_dict(), f"weights for {Path(path).name}")
        return write_encoder(net, path, self.key, **self.plan)

    @classmethod
    def untrained(cls, net: "nn.Module", **facts: Any) -> Any:
        """A classifier of a network that was just built."""
        return cls(net.state_dict(), Facts("made here, untrained", 0, recorded=facts), Path(f"new {cls.key}"))


def write_encoder(net: "nn.Module", path: str | Path, backbone: str, **facts: Any) -> Path:
    """Write an encoder as safetensors with its facts recorded, so that nothing has to be named to open it."""
    from safetensors.torch import save_file

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    state = {key: tensor.detach().to("cpu").contiguous().clone() for key, tensor in net.state_dict().items()}
    save_file(state, target, metadata={"nuscope": json.dumps({"backbone": backbone, **facts}, sort_keys=True), "format": "pt"})
    return target


def _plain(value: Any) -> Any:
    """Lists as tuples, so that what is named and what is recorded compare."""
    return tuple(_plain(v) for v in value) if isinstance(value, list | tuple) else value


def _sizes(state: Mapping[str, "Tensor"], num_heads: int, what: str) -> dict[str, int]:
    """width, depth, hidden from shapes; the head count has to divide the width."""

    def rows(key: str) -> int:
        if key not in state or state[key].ndim < 1:
            raise CheckpointError(
                what,
                found=f"no {key} among its {len(state)} tensors",
                expected="a complete encoder",
                remedy="Export the whole model's state dict; missing weights would be random.",
            )
        return int(state[key].shape[0])

    blocks = {key.split(".")[1] for key in state if key.startswith("blocks.")}
    if blocks != {str(i) for i in range(len(blocks))}:
        raise CheckpointError(
            what,
            found=f"blocks {', '.join(sorted(blocks)[:8])}",
            expected="blocks 0, 1, 2, … without a gap",
            remedy="Export the whole model's state dict; missing weights would be random.",
        )
    width, hidden = rows("blocks.0.norm1.weight"), rows("blocks.0.mlp.fc1.weight")
    if width < 1 or hidden < 1 or width % num_heads:
        raise CheckpointError(
            what,
            found=f"{num_heads} heads for a width of {width}",
            expected="a number of heads that divides the width",
            remedy="Name num_heads as in training with --architecture (num_heads= in Python).",
        )
    return {"width": width, "depth": len(blocks), "num_heads": num_heads, "hidden": hidden}
