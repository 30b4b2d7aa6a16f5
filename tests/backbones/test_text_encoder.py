"""Texts to words, words to numbers, and a text classifier of our own from scratch to file and back."""

import numpy as np
import pytest
import torch

from engine.backbones import inspect_checkpoint, make_vocabulary, new_text_encoder, open_checkpoint, write_classifier, write_encoder
from engine.backbones.text_encoder import words_of
from engine.errors import CheckpointError, DatasetError
from engine.labelled import Labelled

TEXTS = ("A good film.", "a BAD film, a bad one!", "")


def labelled(texts=TEXTS, labels=(1, 0, -1), classes=("bad", "good")) -> Labelled:
    return Labelled("text", np.array(texts), np.array(labels, np.int64), classes)


def small(**changes):
    told = {"length": 6, "width": 16, "depth": 2, "num_heads": 4, "hidden": 24, "dropout": 0.1, "seed": 3, **changes}
    return new_text_encoder(["bad", "good"], make_vocabulary(TEXTS, 4), **told)


def test_words_are_lower_case_and_punctuation_stands_alone() -> None:
    assert words_of("Don't stop: it's Über-good (100%)…") == ["don't", "stop", ":", "it's", "über", "-", "good", "(", "100", "%", ")", "…"]


def test_a_vocabulary_is_ordered_by_count_then_alphabet() -> None:
    assert make_vocabulary(["b a b", "c a"], 2) == ["a", "b"]
    assert make_vocabulary(["b a b", "c a"], 9) == ["a", "b", "c"]


def test_padding_is_0_and_an_unknown_word_1() -> None:
    c = small()
    assert c.plan["vocabulary"] == ("a", "bad", "film", "!")
    examples = c.prepare(labelled(), first_id=5)
    assert examples.inputs["tokens"].tolist() == [[2, 1, 4, 1, 0, 0], [2, 3, 4, 1, 2, 3], [0, 0, 0, 0, 0, 0]]
    assert examples.labels.tolist() == [1, 0, -1]
    assert examples.ids == (5, 6, 7)


def test_what_stands_beyond_the_length_or_in_padding_does_not_count() -> None:
    c = small()
    long = c.logits(c.prepare(labelled(("a bad film a bad film and more of it",), (0,))).inputs)
    assert torch.equal(long, c.logits(c.prepare(labelled(("a bad film a bad film",), (0,))).inputs))
    tokens = c.prepare(labelled(("a bad film",), (0,))).inputs["tokens"]
    torch.testing.assert_close(c.module(tokens), c.module(tokens[:, :3]))


def test_an_empty_text_has_a_finite_answer() -> None:
    c = small()
    assert bool(c.logits(c.prepare(labelled()).inputs).isfinite().all())


def test_written_and_opened_it_answers_alike(tmp_path) -> None:
    c = small()
    again = open_checkpoint(write_classifier(c, tmp_path / "text.safetensors"))
    inputs = c.prepare(labelled()).inputs
    assert torch.equal(c.logits(inputs), again.logits(inputs))
    assert (again.key, again.kind, again.classes, again.revision) == ("text_encoder", "text", c.classes, c.revision)
    assert again.plan == c.plan
    assert again.describe()["architecture"]["length"] == 6
    assert len(again.describe()["keys"]["matched"]) == len(c.module.state_dict())


def test_trained_weights_are_written(tmp_path) -> None:
    c = small()
    trained = c.fresh(11)
    again = open_checkpoint(write_classifier(c, tmp_path / "trained.safetensors", trained))
    inputs = c.prepare(labelled()).inputs
    assert torch.equal(again.logits(inputs), trained.eval()(inputs["tokens"]))
    assert again.revision != c.revision
    with pytest.raises(CheckpointError, match="does not have"):
        write_classifier(c, tmp_path / "other.safetensors", small(depth=3).module)


def test_seeds_make_weights_and_leave_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, same, other = small(), small(), small(seed=4)
    assert one.revision == same.revision != other.revision
    assert all(torch.equal(a, b) for a, b in zip(one.fresh(1).parameters(), one.fresh(1).parameters(), strict=True))
    assert one.fresh(1).training and all(p.requires_grad for p in one.fresh(1).parameters())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"vocabulary": ["a", "bad"]}, "embed"),
        ({"vocabulary": ["a", "a", "bad", "film"]}, "twice"),
        ({"length": 10**12}, "length"),
        ({"length": "long"}, "length"),
        ({"num_heads": 5}, "5 heads"),
        ({"num_heads": 0}, "num_heads"),
        ({"classes": ["bad"]}, "classes"),
        ({"classes": ["bad", "good", "ugly"]}, "head.weight"),
        ({"classes": ["bad", "bad"]}, "twice"),
        ({"dropout": 1.5}, "dropout"),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(tmp_path, change, found) -> None:
    c = small()
    path = write_encoder(c.module, tmp_path / "bad.safetensors", "text_encoder", **{**c.plan, **change})
    with pytest.raises(CheckpointError, match=found):
        open_checkpoint(path)


def test_what_is_not_recorded_is_asked_for(tmp_path) -> None:
    c = small()
    facts = {k: v for k, v in c.plan.items() if k not in ("num_heads", "vocabulary")}
    path = write_encoder(c.module, tmp_path / "bare.safetensors", "text_encoder", **facts)
    found = inspect_checkpoint(path)
    assert found["unknown"]["num_heads"] == [1, 2, 4]
    assert "vocabulary" in found["unknown"]
    assert "num_heads" in found["refusal"]["found"]
    assert (found["backbone"], found["keys"]["missing"], found["keys"]["unexpected"]) == ("text_encoder", [], [])
    named = open_checkpoint(path, num_heads=4, vocabulary=list(c.plan["vocabulary"]))
    assert named.revision == c.revision
    with pytest.raises(CheckpointError, match="the file records"):
        open_checkpoint(path, num_heads=4, vocabulary=list(c.plan["vocabulary"]), length=7)


def test_other_data_is_refused() -> None:
    c = small()
    with pytest.raises(DatasetError, match="images"):
        c.prepare(Labelled("images", np.zeros((1, 2, 2, 3), np.uint8), np.zeros(1, np.int64), ("bad", "good")))
    with pytest.raises(DatasetError, match="ugly"):
        c.prepare(labelled(("x",), (2,), ("bad", "good", "ugly")))


def test_classes_are_matched_by_name() -> None:
    c = small()
    assert c.prepare(labelled(classes=("good", "bad"))).labels.tolist() == [0, 1, -1]
    assert c.prepare(labelled(labels=(-1, -1, -1), classes=("other",))).labels.tolist() == [-1, -1, -1]
