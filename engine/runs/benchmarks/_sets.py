"""Labelled sets of the classification benchmarks: how each is split, and the network that is trained on it from scratch."""

import csv
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from engine.backbones import make_vocabulary, new_text_encoder, new_vit
from engine.data import open_labelled
from engine.errors import SpecError
from engine.labelled import Classifier, Labelled
from engine.settings import DEMO

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COLA = "text/acceptability_corpus/raw"
WORDS = 4000
"""Vocabulary of a text encoder (our choice)."""


@dataclass(frozen=True)
class Sizes:
    """What may be made larger on the command line; 0: the set's own default."""

    train_cases: int = 3000
    verify_cases: int = 1000
    width: int = 0
    depth: int = 0
    heads: int = 0
    patch: int = 0


@dataclass(frozen=True)
class Sets:
    """Splits, out-of-distribution sets, and further sets of the same classes that are verified on with the same models.

    `network(seed)` gives the untrained classifier.
    """

    title: str
    fit: Labelled
    calibrate: Labelled
    verify: Labelled
    network: Callable[[int], Classifier]
    outside: dict[str, Labelled] = field(default_factory=dict)
    shifted: dict[str, Labelled] = field(default_factory=dict)


def some(labelled: Labelled, count: int) -> Labelled:
    """At most `count` examples, evenly spaced; 0: all."""
    whole = len(labelled)
    return labelled if not 0 < count < whole else labelled.rows(np.arange(count) * whole // count)


def apart(labelled: Labelled, shares: tuple[int, ...]) -> tuple[Labelled, ...]:
    """Parts that take turns of so many examples in a fixed shuffle: the same for all seeds of a benchmark."""
    order = np.random.default_rng(0).permutation(len(labelled))
    turn = np.repeat(np.arange(len(shares)), shares)
    of = turn[np.arange(len(order)) % len(turn)]
    return tuple(labelled.rows(np.sort(order[of == part])) for part in range(len(shares)))


def fashion(data: Path | None, sizes: Sizes) -> Sets:
    """The demo's excerpt of Fashion-MNIST, which is shipped."""
    del data
    opened = {n: open_labelled(DEMO / "fashion" / f"{n}.npz", outside=n == "outside") for n in ("fit", "calibrate", "verify", "outside")}
    return _images("Fashion-MNIST, the shipped excerpt", opened, sizes, patch=7, width=64, outside="handwritten digits")


def cifar10(data: Path | None, sizes: Sizes) -> Sets:
    """5,000 training and 3,000 test images of CIFAR-10; every fifth training image calibrates."""
    folder = _need(data, "cifar10") / "images"
    train, verify = (open_labelled(folder / f"cifar10_{n}_jpeg.npz", classes=CIFAR10) for n in ("train5k", "test3k"))
    fit, calibrate = apart(train, (4, 1))
    return _images("CIFAR-10, an excerpt", {"fit": fit, "calibrate": calibrate, "verify": verify}, sizes, patch=8, width=96)


def cola(data: Path | None, sizes: Sizes) -> Sets:
    """Linguistic acceptability: the in-domain development set verifies, the out-of-domain one shows the shift; a tenth calibrates."""
    folder = _need(data, "cola") / COLA
    train, inside, beyond = (open_labelled(folder / f"{n}.tsv") for n in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"))
    fit, calibrate = apart(train, (9, 1))
    made = _texts("CoLA", fit, calibrate, inside, sizes)
    shifted = {"out_of_domain": some(beyond, sizes.verify_cases)}
    return replace(made, shifted=shifted, outside={"out-of-domain sentences": shifted["out_of_domain"]})


def polarity(data: Path | None, sizes: Sizes) -> Sets:
    """Sentences of film reviews, positive or negative: of ten, seven fit, one calibrates, two verify."""
    whole = open_labelled(_need(data, "polarity") / "text/sentence_polarity.zip")
    fit, calibrate, verify = apart(whole, (7, 1, 2))
    made = _texts("Sentence polarity", fit, calibrate, verify, sizes)
    linguists = Path(data or ".") / COLA / "in_domain_dev.tsv"
    outside = {"sentences of linguists": some(open_labelled(linguists, outside=True), 500)} if linguists.exists() else {}
    return replace(made, outside=outside)


KNOWN: dict[str, Callable[[Path | None, Sizes], Sets]] = {"fashion": fashion, "cifar10": cifar10, "cola": cola, "polarity": polarity}
"""By the names of `--sets`; all but the first need `--data`."""


def _need(data: Path | None, name: str) -> Path:
    if data is None or not data.is_dir():
        raise SpecError(
            f"set {name}", found=f"--data {data}", expected="the folder that holds images/ and text/", remedy="Name it with --data."
        )
    return data


def _images(title: str, opened: dict[str, Labelled], sizes: Sizes, *, patch: int, width: int, outside: str = "") -> Sets:
    fit = some(opened["fit"], sizes.train_cases)
    pixels = fit.inputs.astype(np.float64) / 255
    facts: dict[str, Any] = {"mean": pixels.mean((0, 1, 2)).tolist(), "sd": pixels.std((0, 1, 2)).tolist(), "size": fit.inputs.shape[1:]}
    facts |= _shape(sizes, width, 4) | {"patch": sizes.patch or patch}
    beyond = {outside: some(opened["outside"], sizes.verify_cases)} if "outside" in opened else {}
    calibrate = some(opened["calibrate"], sizes.train_cases // 4)
    verify = some(opened["verify"], sizes.verify_cases)
    return Sets(title, fit, calibrate, verify, lambda seed: new_vit(fit.classes, **facts, seed=seed), beyond)


def _texts(title: str, fit: Labelled, calibrate: Labelled, verify: Labelled, sizes: Sizes) -> Sets:
    fit = some(fit, sizes.train_cases)
    words = make_vocabulary(fit.inputs.tolist(), WORDS)
    facts = _shape(sizes, 64, 3) | {"length": 32}
    calibrate, verify = some(calibrate, sizes.train_cases // 4), some(verify, sizes.verify_cases)
    return Sets(title, fit, calibrate, verify, lambda seed: new_text_encoder(fit.classes, words, **facts, seed=seed))


def _shape(sizes: Sizes, width: int, depth: int) -> dict[str, Any]:
    wide = sizes.width or width
    return {"width": wide, "depth": sizes.depth or depth, "num_heads": sizes.heads or 4, "hidden": wide, "dropout": 0.1}


def write(labelled: Labelled, stem: Path) -> Path:
    """A set as a file that a run reads like any user's; written once."""
    if labelled.kind == "images":
        path = stem.with_suffix(".npz")
        labels = {} if (labelled.labels < 0).any() else {"labels": labelled.labels, "classes": np.array(labelled.classes)}
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                np.savez(file, allow_pickle=False, images=labelled.inputs, **labels)
        return path
    path = stem.with_suffix(".csv")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        names = [labelled.classes[i] if i >= 0 else "unknown" for i in labelled.labels]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *zip(labelled.inputs.tolist(), names, strict=True)])
    return path


def digest(about: dict[str, Any]) -> str:
    """Eight hex digits that tell settings apart."""
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:8]
