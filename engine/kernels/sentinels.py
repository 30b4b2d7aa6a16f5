"""Numbers that stand for "nothing here" though nobody says so: −999, 9.96921e36, 32767, and whatever else repeats far from the rest.

A value is held to be such a stand-in where it lies outside all other values and
  - is a classic one (`classic`) beyond the others' span: by more than 1 span and repeated, or alone by more than 5 (20 for 99 …
    255), or at most −99 and by more than a quarter of a span, where it repeats or no other value is negative; or
  - is any number but 0 that occurs three times or more in a piece, exactly, more than 50 spans away; or
  - is a whole negative number that occurs five times or more, where all others are at least 0 and the greatest is no whole number
    (−1 or −9 in precipitation); or
  - is infinite, or of a magnitude of 1e15 and more and 1000 times that of all others.
The span is that of the other values, at least 1e-3 of their magnitude. Choices of ours: no source says when −999 is a number.
What lies among the others (999 hPa in a field from 950 to 1040 hPa, dry places with exactly 0) is never one.

Values are looked at piece by piece, in any order and in pieces of any size; what is held to be a stand-in is settled at the
end, when all other values are known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_NINES = tuple(float("9" * n) for n in range(2, 8))
CLASSIC = frozenset(
    {s * v for v in (*_NINES, 99.9, 999.9, 9999.9, 999.99, 9999.99, 99.99, 888.0, 8888.0, 777.0, 7777.0) for s in (-1, 1)}
    | {s * 10.0**e for e in (9, 10, *range(12, 38)) for s in (-1, 1)}
    | {-(2.0**b) + k for b in (7, 15, 31, 63) for k in (0, 1, 2)}
    | {2.0**b - 1 for b in (7, 8, 15, 16, 31, 32, 63, 64)}
    | {2.0**b - 2 for b in (64,)}
    | {9.969209968386869e36, -9.969209968386869e36, 3.4028234663852886e38, -3.4028234663852886e38, -1.7976931348623157e308}
    | {1e20, -1e20, 1.7e38, -1.7e38, -3.4e38, 3.4e38, 9.999e20, -9.999e20, -32767.5, 1e-300}
)
_SORTED = np.asarray(sorted(CLASSIC))
_PEELED = 8
"""At most so many stand-ins at either end of a piece."""


def classic(value: float, slack: float = 0.0) -> bool:
    """Whether a number is one that files use for missing values, within the precision of float32 and `slack`."""
    near = int(np.searchsorted(_SORTED, value))
    return any(abs(value - _SORTED[i]) <= 2e-7 * abs(value) + slack for i in (near - 1, near) if 0 <= i < len(_SORTED))


@dataclass
class Suspect:
    """A value that may stand for nothing: how often it was met, and where first (a flat position in its piece)."""

    count: int
    piece: int
    position: int
    classic: bool = False


@dataclass
class Tally:
    """What was met so far: the range of ordinary values, and suspects outside them, by value."""

    back: Callable[[float], float] = float
    """To the units of the file, in which a stand-in is a round number."""
    low: float = np.inf
    high: float = -np.inf
    suspects: dict[float, Suspect] = field(default_factory=dict)

    def add(self, values: NDArray, piece: int) -> None:
        """Look at a piece of values (any shape; NaN is missing already). A field without suspects costs two passes."""
        flat = np.asarray(values).reshape(-1)
        if flat.size == 0:
            return
        ends = [float(np.fmin.reduce(flat)), float(np.fmax.reduce(flat))]
        if np.isnan(ends[0]):
            return
        for side in (0, 1):
            for _ in range(_PEELED):
                value = ends[side]
                if np.isnan(value) or not self._odd(value, flat):
                    break
                here = flat == flat.dtype.type(value)
                self._meet(value, int(here.sum()), piece, int(np.argmax(here)))
                flat = np.where(here, np.asarray(np.nan, flat.dtype), flat) if np.issubdtype(flat.dtype, np.floating) else flat[~here]
                if flat.size == 0 or np.isnan(np.fmin.reduce(flat)):
                    return
                ends = [float(np.fmin.reduce(flat)), float(np.fmax.reduce(flat))]
        self.low, self.high = min(self.low, ends[0]), max(self.high, ends[1])

    def _odd(self, value: float, flat: NDArray) -> bool:
        """Whether the end of a piece is worth noting: infinite, classic, or a number that repeats far from the next one."""
        if np.isinf(value) or self._classic(value) or value in self.suspects:
            return True
        here = flat == flat.dtype.type(value)
        if value == 0 or np.count_nonzero(here) < 3:
            return False
        others = flat[~(here | np.isnan(flat))]
        if others.size == 0:
            return False
        low, high = float(others.min()), float(others.max())
        return _gap(value, low, high) > 50 or (value < 0 <= low and value.is_integer())

    def _classic(self, value: float) -> bool:
        return classic(value) or classic(self.back(value), 2e-7 * abs(value))

    def _meet(self, value: float, count: int, piece: int, position: int) -> None:
        suspect = self.suspects.setdefault(value, Suspect(0, piece, position, self._classic(value)))
        suspect.count += count


def _gap(value: float, low: float, high: float) -> float:
    """How far a value lies outside a range, in spans of it; 0 inside."""
    away = low - value if value < low else value - high if value > high else 0.0
    return away / max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-30)


def held(tallies: Sequence[Tally]) -> list[tuple[int, float, Suspect]]:
    """What is held to be a stand-in, over several sides of one quantity: (which tally, value, suspect).

    Suspects that turn out to lie near the others join them, the nearest first.
    """
    low, high = min(t.low for t in tallies), max(t.high for t in tallies)
    found = [(i, v, s) for i, tally in enumerate(tallies) for v, s in tally.suspects.items()]
    counts: dict[float, int] = {}
    for _, value, suspect in found:
        counts[value] = counts.get(value, 0) + suspect.count
    usual = {value for _, value, suspect in found if suspect.classic}
    kept: set[float] = set()
    for value in sorted(counts, key=lambda v: _gap(v, low, high) if low <= high else abs(v)):
        if _stands_in(value, counts[value], value in usual, low, high):
            kept.add(value)
        else:
            low, high = min(low, value), max(high, value)
    return [(i, v, s) for i, v, s in found if v in kept]


def _stands_in(value: float, count: int, usual: bool, low: float, high: float) -> bool:
    if np.isinf(value):
        return True
    if low > high:  # there is nothing else
        return usual and (count > 1 or abs(value) >= 1e10)
    gap, largest = _gap(value, low, high), max(abs(low), abs(high))
    if gap == 0:
        return False
    if abs(value) >= 1e15 and abs(value) > 1000 * largest:
        return True
    if usual:
        negative = value < low and value <= -99 and gap > 0.25 and (count > 1 or low >= 0)
        return negative or gap > (1 if count > 1 else 5 if abs(value) >= 300 else 20)
    alone = value < 0 <= low and value.is_integer() and not high.is_integer()
    return (count >= 5 and alone) or (count >= 3 and value != 0 and gap > 50)
