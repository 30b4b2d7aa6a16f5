"""Classifiers from files: our own ViT, and folders and zips of transformers, honest and hostile."""

import json
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from engine.backbones import inspect_checkpoint, new_vit, open_checkpoint, write_classifier, write_encoder
from engine.errors import AttentionError, CheckpointError, DatasetError, EngineError, UnsafeFileError
from engine.labelled import Labelled
from engine.registry import catalogue, entries

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film"]
NAMES: dict[str, Any] = {"id2label": {0: "cat", 1: "dog", 2: "owl"}, "label2id": {"cat": 0, "dog": 1, "owl": 2}}
SMALL: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
CONFIGS = {
    "ViTForImageClassification": lambda: transformers.ViTConfig(**SMALL, **NAMES, image_size=8, patch_size=4),
    "BertForSequenceClassification": lambda: transformers.BertConfig(**SMALL, **NAMES, vocab_size=8, max_position_embeddings=12),
    "RobertaForSequenceClassification": lambda: transformers.RobertaConfig(
        **SMALL, **NAMES, vocab_size=8, max_position_embeddings=12, pad_token_id=0
    ),
    "ElectraForSequenceClassification": lambda: transformers.ElectraConfig(
        **SMALL, **NAMES, vocab_size=8, max_position_embeddings=12, embedding_size=16
    ),
    "DistilBertForSequenceClassification": lambda: transformers.DistilBertConfig(
        dim=24, n_layers=2, n_heads=4, hidden_dim=32, vocab_size=8, max_position_embeddings=12, **NAMES
    ),
    "Qwen2ForSequenceClassification": lambda: transformers.Qwen2Config(
        **SMALL, **NAMES, vocab_size=8, num_key_value_heads=2, pad_token_id=0
    ),
    "LlamaForSequenceClassification": lambda: transformers.LlamaConfig(
        **SMALL, **NAMES, vocab_size=8, num_key_value_heads=2, pad_token_id=0
    ),
}


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return made


