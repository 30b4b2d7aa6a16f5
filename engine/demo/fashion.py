"""The classification demo's data from Fashion-MNIST: `python -m engine.demo.fashion FOLDER assets/demo/fashion`.

FOLDER holds the four IDX files of Debian's package `dataset-fashion-mnist`. Fit and calibrate are drawn from its training set,
verify from its test set, equally many of each class and in random order; the digits of scikit-learn are what lies outside the classes.
They are npz files that an ordinary user could have brought, packed with LZMA, which `numpy.load` reads and which saves a seventh.
"""

import argparse
import gzip
import hashlib
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
SEED = 1709
"""Chooses the examples (the month in which Fashion-MNIST appeared)."""
FIT, CALIBRATE, VERIFY = 600, 150, 300
"""Examples of each class."""
OUTSIDE = 500
LICENSE = """\
fit.npz, calibrate.npz, verify.npz: a selection of Fashion-MNIST (https://github.com/zalandoresearch/fashion-mnist)

The MIT License (MIT)

Copyright © 2017 Zalando SE, https://tech.zalando.com

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
"Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH
THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.


outside.npz: 500 images of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), UCI Machine Learning
Repository, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), from the copy in
scikit-learn. Changed: scaled from 8×8 to 28×28 pixels and from 0 … 16 to 0 … 255; labels left out.
"""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of a gzipped IDX file of unsigned bytes: two zeros, type 8, number of dimensions, each length as big-endian uint32."""
    content = gzip.decompress(path.read_bytes())
    assert content[:3] == b"\0\0\x08", path
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def draw(labels: NDArray[np.uint8], counts: tuple[int, ...], random: np.random.Generator) -> list[NDArray[np.int64]]:
    """Disjoint random positions in `labels`, one array for each of `counts` (examples of each class), each in random order."""
    parts: list[list[NDArray[np.int64]]] = [[] for _ in counts]
    for label in range(len(CLASSES)):
        order = random.permutation(np.flatnonzero(labels == label))
        for part, piece in zip(parts, np.split(order, np.cumsum(counts))[: len(counts)], strict=True):
            part.append(piece)
    return [random.permutation(np.concatenate(part)) for part in parts]


def outside() -> NDArray[np.uint8]:
    """Digits `(case, 28, 28, 1)`: the first `OUTSIDE` of scikit-learn's, bilinearly scaled, white on black as the clothes are."""
    digits = np.asarray(load_digits(return_X_y=True)[0])[:OUTSIDE].reshape(-1, 8, 8)
    small = np.rint(digits / 16 * 255).astype(np.uint8)
    return np.stack([np.asarray(Image.fromarray(i).resize((28, 28), Image.Resampling.BILINEAR)) for i in small])[..., None]


def write(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    """An npz file of images, labels and classes, the same bytes whenever it is written."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, values in (("images", images), ("labels", labels.astype(np.int8)), ("classes", np.array(CLASSES))):
            info = zipfile.ZipInfo(f"{name}.npy")  # of 1980, whatever the clock says
            info.compress_type = zipfile.ZIP_LZMA
            with archive.open(info, "w") as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(values), allow_pickle=False)


def make(source: Path, out: Path) -> None:
    """Write the four files, their licences and their hashes."""
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(SEED)
    images, labels = (read_idx(source / f"train-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    for name, rows in zip(("fit", "calibrate"), draw(labels, (FIT, CALIBRATE), random), strict=True):
        write(out / f"{name}.npz", images[rows][..., None], labels[rows].astype(np.int64))
    images, labels = (read_idx(source / f"t10k-{name}-ubyte.gz") for name in ("images-idx3", "labels-idx1"))
    (rows,) = draw(labels, (VERIFY,), random)
    write(out / "verify.npz", images[rows][..., None], labels[rows].astype(np.int64))
    write(out / "outside.npz", outside(), np.full(OUTSIDE, -1))
    (out / "LICENSE").write_text(LICENSE, encoding="utf-8")
    files = sorted(out.glob("*.npz"))
    (out / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    make(options.source, options.out)
    for path in sorted(options.out.glob("*.npz")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
