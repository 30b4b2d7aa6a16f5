"""Our own encoder in a checkpoint file: written with its facts recorded, opened from tensors and facts."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.backbones._climax_plan import match_keys, revision
from engine.backbones._keys import Facts
from engine.errors import CheckpointError
from engine.labelled import Classifier

if TYPE_CHECKING:
    from torch import Tensor, nn

    from engine.stack import Stack


class EncoderClassifier(Classifier):
    """What images and texts have in common; a subclass names its facts, builds the network and prepares examples."""

    required: tuple[str, ...] = ()
    """Facts that no weight tells."""

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
        plan = {**facts.recorded, **{k: v for k, v in named.items() if v is not None}}
        lacking = [name for name in self.required if name not in plan]
        if lacking:
            raise CheckpointError(
                f"checkpoint {path.name}",
                found=f"no {', '.join(lacking)} recorded or named",
                expected=f"{', '.join(self.required)}",
                remedy="Name them, as in training: a wrong head count loads without complaint and gives other answers.",
            )
        self.plan = plan
        self.classes = tuple(str(c) for c in plan["classes"])
        self._facts, self._stripped = facts, tuple(stripped)
        self.module = self.build(state)
        self._keys = match_keys(state, self.module.state_dict(), [*outside], f"checkpoint {path.name}")
        self.module.load_state_dict({key: state[key] for key in self.module.state_dict()})
        self.module.float().eval().requires_grad_(False)
        self.revision = revision(self.module.state_dict(), {name: plan[name] for name in self.required})

    def build(self, state: Mapping[str, "Tensor"]) -> "nn.Module":
        """The network with newly drawn weights, its sizes taken from the tensors' shapes."""
        raise NotImplementedError

    def sizes(self, state: Mapping[str, "Tensor"]) -> dict[str, int]:
        """width, depth, hidden, classes of the encoder, from shapes."""
        depth = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("blocks."))
        return {
            "width": state["norm.weight"].shape[0],
            "depth": depth,
            "num_heads": int(self.plan["num_heads"]),
            "hidden": state["blocks.0.mlp.fc1.weight"].shape[0],
            "classes": len(self.classes),
        }

    def describe(self) -> dict[str, Any]:
        """Format, architecture, key table."""
        return {
            "format": self._facts.format,
            "backbone": self.key,
            "task": "classification",
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "revision": self.revision,
            "architecture": self.sizes(self.module.state_dict()) | {n: self.plan[n] for n in self.required if n != "classes"},
            "classes": list(self.classes),
            "keys": {name: list(self._keys[name]) for name in ("matched", "missing", "unexpected", "shapes")},
            "stripped": list(self._stripped),
            "notes": list(self._facts.notes),
        }

    def sites(self) -> tuple[str, ...]:
        """Each block's attention."""
        return tuple(f"blocks.{i}.attn" for i in range(len(self.module.blocks)))

    def fresh(self, seed: int) -> "nn.Module":
        """The same sizes with weights drawn from `seed`; the global generator is put back."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build(self.module.state_dict()).train().requires_grad_(True)

    def logits(self, inputs: Mapping[str, "Tensor"], module: "nn.Module | None" = None) -> "Tensor":
        """`(case, class)`."""
        return (self.module if module is None else module)(next(iter(inputs.values())))

    def stack(self, module: "nn.Module | None" = None) -> "Stack":
        """The blocks as transitions."""
        from engine.backbones._encoder import encoder_stack

        return encoder_stack(self.module if module is None else module, lambda inputs: next(iter(inputs.values())))


def write_encoder(net: "nn.Module", path: str | Path, backbone: str, **facts: Any) -> Path:
    """Write an encoder as safetensors with its facts recorded, so that nothing has to be named to open it."""
    from safetensors.torch import save_file

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    state = {key: tensor.detach().to("cpu").contiguous().clone() for key, tensor in net.state_dict().items()}
    save_file(state, target, metadata={"nuscope": json.dumps({"backbone": backbone, **facts}, sort_keys=True), "format": "pt"})
    return target
