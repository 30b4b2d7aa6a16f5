"""Labels as they were brought to positions in a list of classes: the model's where it is given, else the classes that were found."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DatasetError, SpecError
from engine.labelled import Kind

_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True)
class Wanted:
    """What the caller of `open_labelled` named; readers use what concerns them."""

    text: str | None = None
    label: str | None = None
    limit: int | None = None
    size: tuple[int, int] | None = None
    encoding: str | None = None
    outside: bool = False

    def rows(self, count: int) -> NDArray[np.int64]:
        """Which of `count` examples are read: all, or `limit` of them evenly spaced, as files are often sorted by class."""
        if self.limit is None or self.limit >= count:
            return np.arange(count)
        return np.arange(self.limit) * count // self.limit


@dataclass(frozen=True)
class Brought:
    """What a reader gives: inputs, the name of each one's label (None: unknown), all names of the source, and what was changed.

    `titles` gives names of classes for labels that are numbers, in order, where the source itself records them.
    """

    kind: Kind
    inputs: NDArray[Any]
    names: Sequence[str | None]
    vocabulary: tuple[str, ...]
    titles: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorting key with numbers by value: 2 before 10, −1 before 0."""
    if _NUMBER.fullmatch(name):
        return ((0, int(name), ""),)
    return tuple((0, int(part), "") if _NUMBER.fullmatch(part) else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part)


def some(names: Sequence[str], most: int = 8) -> str:
    """A short list in words."""
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(repr(n) for n in names[:most]) + more


def to_classes(brought: Brought, classes: Sequence[str] | None, what: str) -> tuple[NDArray[np.int64], tuple[str, ...], tuple[str, ...]]:
    """Positions of the labels `(case,)`, −1 where unknown, the classes they count in, and what was taken for what.

    Without `classes`: the source's own list where it records one, else the names found, in natural order; a single one is refused.
    With them: names as they are; else alike but for case and punctuation; else, where every label is a number and none is the name
    of a class, as positions. Raises DatasetError for a label that is none of the classes.
    """
    titles, found = brought.titles, sorted(brought.vocabulary, key=natural)
    if classes is None:
        listed = tuple(titles.values()) or tuple(found)
        if found and len(listed) < 2:
            raise DatasetError(
                what,
                found=f"one class only: {some(found)}",
                expected="two classes or more",
                remedy="Bring examples of each class, or name the model's classes.",
            )
        places, said = {name: i for i, name in enumerate(titles or found)}, ()
    else:
        listed = tuple(classes)
        if len(set(listed)) != len(listed):
            raise SpecError("classes", found=some(listed), expected="each name once", remedy="Name each class of the model once.")
        places, said = _matched(found, titles, listed, what)
    unknown = sorted({n for n in brought.vocabulary if n not in places}, key=natural)
    if unknown:
        raise DatasetError(
            what,
            found=f"label(s) {some(unknown)}" + (f" beside {len(titles)} classes" if classes is None else ""),
            expected=f"the classes {some(listed)}",
            remedy="Rename or leave out these examples, or bring them from outside the classes: python -m engine run --outside name=FILE",
        )
    labels = np.array([-1 if name is None else places[name] for name in brought.names], np.int64)
    return labels, listed, said


def _matched(found: list[str], titles: Mapping[str, str], classes: tuple[str, ...], what: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Position in the model's classes of each name that has one, and the changes to say."""
    exact = {name: i for i, name in enumerate(classes)}
    named = {n: titles.get(n, n) for n in found}
    places = {n: exact[t] for n, t in named.items() if t in exact}
    if len(places) == len(found):
        return places, ()
    if found and all(n in exact for n in found):
        return {n: exact[n] for n in found}, ()
    loose = _unambiguous(classes)
    if not any(_NUMBER.fullmatch(t) for t in named.values()):
        theirs = _unambiguous(list(named.values()))
        alike = {n: loose[_plain(t)] for n, t in named.items() if _plain(t) in loose and _plain(t) in theirs}
        places = alike | places
        changed = [f"{named[n]!r} as {classes[i]!r}" for n, i in places.items() if named[n] != classes[i]]
        return places, (f"labels read as classes of the model: {', '.join(changed)}",) if changed else ()
    if not titles and not places and all(_NUMBER.fullmatch(n) for n in found):
        wrong = [n for n in found if not 0 <= int(n) < len(classes)]
        if wrong:
            raise DatasetError(
                what,
                found=f"label(s) {', '.join(wrong[:8])}",
                expected=f"numbers from 0 to {len(classes) - 1}, positions in the model's classes",
                remedy="Number the classes from 0, in the model's order, or bring names.",
            )
        first = ", ".join(f"{i} = {name}" for i, name in list(enumerate(classes))[:3])
        return {n: int(n) for n in found}, (f"labels are numbers, taken as positions in the model's classes: {first}, …",)
    return places, ()


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _unambiguous(names: Sequence[str]) -> dict[str, int]:
    """Position by plain spelling, without those that two names share."""
    plain = [_plain(n) for n in names]
    return {p: i for i, p in enumerate(plain) if p and plain.count(p) == 1}
