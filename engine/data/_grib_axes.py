"""From GRIB messages to axes: members, starts, steps, and which message fills which place.

A variable's place is (start, end of its step, member). Where all variables have every step of every start, the axes are starts and
steps; where each valid time occurs once (analyses beside accumulations of another start), they are valid times. What no message
fills is missing, and is said. Messages that are equal byte for byte count once; others that claim one place are not told apart,
and their variable is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine.data._grib_names import Message, identity, is_member, member
from engine.errors import DatasetError

STATIC = frozenset(("lsm", "orog", "sdor", "slt", "anor", "isor", "slor", "sr", "cl", "cvl", "cvh", "tvl", "tvh"))
"""Short names of fields that do not change: one message serves all times."""
_TELLING = (
    "experimentVersionNumber",
    "stream",
    "dataType",
    "stepRange",
    "number",
    "packingType",
    "centre",
    "name",
    "topLevel",
    "bottomLevel",
)
_TELLING += ("productDefinitionTemplateNumber", "typeOfEnsembleForecast", "edition", "units")
_FILLED = 0.5
"""Share of starts × steps that must be there before the rest counts as missing. Our choice."""

Cell = tuple[np.datetime64, int, tuple[bool, bool, int]]


@dataclass
class Variable:
    """A variable's messages by place; `static` where one serves all times."""

    name: str
    cells: dict[Cell, Message]
    static: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def ensemble(self) -> bool:
        """Has members."""
        return is_member(next(iter(self.cells.values())))

    @property
    def times(self) -> set[tuple[np.datetime64, int]]:
        """(start, minutes) that are there."""
        return {(start, end) for start, end, _ in self.cells}


@dataclass(frozen=True)
class Axes:
    """`starts` or `valid` times; `steps` in minutes (empty beside `valid`); `members` in order, and their numbers."""

    starts: tuple[np.datetime64, ...]
    steps: tuple[int, ...]
    valid: tuple[np.datetime64, ...]
    members: tuple[tuple[bool, bool, int], ...]
    numbers: tuple[int, ...]


def variables_of(messages: Sequence[Message], names: Mapping[tuple[Any, ...], str], file: Path) -> tuple[list[Variable], list[str]]:
    """Variables, and in words those that were left out because messages claim one place."""
    groups: dict[str, list[Message]] = {}
    for message in messages:
        groups.setdefault(names[identity(message)], []).append(message)
    found, left = [], []
    for name, group in groups.items():
        for part, those in _intervals(name, group).items():
            try:
                found.append(_placed(part, those, file))
            except _Ambiguous as fault:
                left.append(str(fault))
    return found, left


class _Ambiguous(Exception):
    pass


def _cell(message: Message) -> Cell:
    return message["init"], message["end"], member(message) if is_member(message) else (False, False, 0)


def _intervals(name: str, group: list[Message]) -> dict[str, list[Message]]:
    """Accumulations since the start apart from those over a fixed time, where a file has both at one step."""
    starts: dict[Cell, set[int]] = {}
    for message in group:
        starts.setdefault(_cell(message), set()).add(message["start"])
    if all(len(s) == 1 for s in starts.values()):
        return {name: group}
    lengths = {m["end"] - m["start"] for m in group if m["start"]}
    parts = {f"{name}_{_hours(length)}h": [m for m in group if m["end"] - m["start"] == length] for length in sorted(lengths)}
    return {f"{name}_since_start": [m for m in group if not m["start"]]} | parts


def _placed(name: str, group: list[Message], file: Path) -> Variable:
    cells: dict[Cell, Message] = {}
    double = 0
    for message in group:
        other = cells.setdefault(_cell(message), message)
        if other is message:
            continue
        if not _equal(file, other, message):
            differ = [k for k in _TELLING if other[k] != message[k]]
            how = f", which differ in {', '.join(f'{k} ({other[k]}, {message[k]})' for k in differ)}" if differ else ""
            when = f"{str(message['init'])[:16]} + {_hours(message['end'])} h"
            by = f"by {', '.join(differ)} (select= in Python, --select on the command line)" if differ else "by no key that is known here"
            raise _Ambiguous(f"{name}, of which several messages are for {when}{how}: they are told apart {by}")
        double += 1
    variable = Variable(name, cells)
    first = next(iter(cells.values()))
    if double:
        variable.notes.append(f"{name}: {double} messages are there twice, equal in every byte; one of each was taken")
    if first["stepType"] != "instant" and any(m["end"] != m["start"] for m in group):
        ranges = list(dict.fromkeys(f"{_hours(m['start'])}–{_hours(m['end'])}" for m in group))
        lengths = sorted({m["end"] - m["start"] for m in group})
        over = (
            f"{_hours(lengths[0])} h"
            if len(lengths) == 1
            else f"intervals of different length ({', '.join(ranges[:4])}{', …' if len(ranges) > 4 else ''} h)"
        )
        variable.notes.append(f"{name} is a field of type {first['stepType']} over {over}: its valid time is the end")
    return variable


