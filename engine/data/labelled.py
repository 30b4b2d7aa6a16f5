"""`open_labelled`: images or texts with their classes, from what was brought to `Labelled`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.data._fingerprint import fingerprint
from engine.data._labels import Wanted, to_classes
from engine.data._readers import recognise
from engine.errors import DatasetError, SpecError
from engine.labelled import Kind, Labelled
from engine.safety import reading, resolved

ENTRIES: tuple[Any, ...] = ()


def open_labelled(
    path: str | Path,
    *,
    kind: Kind | None = None,
    classes: Sequence[str] | None = None,
    text: str | None = None,
    label: str | None = None,
    limit: int | None = None,
    size: int | tuple[int, int] | None = None,
    encoding: str | None = None,
    outside: bool = False,
) -> Labelled:
    """Labelled images or texts of a file or folder, by the reader that recognises its content.

    Arguments: `kind`, to consider readers of images or of texts only; `classes`, the model's class names in order, onto which labels
    are mapped by name, or by position where they are numbers; `text` and `label`, columns of a table; `limit`, at most so many
    examples, evenly spaced through the source; `size`, (height, width) or one side of a square to resize images to; `encoding` of text
    that is not UTF-8; `outside`: examples from outside the classes (out of distribution), whose labels, if any, do not count.

    Images are `(case, height, width, channel)` uint8, texts `(case,)` str; labels −1 where unknown. What was converted is said in
    `changes`. Raises DatasetError, UnsafeFileError or SpecError with what to do about it.
    """
    if limit is not None and limit < 1:
        raise SpecError("limit", found=str(limit), expected="1 or more", remedy="Leave it out for all examples.")
    if kind not in (None, "images", "text"):
        raise SpecError("kind", found=repr(kind), expected="'images' or 'text'", remedy="Leave it out: the content of the source tells.")
    shape = (size, size) if isinstance(size, int) else size
    if shape is not None and not (len(shape) == 2 and all(1 <= side <= 4096 for side in shape)):
        raise SpecError("size", found=str(size), expected="height and width from 1 to 4096 pixels", remedy="Correct the size.")
    place = resolved(path, "dataset")
    if place.is_dir() and not any(place.iterdir()):
        raise DatasetError(
            f"dataset {place.name}", found="an empty folder", expected="examples", remedy="Choose the folder that holds them."
        )
    with reading(f"labelled data {place.name}"):
        reader, key = recognise(place, "classification", "labelled data", kind)
        brought = reader.open(place, Wanted(text, label, limit, shape, encoding, outside))
    what = f"{brought.kind} {place.name}"
    if not len(brought.inputs):
        raise DatasetError(what, found="no examples", expected="one or more", remedy="Choose a source that holds some.")
    changes = list(brought.changes)
    if outside:
        labels, names = np.full(len(brought.inputs), -1, np.int64), tuple(classes or brought.titles.values())
        changes.append("brought as examples from outside the classes: labels, if any, do not count")
    else:
        labels, names, said = to_classes(brought, classes, what)
        changes += said
    if limit is not None and len(labels) == limit:
        changes.append(f"at most {limit} examples, evenly spaced through the source")
    options: dict[str, object] = {
        "reader": key,
        "classes": names,
        "text": text,
        "label": label,
        "limit": limit,
        "size": shape,
        "encoding": encoding,
    }
    return Labelled(
        brought.kind,
        brought.inputs,
        labels,
        names,
        title=place.name,
        changes=tuple(changes),
        sources=brought.sources,
        fingerprint=fingerprint({"examples": [place], "labels": list(brought.sources[1:])}, options | {"outside": outside}),
    )
