"""Labelled data against a classifier's classes: the Python road takes labels as the command line does."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.backbones._labels import labels_of
from engine.errors import DatasetError
from engine.labelled import Labelled


def labels(ours, theirs, positions):
    texts = np.array(["a"] * len(positions), object)
    return labels_of(SimpleNamespace(classes=ours), Labelled("text", texts, np.array(positions), theirs)).tolist()


NAMELESS = ("LABEL_0", "LABEL_1", "LABEL_2")


def test_labels_by_number():
    """Names say nothing about a model without class names; numbers are its positions, also where not all of them occur."""
    with pytest.raises(DatasetError, match="id2label"):
        labels(NAMELESS, ("bird", "cat", "dog"), [0, 1, 2])
    assert labels(NAMELESS, NAMELESS, [2, -1, 0]) == [2, -1, 0]
    assert labels(NAMELESS, ("1", "2"), [0, 1, -1]) == [1, 2, -1]
    assert labels(("bird", "cat"), ("0", "1"), [1, 0]) == [1, 0]
    with pytest.raises(DatasetError, match="does not know: 3"):
        labels(NAMELESS, ("1", "3"), [0, 1])


def test_names_are_found_by_name():
    assert labels(("cat", "bird"), ("bird", "cat"), [0, 1, -1]) == [1, 0, -1]
    assert labels(("2", "1"), ("1", "2"), [0, 1]) == [1, 0]
    with pytest.raises(DatasetError, match="Rename"):
        labels(("cat", "bird"), ("bird", "dog"), [0, 1])
