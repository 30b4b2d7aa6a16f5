"""Classifiers of the library transformers, from a folder (or a zip of one) with `config.json` and safetensors: images and texts.

Nothing in the folder is run, and nothing outside it is asked for (see `_hf_model`, `_hf_files`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from engine.backbones._hf_files import FolderFacts, is_model_folder, read_model_folder
from engine.backbones._hf_inputs import Pixels, Tokens
from engine.backbones._hf_model import KNOWN, architecture_of, classes_of, load
from engine.backbones._keys import Facts, check_same, match_keys, revision
from engine.errors import AttentionError, CheckpointError
from engine.labelled import Classifier, Examples, Labelled

if TYPE_CHECKING:
    from torch import Tensor, nn

    from engine.stack import Stack


class HuggingFace(Classifier):
    """A classifier of a known class; its class names are config.json's `id2label`.

    What a folder may lack has to be named: `mean` and `sd` of each channel (pixels in 0 … 1) where there is no
    `preprocessor_config.json`. `length`, the most tokens of a text that are read, is the model's own limit, at most 512 (our choice),
    unless it is named.
    """

    key: ClassVar[str] = "huggingface"
    title: ClassVar[str] = "Hugging Face classifier"
    requires: ClassVar[tuple[str, ...]] = ("transformers",)
    endings: ClassVar[tuple[str, ...]] = (".zip",)

    def __init__(
        self,
        state: Mapping[str, "Tensor"],
        facts: FolderFacts,
        path: Path,
        *,
        stripped: Sequence[str] = (),
        outside: Sequence[str] = (),
        **named: Any,
    ) -> None:
        """Build the library's model and load it; any missing key or shape that differs blocks."""
        del stripped, outside  # the library has its own names for keys
        what = f"checkpoint {path.name}"
        self.architecture = architecture_of(facts.config, what)
        self.kind = KNOWN[self.architecture]
        self.classes = classes_of(facts.config, what)
        self.module, seen, unexpected = load(state, facts.config, what)
        self._keys = match_keys(seen, self.module.state_dict(), unexpected, what)
        config: Any = self.module.config
        self._inputs = Pixels(config, facts, named, what) if self.kind == "images" else Tokens(config, facts, named, what)
        self._facts = facts
        told = {"class": self.architecture, "config": config.to_diff_dict(), **self._inputs.describe(), **self._inputs.identity()}
        self.revision = revision(self.module.state_dict(), json.loads(json.dumps(told, default=str)))

    takes = staticmethod(is_model_folder)
    """Whether this entry reads a path by itself, before any file's tensors are looked at."""
    read = staticmethod(read_model_folder)

    @classmethod
    def survey(
        cls, state: Mapping[str, "Tensor"], facts: Facts, path: Path, outside: Sequence[str], named: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What can be said of a model that is refused: its keys, and what is lacking."""
        keys: dict[str, list[str]] = {"matched": [], "missing": [], "unexpected": list(outside), "shapes": []}
        found: dict[str, Any] = {"keys": keys, "unknown": {}}
        config = facts.config if isinstance(facts, FolderFacts) else {}
        what = f"checkpoint {path.name}"
        try:
            name = architecture_of(config, what)
            module, seen, unexpected = load(state, config, what)
        except CheckpointError:
            return found
        own = module.state_dict()
        keys["matched"] = [k for k in own if k in seen and seen[k].shape == own[k].shape]
        keys["missing"] = [k for k in own if k not in seen]
        keys["shapes"] = [k for k in seen if seen[k].shape != own[k].shape]
        keys["unexpected"] += unexpected
        if KNOWN[name] == "images" and isinstance(facts, FolderFacts) and not facts.preprocessor:
            found["unknown"] = {n: "of each channel, pixels in 0 … 1, as in training" for n in ("mean", "sd") if named.get(n) is None}
        return found | {"architecture": {"class": name}}

    def describe(self) -> dict[str, Any]:
        """Format, architecture, key table."""
        config: Any = self.module.config
        depth, heads = config.num_hidden_layers, config.num_attention_heads
        return {
            "format": self._facts.format,
            "backbone": self.key,
            "task": "classification",
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "revision": self.revision,
            "architecture": {"class": self.architecture, "width": config.hidden_size, "depth": depth, "num_heads": heads}
            | self._inputs.describe(),
            "classes": list(self.classes),
            "keys": {name: list(self._keys[name]) for name in ("matched", "missing", "unexpected", "shapes")},
            "files": list(self._facts.files),
            "stripped": [],
            "blocked": [],
            "notes": list(self._facts.notes),
        }

    def sites(self) -> tuple[str, ...]:
        """The library's attention modules, in call order."""
        return tuple(name for name, module in self.module.named_modules() if hasattr(module, "is_causal") and hasattr(module, "scaling"))

    def prepare(self, labelled: Labelled, first_id: int = 0) -> Examples:
        """`pixel_values` `(case, channel, H, W)`, or `input_ids` and `attention_mask` `(case, token)`, padded to the longest of these
        texts. Raises DatasetError for another kind, size or class list.
        """
        return self._inputs.prepare(self, labelled, first_id)

    def logits(self, inputs: Mapping[str, "Tensor"], module: "nn.Module | None" = None) -> "Tensor":
        """`(case, class)`."""
        return (self.module if module is None else module)(**inputs).logits

    def fresh(self, seed: int) -> "nn.Module":
        """The same architecture with weights drawn from `seed`, as the library draws them; the global generator is put back."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made: Any = type(self.module)
            return made(self.module.config).float().train().requires_grad_(True)

    def stack(self, module: "nn.Module | None" = None) -> "Stack":
        """The layers as transitions. Raises AttentionError for DistilBERT, which is not cut."""
        from engine.backbones._hf_stack import STACKS

        if self.architecture not in STACKS:
            raise AttentionError(
                f"stack of {self.architecture}",
                found="an architecture that is not cut into transitions",
                expected=f"one of {', '.join(STACKS)}",
                remedy="Use a method that leaves the stack whole.",
            )
        return STACKS[self.architecture](self.module if module is None else module)

    def write(self, path: str | Path, module: "nn.Module | None" = None) -> Path:
        """A folder as this entry reads it, with the weights of `module`. Raises CheckpointError for another architecture's."""
        folder, net = Path(path), self.module if module is None else module
        check_same(net.state_dict(), self.module.state_dict(), f"weights for {folder.name}")
        folder.mkdir(parents=True, exist_ok=True)
        saved: Any = net
        saved.save_pretrained(folder)
        self._inputs.write(folder)
        return folder


ENTRIES = (HuggingFace,)
"""The classes that `open_checkpoint` tries."""
