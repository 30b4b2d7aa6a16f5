"""Labelled data against a classifier's own list of classes."""

from typing import TYPE_CHECKING

import numpy as np

from engine.errors import DatasetError
from engine.labelled import Classifier, Labelled

if TYPE_CHECKING:
    from torch import Tensor


def check_kind(classifier: Classifier, labelled: Labelled) -> None:
    """Raises DatasetError for images where texts are expected, and so on."""
    if labelled.kind != classifier.kind:
        raise DatasetError(
            f"data {labelled.title}".rstrip(),
            found=labelled.kind,
            expected=f"{classifier.kind}, which {classifier.title} classifies",
            remedy="Bring data of that kind, or another model.",
        )


def labels_of(classifier: Classifier, labelled: Labelled) -> "Tensor":
    """Labels `(case,)` as positions in the model's classes, found by name; −1 stays −1.

    Labels that are numbers, none of them the name of a class, are positions in the model's list, as on the command line. A model whose
    classes have no names (LABEL_0, LABEL_1, …) takes such numbers alone: an order of names would be a guess. Raises DatasetError for a
    label of a class that the model does not have.
    """
    import torch

    ours, theirs = classifier.classes, labelled.classes
    if ours == theirs:
        return torch.from_numpy(labelled.labels)
    place = {name: i for i, name in enumerate(ours)}
    used = [theirs[i] for i in np.unique(labelled.labels[labelled.labels >= 0])]
    if used and all(name.isascii() and name.isdigit() for name in theirs) and not any(name in place for name in theirs):
        place = {name: int(name) for name in theirs if int(name) < len(ours)}
    strange = [name for name in used if name not in place]
    if strange:
        nameless = ours == tuple(f"LABEL_{i}" for i in range(len(ours)))
        raise DatasetError(
            f"classes of {labelled.title}".rstrip(),
            found=f"labels that the model does not know: {', '.join(strange[:6])}",
            expected=f"among its {len(ours)} classes: {', '.join(ours[:8])}{', …' if len(ours) > 8 else ''}",
            remedy="Number the labels from 0 in the model's order, or write the class names into its config.json (id2label)."
            if nameless
            else "Rename the classes as the model has them, or leave those examples out.",
        )
    # the last entry is where −1 finds itself
    positions = np.array([place.get(name, -1) for name in theirs] + [-1], np.int64)
    return torch.from_numpy(positions[labelled.labels])