def saved(folder: Path, name: str) -> tuple[Path, Any]:
    """A folder as `save_pretrained` writes it, with what prepares its inputs; and the model."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(CONFIGS[name]()).eval()
    model.save_pretrained(folder)
    if "Image" in name:
        told = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "size": {"height": 8, "width": 8}}
        (folder / "preprocessor_config.json").write_text(json.dumps(told))
    else:
        tokenizer().save(str(folder / "tokenizer.json"))
    return folder, model


def edit(folder: Path, file: str = "config.json", **changes) -> Path:
    """A JSON file of the folder with some entries changed, and those that are None left out."""
    content = json.loads((folder / file).read_text()) | changes
    (folder / file).write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return folder


def packed(folder: Path, path: Path, inside: str = "") -> Path:
    files = list(folder.iterdir())
    assert path.parent != folder
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, f"{inside}{file.name}")
    return path


def images(side: int = 8, channels: int = 3, classes=("cat", "dog", "owl")) -> Labelled:
    pixels = np.random.default_rng(0).integers(0, 256, (2, side, side, channels), np.uint8)
    return Labelled("images", pixels, np.array([0, 2]), classes)


def texts(*lines: str) -> Labelled:
    return Labelled("text", np.array(lines), np.full(len(lines), 1), ("cat", "dog", "owl"))


def vit(**changes):
    told = {"patch": 4, "width": 24, "depth": 2, "num_heads": 4, "hidden": 32, "dropout": 0.1, "seed": 0}
    return new_vit(["cat", "dog", "owl"], (8, 8, 3), **{**told, "mean": [0.5] * 3, "sd": [0.2] * 3, **changes})


# --- our own ViT


def test_the_reference_vit_has_its_parameters() -> None:
    """arXiv 2602.08920: 6.24 million."""
    c = new_vit(
        list("abcdefghij"),
        (32, 32, 3),
        patch=4,
        width=384,
        depth=7,
        num_heads=12,
        hidden=384,
        dropout=0.1,
        mean=[0.5] * 3,
        sd=[0.2] * 3,
        seed=0,
    )
    assert c.describe()["parameters"] == 6_243_466


def test_a_vit_goes_to_file_and_back(tmp_path) -> None:
    c = vit()
    again = open_checkpoint(write_classifier(c, tmp_path / "vit.safetensors"))
    examples = c.prepare(images())
    assert torch.equal(c.logits(examples.inputs), again.logits(again.prepare(images()).inputs))
    assert (again.key, again.kind, again.classes, again.revision) == ("vit", "images", ("cat", "dog", "owl"), c.revision)
    described = inspect_checkpoint(tmp_path / "vit.safetensors")
    assert {"format", "backbone", "parameters", "keys", "revision"} <= set(described)
    assert (described["refusal"], described["keys"]["missing"], described["keys"]["unexpected"]) == (None, [], [])
    json.dumps(described)


def test_opening_leaves_the_generator_alone(tmp_path) -> None:
    path = write_classifier(vit(), tmp_path / "vit.safetensors")
    before = torch.get_rng_state()
    open_checkpoint(path)
    assert torch.equal(before, torch.get_rng_state())


def test_an_incomplete_vit_says_what_is_missing(tmp_path) -> None:
    c = vit()
    for lost, words in (
        ("head.bias", "head.bias"),
        ("norm.weight", "norm.weight"),
        ("blocks.0.norm1.weight", "norm1"),
        ("blocks.0", "blocks 1"),
    ):
        state = {k: v for k, v in c.module.state_dict().items() if not k.startswith(lost)} | {"blocks.0.attn.qkv.weight": torch.zeros(1)}
        if lost == "blocks.0":
            state = {k.replace("blocks.1", "blocks.7"): v for k, v in c.module.state_dict().items()}
            words = "without a gap|blocks 0, 7"
        save_file(state, tmp_path / "short.safetensors", {"nuscope": json.dumps(c.plan)})
        found = inspect_checkpoint(tmp_path / "short.safetensors")
        assert found["refusal"] is not None and found["backbone"] == "vit"
        with pytest.raises(CheckpointError, match=words):
            open_checkpoint(tmp_path / "short.safetensors")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"size": [10**6, 10**6, 3]}, "pixels"),
        ({"size": [9, 8, 3]}, "9×8"),
        ({"size": [8, 8]}, "size"),
        ({"patch": 0}, "patch"),
        ({"mean": [0.5]}, "1 means"),
        ({"sd": [0.2, 0.0, 0.2]}, "sd"),
        ({"mean": [0.5, float("nan"), 0.5]}, "mean"),
        ({"size": [8, 8, 1], "mean": [0.5], "sd": [0.2]}, "embedding.proj.weight"),
    ],
)
def test_a_vits_record_that_makes_no_sense_is_refused(tmp_path, change, found) -> None:
    c = vit()
    path = write_encoder(c.module, tmp_path / "bad.safetensors", "vit", **{**c.plan, **change})
    with pytest.raises(CheckpointError, match=found):
        open_checkpoint(path)


def test_tensors_of_unmatched_sizes_take_no_memory(tmp_path) -> None:
    """Widths of a million and a hidden layer of a million would be a layer of 4 TB."""
    c = vit()
    state = c.module.state_dict() | {"blocks.0.norm1.weight": torch.zeros(10**6), "blocks.0.mlp.fc1.weight": torch.zeros(10**6, 1)}
    save_file(state, tmp_path / "wide.safetensors", {"nuscope": json.dumps(c.plan)})
    with pytest.raises(CheckpointError, match="shapes"):
        open_checkpoint(tmp_path / "wide.safetensors")


def test_other_images_are_refused() -> None:
    for data in (images(16), images(channels=1), texts("a")):
        with pytest.raises(DatasetError):
            vit().prepare(data)


def test_no_entry_takes_the_keys_of_another(tmp_path) -> None:
    known = {name: entry for name, entry in entries("backbones").items() if hasattr(entry, "recognise")}
    keys = {
        "vit": list(vit().module.state_dict()),
        "text_encoder": ["embedding.embed.weight", "blocks.0.attn.qkv.weight", "norm.weight", "head.weight"],
        "climax": ["var_query", "pos_embed", "var_agg.in_proj_weight", "token_embeds.0.proj.weight", "blocks.0.attn.qkv.weight"],
        "timm": ["cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "norm.weight", "head.weight"],
        "hf": ["vit.embeddings.cls_token", "vit.layers.0.attention.q_proj.weight", "classifier.weight"],
    }
    for name, listed in keys.items():
        assert [n for n, entry in known.items() if entry.recognise(listed)] == ([name] if name in known else [])


# --- transformers


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_opens_as_the_librarys_own_model(tmp_path, name) -> None:
    folder, model = saved(tmp_path, name)
    c = open_checkpoint(folder)
    examples = c.prepare(images() if c.kind == "images" else texts("a good film", "bad", ""))
    expected = model(**examples.inputs).logits
    torch.testing.assert_close(c.logits(examples.inputs), expected)
    described = c.describe()
    assert (described["keys"]["missing"], described["keys"]["unexpected"], described["backbone"]) == ([], [], "huggingface")
    assert len(described["keys"]["matched"]) == len(model.state_dict())
    json.dumps(described)
    modules = dict(c.module.named_modules())
    assert len(c.sites()) == 2 and all("ttention" in type(modules[site]).__name__ for site in c.sites())
    assert not c.module.training and not any(p.requires_grad for p in c.module.parameters())
    if name.startswith("Distil"):
        with pytest.raises(AttentionError, match="DistilBert"):
            c.stack()
    else:
        torch.testing.assert_close(c.stack().forward(examples.inputs), expected)
    fresh = c.fresh(3)
    assert fresh.training and all(p.requires_grad for p in fresh.parameters())
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), c.fresh(3).parameters(), strict=True))
    assert not torch.allclose(c.logits(examples.inputs, fresh.eval()), expected)


def test_pixels_are_rescaled_resized_and_normalised(tmp_path) -> None:
    folder, _ = saved(tmp_path, "ViTForImageClassification")
    c, data = open_checkpoint(folder), images()
    expected = (data.inputs / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(c.prepare(data).inputs["pixel_values"].numpy(), np.moveaxis(expected, -1, 1), rtol=1e-5, atol=1e-6)
    flat = Labelled("images", np.full((1, 20, 16, 3), 100, np.uint8), np.array([0]), data.classes)
    shrunk = c.prepare(flat).inputs["pixel_values"]
    assert shrunk.shape == (1, 3, 8, 8)
    np.testing.assert_allclose(shrunk[0, :, 3, 3].numpy(), (100 / 255 - np.array([0.5, 0.4, 0.3])) / [0.2, 0.3, 0.4], rtol=1e-5)
    edit(folder, "preprocessor_config.json", do_resize=False)
    with pytest.raises(DatasetError, match="8×8"):
        open_checkpoint(folder).prepare(flat)


def test_texts_are_tokenised_as_the_library_does(tmp_path) -> None:
    folder, _ = saved(tmp_path, "BertForSequenceClassification")
    own = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]")
    lines = ["A good film", "bad", "unheard of " * 9]
    expected = own(lines, padding=True, truncation=True, max_length=12, return_tensors="pt")
    found = open_checkpoint(folder).prepare(texts(*lines)).inputs
    assert torch.equal(found["input_ids"], expected["input_ids"])
    assert torch.equal(found["attention_mask"], expected["attention_mask"])
    assert open_checkpoint(folder, length=4).prepare(texts(*lines)).inputs["input_ids"].shape == (3, 4)
    with pytest.raises(CheckpointError, match="1 … 12"):
        open_checkpoint(folder, length=13)


@pytest.mark.parametrize("name", ["ViTForImageClassification", "Qwen2ForSequenceClassification"])
def test_a_written_folder_and_its_zip_open_alike(tmp_path, name) -> None:
    c = open_checkpoint(saved(tmp_path / "one", name)[0])
    fresh = c.fresh(5)
    written = write_classifier(c, tmp_path / "two", fresh)
    examples = c.prepare(images() if c.kind == "images" else texts("a good film", "bad"))
    expected = c.logits(examples.inputs, fresh.eval())
    for place in (written, packed(written, tmp_path / "flat.zip"), packed(written, tmp_path / "deep.zip", "model/")):
        again = open_checkpoint(place)
        assert torch.equal(again.logits(again.prepare(images() if c.kind == "images" else texts("a good film", "bad")).inputs), expected)
        assert again.classes == c.classes
    assert open_checkpoint(write_classifier(c, tmp_path / "three")).revision == c.revision != again.revision


def test_shards_are_read_by_their_index(tmp_path) -> None:
    folder, model = saved(tmp_path, "BertForSequenceClassification")
    shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size="20KB")
    tokenizer().save(str(folder / "tokenizer.json"))
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    assert open_checkpoint(folder).describe()["files"] == [s.name for s in shards]
    shards[0].unlink()
    with pytest.raises(CheckpointError, match=shards[0].name):
        open_checkpoint(folder)


def test_pickles_and_code_are_not_read_and_that_is_said(tmp_path) -> None:
    folder, _ = saved(tmp_path / "model", "BertForSequenceClassification")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    edit(folder, auto_map={"AutoModelForSequenceClassification": "modeling_evil.Evil"})
    notes = " ".join(open_checkpoint(folder).describe()["notes"])
    assert "pytorch_model.bin" in notes and "modeling_evil.py" in notes and "auto_map" in notes
    assert "modeling_evil.py" in " ".join(open_checkpoint(packed(folder, tmp_path / "all.zip")).describe()["notes"])
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        open_checkpoint(folder)


def test_old_names_of_keys_are_converted_by_the_library(tmp_path) -> None:
    """ViT's keys had other names up to version 4."""
    folder, model = saved(tmp_path, "ViTForImageClassification")
    state = load_file(folder / "model.safetensors")
    renames = {
        "vit.layers.": "vit.encoder.layer.",
        ".attention.q_proj.": ".attention.attention.query.",
        ".attention.k_proj.": ".attention.attention.key.",
        ".attention.v_proj.": ".attention.attention.value.",
        ".attention.o_proj.": ".attention.output.dense.",
        ".mlp.fc1.": ".intermediate.dense.",
        ".mlp.fc2.": ".output.dense.",
    }

    def old(key: str) -> str:
        for new, former in renames.items():
            key = key.replace(new, former)
        return key

    save_file({old(k): v for k, v in state.items()}, folder / "model.safetensors", {"format": "pt"})
    c = open_checkpoint(folder)
    inputs = c.prepare(images()).inputs
    torch.testing.assert_close(c.logits(inputs), model(**inputs).logits)


