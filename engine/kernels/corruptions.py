"""Corruptions of images and of texts at five severities: how a classifier fares where its inputs get worse than what it was trained on.

The kinds are five of those of CIFAR-10-C (Hendrycks and Dietterich 2019, "Benchmarking neural network robustness to common
corruptions and perturbations", section 4), written anew from their definitions; the strengths are our choice, spread so that the least
is hardly seen and the greatest leaves the class discernible. Results are therefore not those of CIFAR-10-C itself. Lengths are in parts
of the shorter side, so that small and large images are treated alike.

Randomness is keyed by (seed, case id, corruption, severity) through `engine.kernels.noise`: an example is corrupted in the same way
in any batch. Severity 0 gives back the input.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from engine.errors import SpecError
from engine.types import Array

SEVERITIES = (1, 2, 3, 4, 5)
STRENGTHS: dict[str, tuple[float, ...]] = {
    "gaussian_noise": (0.04, 0.08, 0.12, 0.18, 0.26),
    "blur": (0.5, 0.8, 1.2, 1.7, 2.4),
    "contrast": (0.75, 0.5, 0.35, 0.2, 0.1),
    "brightness": (0.08, 0.16, 0.24, 0.32, 0.4),
    "pixelate": (0.75, 0.5, 0.4, 0.3, 0.2),
}
"""sd of the noise (range 0 … 1); sd of the blur in 1/32 of the shorter side; factor of the contrast; what is added (range 0 … 1);
cells a side in parts of the pixels."""
TEXT_STRENGTHS: dict[str, tuple[float, ...]] = {
    "drop_words": (0.05, 0.1, 0.2, 0.35, 0.5),
    "swap_letters": (0.05, 0.1, 0.2, 0.4, 0.7),
}
"""Chance of a word to be dropped; chance of a word of four letters or more to have two neighbouring inner letters swapped."""
TITLES = {
    "gaussian_noise": "Gaussian noise",
    "blur": "Blur",
    "contrast": "Low contrast",
    "brightness": "Brightness",
    "pixelate": "Coarse pixels",
    "drop_words": "Dropped words",
    "swap_letters": "Swapped letters",
}
_SITES = {name: site for site, name in enumerate(TITLES)}


def corrupt(images: ArrayLike, name: str, severity: int, *, seed: int, cases: Sequence[int] | None = None) -> NDArray[np.uint8]:
    """Corrupted images, of the same shape `(case, height, width, channel)` and type uint8.

    `name` is one of `STRENGTHS`, `severity` 0 (untouched) to 5, `cases` the ids that key the noise (default 0, 1, …). Raises
    SpecError for another name or severity.
    """
    pixels = np.asarray(images)
    if pixels.ndim != 4 or pixels.dtype != np.uint8:
        raise ValueError(f"images {pixels.dtype} {pixels.shape}; expected uint8 (case, height, width, channel)")
    strength = _strength(STRENGTHS, name, severity)
    if strength is None:
        return pixels.copy()
    ids = _ids(cases, len(pixels))
    result = np.empty_like(pixels)
    for i, case in enumerate(ids):  # one at a time: floats of a whole set would take eight times its memory
        corrupted = _IMAGE[name](pixels[i] / 255.0, strength, lambda case=case: _random(seed, case, name, severity))
        result[i] = np.rint(np.clip(corrupted, 0.0, 1.0) * 255.0).astype(np.uint8)
    return result


def corrupt_texts(texts: ArrayLike, name: str, severity: int, *, seed: int, cases: Sequence[int] | None = None) -> NDArray[np.object_]:
    """Corrupted texts `(case,)` as an array of str: words dropped (one always stays) or letters swapped; arguments as in `corrupt`.

    Words are what blanks separate, and are joined by single blanks. Our own choice of corruptions: the papers have none for texts.
    """
    given = np.asarray(texts, dtype=object)
    if given.ndim != 1:
        raise ValueError(f"texts {given.shape}; expected (case,)")
    strength = _strength(TEXT_STRENGTHS, name, severity)
    if strength is None:
        return given.copy()
    ids = _ids(cases, len(given))
    result = np.empty(len(given), dtype=object)
    result[:] = [_TEXT[name](str(t).split(), strength, _random(seed, c, name, severity)) for t, c in zip(given, ids, strict=True)]
    return result


def _strength(strengths: dict[str, tuple[float, ...]], name: str, severity: int) -> float | None:
    if name not in strengths:
        raise SpecError("corruption", found=repr(name), expected=f"one of {', '.join(strengths)}", remedy="Use one of these names.")
    if severity not in (0, *SEVERITIES):
        raise SpecError("severity", found=str(severity), expected="0 (untouched) to 5", remedy="Use one of these.")
    return strengths[name][severity - 1] if severity else None


def _ids(cases: Sequence[int] | None, count: int) -> Sequence[int]:
    ids = range(count) if cases is None else cases
    if len(ids) != count:
        raise ValueError(f"{len(ids)} case ids for {count} examples")
    return ids


def _random(seed: int, case: int, name: str, severity: int) -> np.random.Generator:
    from engine.kernels.noise import key64

    return np.random.default_rng(key64(seed, severity, int(case), _SITES[name]))


_Draw = Callable[[], np.random.Generator]


def _gaussian_noise(image: Array, sd: float, draw: _Draw) -> Array:
    return image + draw().normal(0.0, sd, image.shape)


def _blur(image: Array, width: float, draw: _Draw) -> Array:
    sd = width * min(image.shape[:2]) / 32
    return ndimage.gaussian_filter(image, (sd, sd, 0), mode="nearest")


def _contrast(image: Array, factor: float, draw: _Draw) -> Array:
    middle = image.mean((0, 1), keepdims=True)
    return middle + factor * (image - middle)


def _brightness(image: Array, added: float, draw: _Draw) -> Array:
    return image + added


def _pixelate(image: Array, part: float, draw: _Draw) -> Array:
    """Means over cells, each pixel in one cell."""
    for axis in (0, 1):
        length = image.shape[axis]
        cells = max(1, round(part * length))
        cell = np.arange(length) * cells // length
        starts = np.searchsorted(cell, np.arange(cells))
        means = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(np.bincount(cell), tuple({0, 1, 2} - {axis}))
        image = np.take(means, cell, axis=axis)
    return image


_IMAGE: dict[str, Callable[[Array, float, _Draw], Array]] = {
    "gaussian_noise": _gaussian_noise,
    "blur": _blur,
    "contrast": _contrast,
    "brightness": _brightness,
    "pixelate": _pixelate,
}


def _drop_words(words: list[str], chance: float, random: np.random.Generator) -> str:
    drawn = random.random(len(words))
    kept = [word for word, u in zip(words, drawn, strict=True) if u >= chance]
    return " ".join(kept or [words[int(drawn.argmax())]] if words else [])


def _swap_letters(words: list[str], chance: float, random: np.random.Generator) -> str:
    drawn, places = random.random(len(words)), random.random(len(words))
    result = []
    for word, u, place in zip(words, drawn, places, strict=True):
        if len(word) >= 4 and u < chance:
            at = 1 + int(place * (len(word) - 3))
            word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        result.append(word)
    return " ".join(result)


_TEXT: dict[str, Callable[[list[str], float, np.random.Generator], str]] = {"drop_words": _drop_words, "swap_letters": _swap_letters}
