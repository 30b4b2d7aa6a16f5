"""Hugging Face folders whose weights are `pytorch_model.bin` alone: tensors are read, nothing is run."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.backbones import open_checkpoint
from engine.errors import CheckpointError, EngineError, UnsafeFileError
from engine.labelled import Labelled

transformers = pytest.importorskip("transformers", reason="classifiers of Hugging Face need the package transformers")

NAMES = {"id2label": {0: "cat", 1: "dog", 2: "owl"}, "label2id": {"cat": 0, "dog": 1, "owl": 2}}
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}


def vit(folder: Path):
    """A folder without weights, and the model."""
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, **NAMES, image_size=8, patch_size=4)).eval()
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    told = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "size": {"height": 8, "width": 8}}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return model


def logits(classifier):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)
    return classifier.logits(classifier.prepare(Labelled("images", pixels, np.array([0, 2]), ("cat", "dog", "owl"))).inputs)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
def test_weights_in_one_pickle_are_the_same_model(tmp_path, legacy) -> None:
    model = vit(tmp_path / "m")
    torch.save(model.state_dict(), tmp_path / "m" / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    opened = open_checkpoint(tmp_path / "m")
    for key, tensor in model.state_dict().items():
        assert torch.equal(opened.module.state_dict()[key], tensor)
    assert opened.describe()["files"] == ["pytorch_model.bin"] and "PyTorch" in opened.describe()["format"]
    assert not [n for n in opened.describe()["notes"] if "pytorch_model" in n]


def test_a_zip_of_such_a_folder_opens_alike(tmp_path) -> None:
    model = vit(tmp_path / "m")
    torch.save(model.state_dict(), tmp_path / "m" / "pytorch_model.bin")
    (tmp_path / "m" / "training_args.bin").write_bytes(b"\x80\x02cos\nmkdir\n.")
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        for file in (tmp_path / "m").iterdir():
            archive.write(file, f"m/{file.name}")
    whole, packed = open_checkpoint(tmp_path / "m"), open_checkpoint(tmp_path / "m.zip")
    assert torch.equal(logits(whole), logits(packed))
    assert all("training_args.bin" in " ".join(c.describe()["notes"]) for c in (whole, packed))


def test_shards_of_pickles_are_read_by_their_index(tmp_path) -> None:
    folder, model = tmp_path / "m", vit(tmp_path / "m")
    state = list(model.state_dict().items())
    parts = {f"pytorch_model-0000{i + 1}-of-00002.bin": dict(state[i::2]) for i in (0, 1)}
    for name, part in parts.items():
        torch.save(part, folder / name)
    table = {"weight_map": {key: name for name, part in parts.items() for key in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(table))
    assert open_checkpoint(folder).describe()["files"] == list(parts)
    (folder / list(parts)[1]).unlink()
    with pytest.raises(CheckpointError, match="1 of 2 shards"):
        open_checkpoint(folder)
    table["weight_map"]["x"] = "../outside.bin"
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(table))
    with pytest.raises(CheckpointError, match="weight_map"):
        open_checkpoint(folder)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the weights"])
def test_a_pickle_that_would_run_code_stays_harmless_and_is_refused(tmp_path, legacy, beside) -> None:
    folder, model = tmp_path / "m", vit(tmp_path / "m")
    content = {**(model.state_dict() if beside else {}), "evil": Evil(tmp_path / "ran")}
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UnsafeFileError if beside else EngineError) as refused:
        open_checkpoint(folder)
    assert not (tmp_path / "ran").exists()
    assert refused.value.found and refused.value.remedy
    torch.load(folder / "pytorch_model.bin", weights_only=False)  # the file does what it is here for
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"<html></html>", b"cos\nsystem\n(S'false'\ntR."]
)
def test_what_is_no_pickle_of_weights_is_refused(tmp_path, content) -> None:
    vit(tmp_path / "m")
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(EngineError):
        open_checkpoint(tmp_path / "m")


def test_safetensors_come_before_pickles(tmp_path) -> None:
    model = vit(tmp_path / "m")
    torch.save({"evil": Evil(tmp_path / "ran")}, tmp_path / "m" / "pytorch_model.bin")
    model.save_pretrained(tmp_path / "m")
    opened = open_checkpoint(tmp_path / "m")
    assert opened.describe()["files"] == ["model.safetensors"] and not (tmp_path / "ran").exists()
    assert "pytorch_model.bin" in " ".join(opened.describe()["notes"])