def test_what_a_folder_lacks_is_asked_for(tmp_path) -> None:
    folder, _ = saved(tmp_path, "ViTForImageClassification")
    known = open_checkpoint(folder).revision
    (folder / "preprocessor_config.json").unlink()
    found = inspect_checkpoint(folder)
    assert set(found["unknown"]) == {"mean", "sd"}
    assert (found["backbone"], found["keys"]["missing"]) == ("huggingface", [])
    assert "mean" in found["refusal"]["found"]
    assert open_checkpoint(folder, mean=[0.5, 0.4, 0.3], sd=[0.2, 0.3, 0.4]).revision == known
    for mean, sd in (([0.5], [1]), ([0, 0, 0], [0, 1, 1]), ("abc", [1, 1, 1])):
        with pytest.raises(CheckpointError):
            open_checkpoint(folder, mean=mean, sd=sd)


def test_a_file_beside_its_config_points_to_the_folder(tmp_path) -> None:
    folder, _ = saved(tmp_path / "nice", "BertForSequenceClassification")
    with pytest.raises(CheckpointError, match="Give the folder nice"):
        open_checkpoint(folder / "model.safetensors")


BERT = "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"num_hidden_layers": 10**6}, "1000000"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers"),
        ({"hidden_size": 10**7}, "parameters"),
        ({"vocab_size": 10**12}, "parameters"),
        ({"max_position_embeddings": 10**12}, "parameters"),
        ({"vocab_size": 9}, "word_embeddings"),
        ({"num_attention_heads": 5}, "built"),
        ({"intermediate_size": "wide"}, "built"),
        ({"id2label": {str(i): str(i) for i in range(9)}}, "classifier"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "id2label"),
        ({"id2label": {"0": "a", "7": "b"}}, "id2label"),
        ({"id2label": None, "num_labels": 10**9}, "id2label"),
        ({"problem_type": "multi_label_classification"}, "multi_label"),
        ({"architectures": ["BertModel"]}, "BertModel"),
        ({"architectures": None}, "architectures"),
        ({"architectures": ["os.system"]}, "architectures"),
        ({"model_type": "roberta"}, "roberta"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantised"),
        ({"pad_token_id": 99}, "pad_token_id|built"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_is_refused_before_memory_is_taken(tmp_path, change, found) -> None:
    folder, _ = saved(tmp_path, BERT)
    edit(folder, **change)
    begun = time.monotonic()
    with pytest.raises(CheckpointError, match=found):
        open_checkpoint(folder)
    assert inspect_checkpoint(folder)["refusal"] is not None
    assert time.monotonic() - begun < 20


def test_a_config_cannot_choose_attention_code_or_files(tmp_path) -> None:
    folder, model = saved(tmp_path, BERT)
    edit(
        folder,
        attn_implementation="kernels-community/flash-attn",
        _attn_implementation="x/y",
        transformers_weights="other.bin",
        dtype="bfloat16",
    )
    c = open_checkpoint(folder)
    inputs = c.prepare(texts("a good film")).inputs
    assert c.module.dtype == torch.float32
    torch.testing.assert_close(c.logits(inputs), model(**inputs).logits)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "[" * 200_000, '{"a": ' + "1" * 9_000_000 + "}"], ids=lambda c: c[:4] + str(len(c))
)
def test_a_config_that_is_no_json_object_is_refused(tmp_path, content) -> None:
    folder, _ = saved(tmp_path, BERT)
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(folder)


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path) -> None:
    folder, _ = saved(tmp_path, BERT)
    made = tokenizer()
    made.add_tokens(["more", "words"])
    made.save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="embedded words"):
        open_checkpoint(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        open_checkpoint(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        open_checkpoint(folder)


@pytest.mark.parametrize("key", ["classifier.bias", "bert.encoder.layer.1.output.dense.weight"])
def test_missing_damaged_and_misshapen_weights_are_refused(tmp_path, key) -> None:
    folder, _ = saved(tmp_path, BERT)
    whole = load_file(folder / "model.safetensors")
    for state, found in (
        ({k: v for k, v in whole.items() if k != key}, f"missing: {key}"),
        (whole | {key: torch.zeros(5, 5)}, rf"{key}: \(5, 5\)"),
        (whole | {key: whole[key] * float("nan")}, "not finite"),
    ):
        save_file(state, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(CheckpointError, match=found):
            open_checkpoint(folder)
    save_file(whole | {"more.weight": torch.zeros(2)}, folder / "model.safetensors", {"format": "pt"})
    assert open_checkpoint(folder).describe()["keys"]["unexpected"] == ["more.weight"]
    raw = (folder / "model.safetensors").read_bytes()
    for content in (raw[: len(raw) // 2], b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b"\x80\x04K\x01."):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(EngineError):
            open_checkpoint(folder)


@pytest.mark.parametrize(
    "table", [{"a": "../../etc/passwd.safetensors"}, {"a": "/tmp/x.safetensors"}, {"a": "pytorch_model.bin"}, {"a": 3}, {}, None]
)
def test_an_index_that_leaves_the_folder_is_refused(tmp_path, table) -> None:
    folder, _ = saved(tmp_path, BERT)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with pytest.raises(CheckpointError, match="weight_map"):
        open_checkpoint(folder)


def test_an_index_of_other_weights_is_refused(tmp_path) -> None:
    folder, _ = saved(tmp_path, BERT)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"other.key": "model.safetensors"}}))
    with pytest.raises(CheckpointError, match=r"other\.key"):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", ["../escaped.txt", "/tmp/escaped.txt", "a/../../escaped.txt", "C:\\escaped.txt"])
def test_a_zip_with_path_tricks_is_refused(tmp_path, name) -> None:
    folder, _ = saved(tmp_path / "model", BERT)
    path = packed(folder, tmp_path / "tricks.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, "out")
    with pytest.raises(UnsafeFileError):
        open_checkpoint(path)
    assert list(tmp_path.rglob("escaped*")) == []


def test_a_bomb_and_a_damaged_zip_are_refused(tmp_path) -> None:
    folder, _ = saved(tmp_path / "model", BERT)
    path = packed(folder, tmp_path / "bomb.zip")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more.safetensors", bytes(5 * 10**7))
    with pytest.raises(UnsafeFileError):
        open_checkpoint(path)
    whole = packed(folder, tmp_path / "whole.zip").read_bytes()
    (tmp_path / "half.zip").write_bytes(whole[: len(whole) // 2])
    middle = whole.index(b"bert.encoder")
    (tmp_path / "flipped.zip").write_bytes(whole[:middle] + b"XXXX" + whole[middle + 4 :])
    for damaged in ("half.zip", "flipped.zip"):
        with pytest.raises(EngineError):
            open_checkpoint(tmp_path / damaged)


def test_without_the_library_the_entry_says_what_to_install(monkeypatch, tmp_path) -> None:
    folder, _ = saved(tmp_path, BERT)
    assert next(e for e in catalogue("backbones") if e.key == "huggingface").unavailable is None
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(CheckpointError, match="pip install transformers"):
        open_checkpoint(folder)
