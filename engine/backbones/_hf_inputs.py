"""Images and texts as a Hugging Face model takes them, from its folder's `preprocessor_config.json` or `tokenizer.json`."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field, FiniteFloat, PositiveFloat, ValidationError

from engine.backbones._hf_files import FolderFacts
from engine.backbones._labels import check_kind, labels_of
from engine.errors import CheckpointError, DatasetError
from engine.labelled import Classifier, Examples, Labelled
from engine.safety import check_bytes, memory_limit, reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH = 512
"""Tokens of a text that are read where nothing else is said (our choice)."""
_STEP = 8
"""Texts are padded to a multiple of this many tokens."""


class _Preprocessor(BaseModel):
    """The fields that are read of `preprocessor_config.json`; what is absent is the library's default for ViT."""

    image_mean: tuple[FiniteFloat, ...] = ()
    image_std: tuple[PositiveFloat, ...] = ()
    do_normalize: bool = True
    do_rescale: bool = True
    rescale_factor: PositiveFloat = 1 / 255
    do_resize: bool = True
    resample: int = Field(2, ge=0, le=5)
    do_center_crop: bool | None = False


class Pixels:
    """Rescale, resize where the size differs, and normalise: `(case, channel, H, W)`."""

    def __init__(self, config: Any, facts: FolderFacts, named: Mapping[str, Any], what: str) -> None:
        """Raises CheckpointError where mean and sd are neither there nor named, or the images would have to be cropped."""
        size, channels = config.image_size, int(config.num_channels)
        self.size: tuple[int, int] = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        try:
            p = _Preprocessor(**{k: v for k, v in facts.preprocessor.items() if k in _Preprocessor.model_fields})
            given = {name: tuple(float(v) for v in named.get(name) or own) for name, own in (("mean", p.image_mean), ("sd", p.image_std))}
        except (ValidationError, TypeError, ValueError) as error:
            raise CheckpointError(
                what,
                found=f"preprocessing that cannot be read ({str(error).splitlines()[-1].strip()[:120]})",
                expected="image_mean and image_std with a number a channel",
                remedy="Bring the model's own preprocessor_config.json, or name mean and sd with --architecture (keywords in Python).",
            ) from error
        if not p.do_normalize:
            given = {"mean": (0.0,) * channels, "sd": (1.0,) * channels}
        lacking = [name for name in ("mean", "sd") if len(given[name]) != channels or not np.isfinite(given[name]).all()]
        if lacking or min(given["sd"]) <= 0:
            raise CheckpointError(
                what,
                found=f"{' and '.join(lacking) or 'sd'} of the pixels for {channels} channels: {given}",
                expected="preprocessor_config.json with image_mean and image_std, or mean and sd named",
                remedy="Name them as in training, for pixels in 0 … 1, with --architecture (keywords in Python).",
            )
        if p.do_center_crop:
            raise CheckpointError(
                what,
                found="preprocessing that crops images",
                expected="images that are resized whole",
                remedy="Crop the images, and set do_center_crop to false in preprocessor_config.json.",
            )
        self.mean, self.sd = given["mean"], given["sd"]
        self.scale = p.rescale_factor if p.do_rescale else 1.0
        self.resample = p.resample if p.do_resize else None
        self.channels = channels

    def describe(self) -> dict[str, Any]:
        """What the answers depend on."""
        return {
            "size": [*self.size, self.channels],
            "mean": list(self.mean),
            "sd": list(self.sd),
            "scale": self.scale,
            "resample": self.resample,
        }

    def identity(self) -> dict[str, Any]:
        """What they depend on besides."""
        return {}

    def prepare(self, classifier: Classifier, labelled: Labelled, first_id: int) -> Examples:
        """Normalised pixels and labels."""
        import torch

        check_kind(classifier, labelled)
        shape = labelled.inputs.shape[1:]
        fits = shape[:2] == self.size or (self.resample is not None and self.channels in (1, 3))
        if len(shape) != 3 or shape[2] != self.channels or not fits:
            raise DatasetError(
                f"images {labelled.title}",
                found=f"shape {shape}",
                expected=f"images of {self.size[0]}×{self.size[1]} with {self.channels} channel(s)",
                remedy="Bring images of the size that the model was trained on.",
            )
        check_bytes(
            4 * len(labelled) * self.channels * self.size[0] * self.size[1], memory_limit(), f"images {labelled.title}", "of pixels"
        )
        images = labelled.inputs if shape[:2] == self.size else np.stack([self._resized(image) for image in labelled.inputs])
        pixels = (images.astype(np.float32) * np.float32(self.scale) - np.asarray(self.mean, np.float32)) / np.asarray(self.sd, np.float32)
        return Examples(
            {"pixel_values": torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, -1, 1)))},
            labels_of(classifier, labelled),
            tuple(range(first_id, first_id + len(labelled))),
        )

    def _resized(self, image: "NDArray[np.uint8]") -> "NDArray[np.uint8]":
        from PIL import Image

        whole = Image.fromarray(image[..., 0] if self.channels == 1 else image)
        assert self.resample is not None
        made = np.asarray(whole.resize((self.size[1], self.size[0]), Image.Resampling(self.resample)))
        return made.reshape(*self.size, self.channels)

    def write(self, folder: Path) -> None:
        """`preprocessor_config.json`."""
        told = {
            "image_mean": self.mean,
            "image_std": self.sd,
            "do_rescale": True,
            "rescale_factor": self.scale,
            "do_resize": self.resample is not None,
            "size": {"height": self.size[0], "width": self.size[1]},
            "image_processor_type": "ViTImageProcessor",
        } | ({} if self.resample is None else {"resample": self.resample})
        (folder / "preprocessor_config.json").write_text(json.dumps(told, indent=2), encoding="utf-8")


