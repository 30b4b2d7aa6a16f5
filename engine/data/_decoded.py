"""Bytes of a text file to text: UTF-8 unless another encoding is named, never guessed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DatasetError, SpecError

MAX_CHARACTERS = 1_000_000
"""Longest single text; a novel has about half of it. Our choice."""


def decoded(data: bytes, encoding: str | None, what: str) -> str:
    """The text without a byte order mark. Raises DatasetError naming the line that is not in this encoding."""
    name = encoding or "utf-8"
    try:
        return data.decode("utf-8-sig" if name.lower().replace("_", "-") in ("utf-8", "utf8") else name)
    except LookupError as error:
        raise SpecError(
            "encoding",
            found=repr(name),
            expected="a name that Python knows, such as 'latin-1'",
            remedy="Correct it in --encoding (encoding= in Python).",
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise DatasetError(
            what,
            found=f"bytes in line {line} that are not {name.upper()}",
            expected=f"{name.upper()} text",
            remedy="Save it as UTF-8, or name its encoding, like latin-1, cp1252 or utf-16, with --encoding (encoding= in Python).",
        ) from error


def as_texts(values: Sequence[str], where: Sequence[str], what: str) -> NDArray[Any]:
    """Texts `(case,)` as an array of str; an empty one, or one of more than `MAX_CHARACTERS`, is refused with its place."""
    for value, place in zip(values, where, strict=True):
        if not value.strip() or len(value) > MAX_CHARACTERS:
            raise DatasetError(
                what,
                found=f"{len(value):,} characters in {place}" if value.strip() else f"no text in {place}",
                expected=f"1 to {MAX_CHARACTERS:,} characters a text",
                remedy="Leave this example out, or check that quotes are closed.",
            )
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts
