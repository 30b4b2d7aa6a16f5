"""Images as NumPy arrays: an `.npz` with images and labels, or an `.npy` of images with `<stem>_labels.npy` beside it."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.data._labels import Brought, Wanted, natural
from engine.data._members import checked_zip
from engine.data._stored_arrays import from_npy, from_npz
from engine.errors import DatasetError
from engine.safety import check_bytes, kind_of, memory_limit, readable_file

_IMAGES, _LABELS = ("images", "x", "data"), ("labels", "y", "targets")


class ImageArrays:
    """Arrays by name: images (`images`, `x`, `data`), labels (`labels`, `y`, `targets`), and names of classes (`classes`) where known.

    Images are `(case, height, width)`, `(case, height, width, channel)` or `(case, channel, height, width)` with 1, 3 or 4 channels:
    whole numbers 0 … 255, or fractions 0 … 1. Labels are positions in `classes`, or names; −1 is unknown. Without labels all are.
    """

    key = "image_arrays"
    title = "images and labels as NumPy arrays (.npz, .npy)"
    endings = (".npz", ".npy")
    companions = ("*_labels.npy",)
    task = "classification"
    kind = "images"
    requires = ()

    def sniff(self, path: Path) -> bool:
        """A zip archive of `.npy` members, or an `.npy` file."""
        if not path.is_file() or (kind := kind_of(path)) not in ("zip", "npy"):
            return False
        if kind == "npy":
            return True
        names = [m.filename for m in checked_zip(path)]
        return bool(names) and all(n.endswith(".npy") for n in names)

    def open(self, path: Path, wanted: Wanted) -> Brought:
        """Pixels `(case, height, width, channel)` uint8. Raises DatasetError for arrays that are not as above."""
        what = f"images {path.name}"
        file, sources = readable_file(path, "dataset"), (path,)
        if kind_of(file) == "npy":
            arrays, beside = {"images": from_npy(file, what)}, file.with_name(f"{file.stem}_labels.npy")
            if beside.exists():
                arrays["labels"], sources = np.asarray(from_npy(readable_file(beside, "dataset"), what)), (path, beside)
        else:
            arrays = from_npz(file, what, (*_IMAGES, *_LABELS, "classes"))
        images = _named(arrays, _IMAGES, what)
        if images is None:
            raise DatasetError(
                what,
                found=f"arrays {', '.join(f'{n} {a.shape}' for n, a in arrays.items()) or 'none'}",
                expected=f"images in an array named {', '.join(_IMAGES)}; labels in {', '.join(_LABELS)}",
                remedy="Save one set in a file, under these names.",
            )
        labels, changes = _named(arrays, _LABELS, what), []
        titles = {str(i): name for i, name in enumerate(_texts(arrays["classes"], what))} if "classes" in arrays else {}
        if labels is None:
            changes.append("no labels: every label is unknown")
        names = [None] * len(images) if labels is None else _names(labels, len(images), titles, what)
        rows = wanted.rows(len(images))
        check_bytes(images[:1].nbytes * len(rows) * 2, memory_limit(), what, "as pixels")
        pixels = _pixels(np.asarray(images[rows]), what, changes, wanted)
        vocabulary = tuple(sorted({n for n in names if n is not None}, key=natural))
        return Brought("images", pixels, [names[i] for i in rows], vocabulary, titles, tuple(changes), sources)


def _named(arrays: dict[str, NDArray[Any]], names: tuple[str, ...], what: str) -> NDArray[Any] | None:
    present = [n for n in names if n in arrays]
    if len(present) > 1:
        raise DatasetError(
            what, found=f"arrays {' and '.join(present)}", expected=f"one of {', '.join(names)}", remedy="Leave out the others."
        )
    return arrays[present[0]] if present else None


def _texts(values: NDArray[Any], what: str) -> list[str]:
    if values.ndim != 1 or values.dtype.kind not in "US":
        raise DatasetError(what, found=f"classes of {values.dtype} {values.shape}", expected="a list of names", remedy="Save them as text.")
    try:
        names = [v.decode() if isinstance(v, bytes) else v for v in values.tolist()]
    except UnicodeDecodeError as error:
        raise DatasetError(what, found="class names that are not UTF-8", expected="UTF-8", remedy="Save them as text.") from error
    if len(set(names)) != len(names):
        raise DatasetError(what, found="a class named twice", expected="each class once", remedy="Rename the classes.")
    return names


def _names(labels: NDArray[Any], count: int, titles: dict[str, str], what: str) -> list[str | None]:
    """Each label as the text of a whole number (with `titles`, its position) or as a name; −1 is unknown."""
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or len(flat) != count:
        raise DatasetError(
            what, found=f"labels {labels.shape} for {count} images", expected=f"({count},)", remedy="Give each image one label."
        )
    if flat.dtype.kind in "US":
        names = [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in flat.tolist()]
        positions = {title: position for position, title in titles.items()}
        return [positions.get(n, n) for n in names]
    wrong = ~np.isfinite(flat) | (flat != np.round(flat)) if flat.dtype.kind == "f" else np.zeros(count, bool)
    wrong |= (flat < -1) | (flat >= len(titles) if titles else False) if flat.dtype.kind in "iuf" else True
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise DatasetError(
            what,
            found=f"label {flat[first]} of image {first} ({int(wrong.sum())} are like it)",
            expected=f"whole numbers from 0 to {len(titles) - 1}, or −1 for unknown"
            if titles
            else "whole numbers from 0, or −1 for unknown",
            remedy="Number the classes from 0.",
        )
    return [None if v == -1 else str(int(v)) for v in flat.tolist()]


def _pixels(images: NDArray[Any], what: str, changes: list[str], wanted: Wanted) -> NDArray[np.uint8]:
    """uint8 with channels last."""
    shape = images.shape
    if images.ndim == 3:
        images = images[..., None]
    elif images.ndim == 4 and shape[3] not in (1, 3, 4) and shape[1] in (1, 3, 4):
        images = np.moveaxis(images, 1, -1)
        changes.append("channels moved to the end")
    if images.ndim != 4 or images.shape[3] not in (1, 3, 4) or 0 in images.shape[1:3]:
        raise DatasetError(
            what,
            found=f"images of shape {shape}",
            expected="(case, height, width), with 1, 3 or 4 channels at the end or after the case",
            remedy="Save images in one of these shapes.",
        )
    images = _bytes(images, what, changes)
    if images.shape[3] == 4:
        images = images[..., :3]
        changes.append("alpha channel dropped")
    if wanted.size is not None and images.shape[1:3] != wanted.size:
        from PIL import Image

        height, width = wanted.size
        changes.append(f"resized to {height}×{width} (bilinear)")
        resized = [
            Image.fromarray(i.squeeze(-1) if i.shape[2] == 1 else i).resize((width, height), Image.Resampling.BILINEAR) for i in images
        ]
        images = np.stack([np.asarray(i).reshape(height, width, -1) for i in resized])
    return np.ascontiguousarray(images)


def _bytes(images: NDArray[Any], what: str, changes: list[str]) -> NDArray[np.uint8]:
    if images.dtype.kind in "iu" and len(images) > 1 and images.size and images.min() >= 0 and images.max() == 1:
        raise DatasetError(
            what,
            found=f"{len(images)} images whose pixels are all 0 or 1, of type {images.dtype}",
            expected="whole numbers 0 … 255, or fractions 0 … 1",
            remedy="Multiply by 255 for black and white, or save fractions as floats; a range is not guessed.",
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind not in "iuf":
        raise DatasetError(what, found=f"images of type {images.dtype}", expected="uint8", remedy="Save numbers from 0 to 255.")
    low, high = (float(images.min()), float(images.max())) if images.size else (0.0, 0.0)
    if not np.isfinite([low, high]).all():
        case = int(np.argwhere(~np.isfinite(images))[0][0])
        raise DatasetError(
            what, found=f"NaN or infinite pixels in image {case}", expected="numbers", remedy="Leave out the images without values."
        )
    fractions = images.dtype.kind == "f"
    if low < 0 or high > (1 if fractions else 255):
        raise DatasetError(
            what,
            found=f"{images.dtype} pixels from {low:g} to {high:g}",
            expected="whole numbers 0 … 255 or fractions 0 … 1",
            remedy="Undo the normalisation and save them as uint8; a range is not guessed.",
        )
    changes.append(f"{images.dtype} pixels from 0 … 1 to 0 … 255" if fractions else f"{images.dtype} pixels to uint8")
    return np.rint(images * 255.0).astype(np.uint8) if fractions else images.astype(np.uint8)


ENTRIES = (ImageArrays(),)