class Tokens:
    """The folder's own fast tokenizer: `input_ids` and `attention_mask` `(case, token)`, padded on the right."""

    def __init__(self, config: Any, facts: FolderFacts, named: Mapping[str, Any], what: str) -> None:
        """Raises CheckpointError where there is no tokenizer, it does not fit the model, or padding has no number."""
        if facts.tokenizer is None:
            raise CheckpointError(
                what,
                found="no tokenizer.json",
                expected="the fast tokenizer beside the weights",
                remedy="Save it into the folder: AutoTokenizer.from_pretrained(…).save_pretrained(folder).",
            )
        from tokenizers import Tokenizer

        self._told = facts.tokenizer_config
        try:
            self._tokenizer = Tokenizer.from_str(facts.tokenizer)
        except Exception as error:  # the library raises plain Exceptions
            raise CheckpointError(
                what,
                found=f"a tokenizer.json that cannot be read ({str(error)[:120]})",
                expected="a fast tokenizer",
                remedy="Copy or download it again.",
            ) from error
        self._tokenizer.no_padding()  # the file may ask for its own
        self._tokenizer.no_truncation()
        words = self._tokenizer.get_vocab()
        if not words or max(words.values()) >= config.vocab_size:
            raise CheckpointError(
                what,
                found=f"a tokenizer with numbers up to {max(words.values(), default=-1)} for {config.vocab_size} embedded words",
                expected="the tokenizer that belongs to the model",
                remedy="Bring tokenizer.json and weights of one model.",
            )
        self.padding = config.pad_token_id
        if not isinstance(self.padding, int) or not 0 <= self.padding < config.vocab_size:
            raise CheckpointError(
                what,
                found=f"pad_token_id {self.padding} in config.json",
                expected="the number of the padding token",
                remedy="Set pad_token_id in config.json as in training.",
            )
        limit = int(config.max_position_embeddings) - (self.padding + 1 if config.model_type == "roberta" else 0)
        told = self._told.get("model_max_length")
        if isinstance(told, int | float) and 0 < told < limit:
            limit = int(told)
        self.length = min(limit, LENGTH) if named.get("length") is None else int(named["length"])
        if not 1 <= self.length <= limit:
            raise CheckpointError(
                what,
                found=f"length {self.length}",
                expected=f"1 … {limit} tokens",
                remedy="Name a length that the model has positions for.",
            )

    def describe(self) -> dict[str, Any]:
        """What the answers depend on."""
        return {"length": self.length}

    def identity(self) -> dict[str, Any]:
        """What they depend on besides: a hash of the tokenizer, however its file was written."""
        return {"tokenizer": hashlib.sha256(self._tokenizer.to_str().encode()).hexdigest()}

    def prepare(self, classifier: Classifier, labelled: Labelled, first_id: int) -> Examples:
        """Token numbers and labels; texts beyond `length` tokens are cut off."""
        import torch

        check_kind(classifier, labelled)
        self._tokenizer.enable_truncation(self.length)
        with reading("tokenizer.json", CheckpointError):
            rows = [encoding.ids for encoding in self._tokenizer.encode_batch([str(text) for text in labelled.inputs])]
        self._tokenizer.no_truncation()
        longest = max([1, *map(len, rows)])
        width = min(self.length, -(-longest // _STEP) * _STEP)
        ids, mask = np.full((len(rows), width), self.padding, np.int64), np.zeros((len(rows), width), np.int64)
        mask[:, 0] = 1  # an empty text has something to attend to
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = row, 1
        return Examples(
            {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)},
            labels_of(classifier, labelled),
            tuple(range(first_id, first_id + len(labelled))),
        )

    def write(self, folder: Path) -> None:
        """`tokenizer.json` and `tokenizer_config.json`."""
        self._tokenizer.save(str(folder / "tokenizer.json"))
        told = {"tokenizer_class": "PreTrainedTokenizerFast", **{k: v for k, v in self._told.items() if k != "auto_map"}}
        (folder / "tokenizer_config.json").write_text(json.dumps(told, indent=2), encoding="utf-8")
