"""Every value that is scored, looked at while it is read: stand-ins for missing ones, values that cannot be, and what is there.

A forecast's members, the observed and the climatology are judged as a model's inputs are: no value is used that a
quantity cannot have, or that stands for nothing although the file does not say so. And the share of valid values is
counted by member and by time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine import lexicon
from engine.errors import DatasetError
from engine.kernels.sentinels import Suspect, Tally, held
from engine.types import EnsembleView

if TYPE_CHECKING:
    import xarray as xr

SIDES = ("forecast", "observed", "climatology")
_AT_ONCE = 1e15
"""Magnitudes that are judged as soon as they are met: their squares overflow."""
_REMEDY = (
    "Mark missing values in the file (_FillValue), or name the value in the file's units: --missing {value:.9g} on the command line, "
    "missing={value:.9g} in Python."
)


class Judged:
    """Looks at pieces of a score's fields along time; `fields` are the forecast `(member, time, latitude, longitude)`, the
    observed `(time, latitude, longitude)` and, where there is one, the climatology; `weights` `(latitude, longitude)` sum to 1.

    `missing` NaN says that no value stands for a missing one: then only the quantity's range is judged.
    """

    def __init__(self, variable: str, fields: "Sequence[xr.DataArray | None]", weights: NDArray, *, missing: float | None = None) -> None:
        self.variable, self.weights = variable, np.asarray(weights, np.float64)
        self.fields = {side: field for side, field in zip(SIDES, fields, strict=False) if field is not None}
        self._off = missing is not None and bool(np.isnan(missing))
        self._back = {side: _to_file(field) for side, field in self.fields.items()}
        self._tallies = {side: Tally(self._back[side]) for side in self.fields}
        self._starts: list[tuple[int, dict[str, tuple[int, ...]]]] = []
        self._present: list[NDArray[np.float64]] = []

    def look(self, view: EnsembleView, start: int) -> None:
        """A piece: the values at some times, from the time with number `start` on.

        Raises DatasetError with member, time and place for a value that the quantity cannot have, or a stand-in of 1e15 and more.
        """
        values = {"forecast": view.members, "observed": view.observed, "climatology": view.climatology}
        piece = len(self._starts)
        self._starts.append((start, {side: np.shape(values[side]) for side in self.fields}))
        for side in self.fields:
            array = np.asarray(values[side])
            if not self._off:
                self._tallies[side].add(array, piece)
                if any(abs(v) >= _AT_ONCE for v in self._tallies[side].suspects):
                    self.settle()
            self._range(side, array, piece)
        here = np.ones(view.members.shape[:2]) if not np.isnan(view.members).any() else self._share(~np.isnan(view.members))
        self._present.append(here)

    def _share(self, there: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.einsum("mtyx,yx->mt", there, self.weights)

    def _range(self, side: str, values: NDArray, piece: int) -> None:
        attrs = self.fields[side].attrs
        judged = None if attrs.get("as_labelled") else lexicon.outside(self.variable, str(attrs.get("units", "")), values)
        infinite = np.isinf(values) if judged is None and self._off else None
        bad, expected = (infinite, "finite values, NaN where missing") if judged is None else judged
        if bad is not None and bad.any():
            position = int(np.argmax(bad))
            self._refuse(side, float(values.reshape(-1)[position]), piece, position, int(bad.sum()), expected)

    def settle(self) -> None:
        """Raise DatasetError for a value that stands for a missing one, where any was met: nothing of it is scored."""
        if self._off:
            return
        sides = list(self._tallies)
        for i, value, suspect in held(list(self._tallies.values())):
            self._refuse(sides[i], value, suspect.piece, suspect.position, suspect.count, self._others(suspect))

    def _others(self, _: Suspect) -> str:
        low = min(t.low for t in self._tallies.values())
        high = max(t.high for t in self._tallies.values())
        return f"numbers like the others ({low:.4g} … {high:.4g}), or NaN where missing" if low <= high else "numbers, or NaN where missing"

    def _refuse(self, side: str, value: float, piece: int, position: int, count: int, expected: str) -> None:
        field, units = self.fields[side], str(self.fields[side].attrs.get("units", ""))
        there = self._back[side](value)
        text = f"{value:.6g} {units}".strip() + ("" if np.isinf(there) or np.isclose(there, value) else f" ({there:.6g} in the file)")
        again = "" if count == 1 else f", {count} times so far, the first"
        remedy = _REMEDY.format(value=there)
        if not np.isinf(value):
            remedy += " If it is a value like any other: --missing nan (missing=float('nan')) takes every value as it is."
        if lexicon.identify(self.variable) is not None:
            remedy = _REMEDY.format(value=there) + " Or check its units."
        raise DatasetError(
            f"{side} {self.variable}",
            found=f"{text}{again} at {self._place(field, side, piece, position)}",
            expected=expected,
            remedy=remedy,
        )

    def _place(self, field: "xr.DataArray", side: str, piece: int, position: int) -> str:
        start, shapes = self._starts[piece]
        index = [int(i) for i in np.unravel_index(position, shapes[side])]
        parts = []
        for dim, i in zip(field.dims, index, strict=True):
            at = i + start if dim == "time" else i
            parts.append(f"{dim} {_text(field[dim].values[at])}" if dim in field.coords else f"{dim} {at}")
        return ", ".join(parts)

    def valid(self, by_time: NDArray, times: NDArray) -> dict[str, Any]:
        """The share of valid area: `fraction` of what is scored, `by_member` (each member's own values), `by_time`
        (`least`, `at`, and `all` times).
        """
        present = np.concatenate(self._present, axis=1)
        at = int(np.argmin(by_time))
        return {
            "fraction": float(np.mean(by_time)),
            "by_member": [round(float(v), 9) for v in present.mean(1)],
            "by_time": {"least": float(by_time[at]), "at": _text(times[at]), "all": [round(float(v), 9) for v in by_time]},
        }

    def remarks(self) -> list[str]:
        """What is to be said of members: which hold nothing, and how unevenly the others cover."""
        present = np.concatenate(self._present, axis=1)
        members, share = self.fields["forecast"], present.mean(1)
        dim = str(members.dims[0])
        names = [_text(v) for v in members[dim].values] if dim in members.coords else [str(i) for i in range(len(share))]
        empty = [n for n, s in zip(names, share, strict=True) if s == 0]
        said = []
        if empty:
            said.append(f"{len(empty)} of {len(names)} members hold no value at all ({', '.join(empty[:12])}): scored with the others")
        rest = share[share > 0]
        if rest.size and rest.min() < rest.max() - 1e-9:
            said.append(f"members cover different shares: {rest.min():.1%} to {rest.max():.1%}; each point is scored with those it has")
        elif rest.size and (present[share > 0].min(0) < present[share > 0].max(0) - 1e-9).any():
            said.append("members are missing at different times; each point is scored with those it has")
        return said


def _to_file(field: "xr.DataArray") -> Any:
    """From a field's units to those of its file, for one number."""
    label, source = str(field.attrs.get("units", "")), str(field.attrs.get("file_units", field.attrs.get("units", "")))
    how = lexicon.conversion(label, source, difference=bool(field.attrs.get("difference")))
    return float if how is None or not how[0] else lambda value: float(how[1](np.asarray(value, np.float64)))


def _text(value: Any) -> str:
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="m"))
    if hasattr(value, "isoformat"):
        return str(value.isoformat())[:16]
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
