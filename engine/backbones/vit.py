"""A vision transformer of our own: images to class logits. Sizes are read from the weights, the rest is recorded in the checkpoint."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backbones._encoder_file import EncoderClassifier
from engine.errors import DatasetError
from engine.labelled import Examples, Labelled

if TYPE_CHECKING:
    from torch import Tensor, nn


class ViT(EncoderClassifier):
    """Facts: class names in order; size (height, width, channel); patch; num_heads; mean and sd of each channel, pixels in 0 … 1.

    Keys `embedding.proj`, `blocks.i.{norm1,attn.qkv,attn.proj,norm2,mlp.fc1,mlp.fc2}`, `norm`, `head`. `dropout` (0 where it is not
    recorded) is what training used, and what MC dropout draws with.
    """

    key = "vit"
    title = "Vision transformer"
    kind = "images"
    required = ("classes", "size", "patch", "num_heads", "mean", "sd")

    @staticmethod
    def recognise(keys: Sequence[str]) -> bool:
        """Our encoder's blocks behind a patch embedding."""
        return "embedding.proj.weight" in keys and "blocks.0.attn.qkv.weight" in keys

    def build(self, state: Mapping[str, "Tensor"]) -> "nn.Module":
        """Patches and the encoder."""
        from engine.backbones._encoder import Encoder, Patches

        sizes, (h, w, c) = self.sizes(state), self.plan["size"]
        patches = Patches((h, w, c), int(self.plan["patch"]), sizes["width"])
        return Encoder(patches, **sizes, dropout=float(self.plan.get("dropout", 0.0)))

    def prepare(self, labelled: Labelled, first_id: int = 0) -> Examples:
        """Pixels to units of one sd, `(case, channel, H, W)`. Raises DatasetError for another kind, size or class list."""
        import torch

        size = tuple(self.plan["size"])
        if labelled.kind != "images" or labelled.inputs.shape[1:] != size:
            raise DatasetError(
                f"images {labelled.title}",
                found=f"{labelled.kind} of shape {labelled.inputs.shape[1:]}",
                expected=f"images of {size[0]}×{size[1]} with {size[2]} channel(s)",
                remedy="Bring images of the size that the model was trained on.",
            )
        mean, sd = (np.asarray(self.plan[n], np.float32) for n in ("mean", "sd"))
        pixels = (labelled.inputs.astype(np.float32) / 255 - mean) / sd
        return Examples(
            {"pixels": torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 1)))},
            torch.from_numpy(labelled.labels),
            tuple(range(first_id, first_id + len(labelled))),
        )


ENTRIES = (ViT,)
"""The classes that `open_checkpoint` tries."""
