"""Corruptions: keyed, monotone in severity, and of the images' own shape and type."""

import numpy as np
import pytest

from engine.data import open_labelled
from engine.errors import SpecError
from engine.kernels.corruptions import SEVERITIES, STRENGTHS, TEXT_STRENGTHS, TITLES, corrupt, corrupt_texts
from engine.settings import DEMO

TEXTS = ["the sailors rode the breeze clear of the rocks again and again", "books were sent to each other by the students"] * 20


@pytest.fixture(scope="module")
def clothes():
    return open_labelled(DEMO / "fashion/verify.npz", limit=60).inputs


@pytest.fixture(scope="module")
def colours():
    smooth = np.random.default_rng(0).normal(size=(8, 4, 5, 3)).repeat(9, 1).repeat(8, 2)
    return np.clip(128 + 50 * smooth, 0, 255).astype(np.uint8)


def damage(a, b):
    return np.abs(a.astype(int) - b.astype(int)).mean((1, 2, 3))


@pytest.mark.parametrize("name", STRENGTHS)
@pytest.mark.parametrize("source", ["clothes", "colours"])
def test_worse_at_each_severity(name, source, request):
    images = request.getfixturevalue(source)
    before = images.copy()
    harm = [damage(images, corrupt(images, name, severity, seed=0)) for severity in (0, *SEVERITIES)]
    assert harm[0].max() == 0
    assert (np.diff([h.mean() for h in harm]) > 0).all()
    assert np.mean(np.diff(harm, axis=0) >= 0) > 0.9  # example by example, too
    assert np.array_equal(images, before)


@pytest.mark.parametrize("name", STRENGTHS)
def test_shape_and_type_are_kept_and_some_of_the_image_is_left(name, clothes, colours):
    for images in (clothes, colours, colours[:, ::4, ::5]):
        worst = corrupt(images, name, 5, seed=3)
        assert (worst.shape, worst.dtype) == (images.shape, np.uint8)
        related = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(images, worst, strict=True)]
        assert np.mean(related) > 0.4


@pytest.mark.parametrize("name", STRENGTHS)
def test_an_example_does_not_depend_on_its_batch(name, clothes):
    whole = corrupt(clothes, name, 3, seed=1, cases=range(100, 160))
    part = corrupt(clothes[[7, 30]], name, 3, seed=1, cases=[107, 130])
    assert np.array_equal(part, whole[[7, 30]])


def test_noise_is_keyed_by_seed_case_and_severity(clothes):
    grey = np.full((3, 28, 28, 1), 128, np.uint8)
    one = corrupt(grey, "gaussian_noise", 2, seed=0)
    assert not np.array_equal(one[0], one[1])
    assert not np.array_equal(one, corrupt(grey, "gaussian_noise", 2, seed=1))
    assert np.array_equal(one, corrupt(grey, "gaussian_noise", 2, seed=0))
    noise = [corrupt(grey, "gaussian_noise", s, seed=0)[0].astype(float) - 128 for s in (2, 3)]
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.15
    assert noise[0].std() / 255 == pytest.approx(STRENGTHS["gaussian_noise"][1], rel=0.1)


def test_each_is_what_its_name_says(colours):
    image = colours.astype(float)
    assert np.allclose(corrupt(colours, "contrast", 5, seed=0).mean((1, 2)), image.mean((1, 2)), atol=1)
    assert (corrupt(colours, "brightness", 2, seed=0) >= colours).all()
    assert np.allclose(corrupt(colours, "blur", 3, seed=0).mean((1, 2)), image.mean((1, 2)), atol=4)
    half = corrupt(colours, "pixelate", 2, seed=0)  # cells of 2 × 2 pixels
    assert np.allclose(half, image.reshape(8, 18, 2, 20, 2, 3).mean((2, 4)).repeat(2, 1).repeat(2, 2), atol=0.51)


def test_wrong_names_and_severities(colours):
    with pytest.raises(SpecError, match="gaussian_noise, blur"):
        corrupt(colours, "fog", 1, seed=0)
    for severity in (-1, 6):
        with pytest.raises(SpecError, match="severity"):
            corrupt(colours, "blur", severity, seed=0)
    with pytest.raises(SpecError, match="drop_words"):
        corrupt_texts(TEXTS, "blur", 1, seed=0)
    with pytest.raises(ValueError, match="uint8"):
        corrupt(colours / 255, "blur", 1, seed=0)
    with pytest.raises(ValueError, match="2 case ids for 8"):
        corrupt(colours, "blur", 1, seed=0, cases=[0, 1])
    assert set(TITLES) == {*STRENGTHS, *TEXT_STRENGTHS}


def test_words_are_dropped(colours):
    left = [np.mean([len(t.split()) for t in corrupt_texts(TEXTS, "drop_words", s, seed=0)]) for s in (0, *SEVERITIES)]
    assert (np.diff(left) < 0).all()
    worst = corrupt_texts(TEXTS, "drop_words", 5, seed=0)
    for text, original in zip(worst, TEXTS, strict=True):
        rest = iter(original.split())
        assert text
        assert all(word in rest for word in text.split())  # in order
    assert corrupt_texts(["word"] * 50, "drop_words", 5, seed=0).tolist() == ["word"] * 50  # one always stays
    assert corrupt_texts([""], "drop_words", 5, seed=0).tolist() == [""]


def test_letters_are_swapped():
    changed = []
    for severity in (0, *SEVERITIES):
        result = corrupt_texts(TEXTS, "swap_letters", severity, seed=0)
        pairs = [(a, b) for t, u in zip(TEXTS, result, strict=True) for a, b in zip(t.split(), u.split(), strict=True)]
        assert all(sorted(a) == sorted(b) and a[0] == b[0] and a[-1] == b[-1] for a, b in pairs)
        changed.append(sum(a != b for a, b in pairs))
    assert changed[0] == 0
    assert (np.diff(changed) > 0).all()
    part = corrupt_texts(TEXTS[3:5], "swap_letters", 4, seed=2, cases=[3, 4])
    assert part.tolist() == corrupt_texts(TEXTS, "swap_letters", 4, seed=2)[3:5].tolist()