def _equal(file: Path, a: Message, b: Message) -> bool:
    if a["length"] != b["length"] or a["part"] != b["part"] or a["offset"] == b["offset"]:
        return False
    with file.open("rb") as stream:
        stream.seek(a["offset"])
        first = stream.read(a["length"])
        stream.seek(b["offset"])
        return first == stream.read(b["length"])


def _hours(minutes: int) -> str:
    return f"{minutes / 60:g}"


def valid_time(start: np.datetime64, minutes: int) -> np.datetime64:
    """Start and step."""
    return start + np.timedelta64(minutes, "m")


def axes_of(variables: Sequence[Variable], what: str, notes: list[str]) -> Axes:
    """The axes that all variables share; what is missing on them is said in `notes`."""
    moving = _moving(variables, notes)
    starts = tuple(sorted({start for v in moving for start, _ in v.times}))
    steps = tuple(sorted({step for v in moving for _, step in v.times}))
    valid: tuple[np.datetime64, ...] = ()
    product = len(starts) * len(steps)
    if len(starts) > 1 and len(steps) > 1 and any(len(v.times) < product for v in moving):
        once = all(len({(valid_time(s, e), m) for s, e, m in v.cells}) == len(v.cells) for v in moving)
        if once:
            valid = tuple(sorted({valid_time(s, e) for v in moving for s, e in v.times}))
            notes.append(f"{len(starts)} starts and {len(steps)} steps, each valid time once: put on their {len(valid)} valid times")
            starts, steps = (), ()
        elif (thin := min(moving, key=lambda v: len(v.times))) and len(thin.times) < _FILLED * product:
            raise DatasetError(
                what,
                found=f"{thin.name} at {len(thin.times)} of the {product} pairs of {len(starts)} starts and {len(steps)} steps",
                expected="the same steps for each start, or each valid time once",
                remedy="Choose messages by dataDate, dataTime or step (select= in Python, --select on the command line).",
            )
    members = tuple(sorted({m for v in variables if v.ensemble for _, _, m in v.cells}))
    numbers = tuple(number for _, _, number in members)
    if len(set(numbers)) < len(numbers):
        numbers = tuple(range(len(members)))
        notes.append(f"members numbered anew 0 … {len(members) - 1}, control first: the file uses a number twice")
    return Axes(starts, steps, valid, members, numbers)


def _moving(variables: Sequence[Variable], notes: list[str]) -> list[Variable]:
    """The variables that have times; those that do not change, and are there at fewer times than the others, are marked."""
    most = max(len(v.times) for v in variables)
    for v in variables:
        first = next(iter(v.cells.values()))
        constant = first["shortName"] in STATIC or (first["shortName"] == "z" and first["typeOfLevel"] == "surface")
        v.static = constant and (len(v.times) < most or most == 1)
        if v.static and most > 1:
            notes.append(f"{v.name} is there at {len(v.times)} of {most} times and does not change: taken as constant")
    return [v for v in variables if not v.static]


def table_of(variable: Variable, axes: Axes, notes: list[str]) -> tuple[tuple[str, ...], list[Message], np.ndarray]:
    """Dimensions, messages, and which message (−1: none) lies where, `(number, time, step)` or fewer of them."""
    messages = list(variable.cells.values())
    members = axes.members if variable.ensemble else ((False, False, 0),)
    across = max(1, len(axes.valid or axes.starts))
    table = np.full((len(members), across, max(1, len(axes.steps))), -1, np.int64)
    place = {m: i for i, m in enumerate(members)}
    along = {t: i for i, t in enumerate(axes.valid or axes.starts)}
    steps = {s: i for i, s in enumerate(axes.steps)}
    for i, (start, end, who) in enumerate(variable.cells):
        if variable.static:
            table[place[who]] = i
        elif axes.valid:
            table[place[who], along[valid_time(start, end)]] = i
        else:
            table[place[who], along[start], steps[end]] = i
    if variable.static:
        table = table[:, :1, :1]
    if (lacking := int((table < 0).sum())) and table.size:
        notes.append(f"{variable.name}: no message for {lacking} of {table.size} members and times; missing there")
    keep = ("number",) * variable.ensemble + ("time",) * (not variable.static) + ("step",) * (len(axes.steps) > 1 and not variable.static)
    shape = [n for d, n in zip(("number", "time", "step"), table.shape, strict=True) if d in keep]
    return keep, messages, table.reshape(shape)
