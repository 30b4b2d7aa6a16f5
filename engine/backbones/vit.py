"""A vision transformer of our own: images to class logits. Sizes are read from the weights, the rest is recorded in the checkpoint."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import FiniteFloat, PositiveFloat, PositiveInt, model_validator

from engine.backbones._encoder_file import PLACES, EncoderClassifier, Recorded
from engine.backbones._labels import check_kind, labels_of
from engine.errors import DatasetError
from engine.labelled import Examples, Labelled

if TYPE_CHECKING:
    from torch import nn


class _Recorded(Recorded):
    size: tuple[PositiveInt, PositiveInt, PositiveInt]
    patch: PositiveInt
    mean: tuple[FiniteFloat, ...]
    sd: tuple[PositiveFloat, ...]

    @model_validator(mode="after")
    def _agree(self) -> "_Recorded":
        height, width, channels = self.size
        if height % self.patch or width % self.patch or (height // self.patch) * (width // self.patch) > PLACES:
            raise ValueError(f"{height}×{width} pixels in patches of {self.patch}")
        if not len(self.mean) == len(self.sd) == channels:
            raise ValueError(f"{len(self.mean)} means and {len(self.sd)} sds for {channels} channels")
        return self


class ViT(EncoderClassifier):
    """Facts: class names in order; size (height, width, channel); patch; num_heads; mean and sd of each channel, pixels in 0 … 1.

    Keys `embedding.proj`, `blocks.i.{norm1,attn.qkv,attn.proj,norm2,mlp.fc1,mlp.fc2}`, `norm`, `head`. `dropout` (0 where it is not
    recorded) is what training used, and what MC dropout draws with.
    """

    key = "vit"
    title = "Vision transformer"
    kind = "images"
    required = ("classes", "size", "patch", "num_heads", "mean", "sd")
    recorded = _Recorded
    embedding_keys = ("embedding.proj.weight", "embedding.proj.bias")

    @staticmethod
    def recognise(keys: Sequence[str]) -> bool:
        """Our encoder's blocks behind a patch embedding."""
        return "embedding.proj.weight" in keys and "blocks.0.attn.qkv.weight" in keys

    def build(self) -> "nn.Module":
        """Patches and the encoder."""
        from engine.backbones._encoder import Encoder, Patches

        patches = Patches(self.plan["size"], self.plan["patch"], self._sizes["width"])
        return Encoder(patches, **self.sizes(), dropout=self.plan["dropout"])

    def prepare(self, labelled: Labelled, first_id: int = 0) -> Examples:
        """Pixels to units of one sd, `(case, channel, H, W)`. Raises DatasetError for another kind, size or class list."""
        import torch

        check_kind(self, labelled)
        size = self.plan["size"]
        if labelled.inputs.shape[1:] != size:
            raise DatasetError(
                f"images {labelled.title}",
                found=f"shape {labelled.inputs.shape[1:]}",
                expected=f"images of {size[0]}×{size[1]} with {size[2]} channel(s)",
                remedy="Bring images of the size that the model was trained on.",
            )
        mean, sd = (np.asarray(self.plan[n], np.float32) for n in ("mean", "sd"))
        pixels = (labelled.inputs.astype(np.float32) / 255 - mean) / sd
        return Examples(
            {"pixels": torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 1)))},
            labels_of(self, labelled),
            tuple(range(first_id, first_id + len(labelled))),
        )


def new_vit(
    classes: Sequence[str],
    size: tuple[int, int, int],
    patch: int,
    width: int,
    depth: int,
    num_heads: int,
    hidden: int,
    dropout: float,
    mean: Sequence[float],
    sd: Sequence[float],
    seed: int,
) -> ViT:
    """An untrained vision transformer, its weights drawn from `seed`; `size` is (height, width, channel).

    The reference model of arXiv 2602.08920 has size (32, 32, 3), patch 4 (8×8 patches), width 384, depth 7, 12 heads, hidden 384:
    6.24 million parameters.
    """
    import torch

    from engine.backbones._encoder import Encoder, Patches

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Encoder(Patches(size, patch, width), width, depth, num_heads, hidden, len(classes), dropout)
    told = {"patch": patch, "num_heads": num_heads, "mean": list(mean), "sd": list(sd), "dropout": dropout}
    return ViT.untrained(net, classes=list(classes), size=list(size), **told)


ENTRIES = (ViT,)
"""The classes that `open_checkpoint` tries."""
