"""Files that hold the same variables, joined along what differs between them: time, starts, lead times, members.

Everything is matched by coordinate value. Times of one series that differ by rounding alone are one time; what does not make
a full rectangle (a member that lacks a time) is refused, and the file is named.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data._coordinates import iso, seconds_of
from engine.data._member_axis import free_label
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

    Parts = list[tuple[str, xr.Dataset]]

AXES = ("member", "lead_time", "init_time", "time")
_WORDS = {"member": "members", "lead_time": "lead times", "init_time": "starts", "time": "times"}
_SHARE = 1 / 15
"""Part of the smallest time step within which two times are one: hours since 1900 in float32 are off by up to 1/16 of an hour."""
_MOST = 1799.0
"""Seconds beyond which no difference is rounding: half an hour is another time."""


def tolerance(times: "list[np.ndarray]", precision: float = 0.0) -> float:
    """Seconds within which two of these times (seconds, a file each) are one: 1/15 of the smallest step, below half an hour.

    `precision` is what a file's own number format loses (float32): allowed up to a quarter of the step. Choices of ours.
    """
    steps = [float(np.diff(np.sort(t)).min()) for t in times if len(t) > 1]
    if not steps:
        union = np.unique(np.concatenate(times)) if times else np.zeros(0)
        gaps = np.diff(union)
        steps = [float(gaps[gaps >= 60].min())] if (gaps >= 60).any() else [86400.0]
    step = min(steps)
    return max(min(step * _SHARE, _MOST), min(precision * 1.01, step / 4))


def joined(parts: "Parts", what: str, changes: list[str], *, members_by_file: bool = False) -> "xr.Dataset":
    """One dataset of canonical ones with the same variables.

    `members_by_file`: files that differ in nothing are members, one to a file; otherwise they are refused as double. Raises
    DatasetError, naming files, where they overlap or leave gaps, or are of different layouts.
    """
    if len(parts) == 1:
        return parts[0][1]
    parts = _one_layout(parts, what, changes, members_by_file)
    return _joined(_snapped(parts), what, changes, members_by_file)


def _axes(data: "xr.Dataset") -> tuple[str, ...]:
    return tuple(a for a in AXES if a in data.dims)


def _one_layout(parts: "Parts", what: str, changes: list[str], members_by_file: bool) -> "Parts":
    """All with the same axes; a control without a member dimension gets a number beside the perturbed members."""
    single = [(n, d) for n, d in parts if "member" not in d.dims]
    several = [(n, d) for n, d in parts if "member" in d.dims]
    if single and several:
        if not members_by_file:
            raise DatasetError(
                what,
                found=f"members in {several[0][0]} and none in {single[0][0]}",
                expected="files of one layout",
                remedy="Leave out one of the files.",
            )
        control = _with_member(joined(single, what, changes, members_by_file=True), None)
        labels = np.unique(np.concatenate([_labels(d) for _, d in several]))
        if control.sizes["member"] > 1:
            raise DatasetError(
                what,
                found=f"{', '.join(n for n, _ in single[:4])} without members and at the same times, beside {several[0][0]}",
                expected="one control, or a member number in each file",
                remedy="Write a member number (number, member or realization) into each file.",
            )
        label = free_label(labels)
        changes.append(
            f"{', '.join(n for n, _ in single[:4])} has no member number: member {label} beside the other {len(labels)}, a control"
        )
        parts = [*several, (single[0][0], control.assign_coords(member=("member", np.asarray([label]))))]
    layouts = {_axes(d): n for n, d in parts}
    if len(layouts) == 1:
        return parts
    untimed = next((n for n, d in parts if not set(_axes(d)) - {"member"}), None)
    if untimed is not None:
        raise DatasetError(
            what,
            found=f"no time in {untimed}, and the same variables in {len(parts)} files",
            expected="a time to join them along",
            remedy="Leave out one of the files.",
        )
    listed = "; ".join(f"{', '.join(axes)} in {name}" for axes, name in layouts.items())
    raise DatasetError(
        what,
        found=f"files of different layouts: {listed}",
        expected="one layout",
        remedy="Leave out one of the files, or score them apart.",
    )


def _with_member(data: "xr.Dataset", label: Any) -> "xr.Dataset":
    if "member" in data.dims:
        return data
    fields = {n: v.expand_dims("member") for n, v in data.data_vars.items()}
    grown = data.assign(fields)
    return grown if label is None else grown.assign_coords(member=("member", np.asarray([label])))


def _labels(data: "xr.Dataset") -> np.ndarray:
    return data["member"].values if "member" in data.coords else np.arange(data.sizes["member"])


def _key(data: "xr.Dataset", axis: str) -> tuple[Any, ...]:
    """The axis's values, comparable between files."""
    if axis not in data.dims:
        return ()
    if axis == "member":
        return tuple(str(v) for v in _labels(data).tolist())
    values = data[axis].values
    return tuple((values / np.timedelta64(1, "s") if values.dtype.kind == "m" else _numbers(values)).tolist())


def _numbers(values: np.ndarray) -> np.ndarray:
    """Times as numbers that can be compared: seconds, or plain numbers as they are."""
    return values if np.issubdtype(values.dtype, np.number) and values.dtype.kind != "m" else seconds_of(values)


def _snapped(parts: "Parts") -> "Parts":
    """Times that differ between files by rounding alone, made equal to the earliest of them."""
    for axis in ("time", "init_time"):
        if not all(axis in d.dims for _, d in parts) or any(d[axis].dtype.kind not in "MO" for _, d in parts):
            continue
        seconds = [seconds_of(d[axis].values).astype(np.float64) for _, d in parts]
        within = tolerance(seconds, max(float(d[axis].attrs.get("precision_seconds", 0)) for _, d in parts))
        every = np.concatenate(seconds)
        values = np.concatenate([d[axis].values for _, d in parts])
        order = np.argsort(every, kind="stable")
        first, group = {}, 0
        leader = np.zeros(len(every), np.int64)
        for i in order:
            if not first or every[i] - every[first[group]] > within:
                group += 1
                first[group] = i
            leader[i] = first[group]
        if (every[leader] == every).all():
            continue
        start, result = 0, []
        for (name, data), mine in zip(parts, seconds, strict=True):
            taken = values[leader[start : start + len(mine)]]
            start += len(mine)
            result.append((name, data.assign_coords({axis: (axis, taken, data[axis].attrs)})))
        parts = result
    return parts


def _joined(parts: "Parts", what: str, changes: list[str], members_by_file: bool) -> "xr.Dataset":
    if len(parts) == 1:
        return parts[0][1]
    keys = {axis: [_key(d, axis) for _, d in parts] for axis in AXES}
    differing = [axis for axis in AXES if len(set(keys[axis])) > 1]
    if not differing:
        return _by_file(parts, what, changes, members_by_file)
    axis = differing[0]
    groups: dict[tuple[Any, ...], Parts] = {}
    for part, key in zip(parts, keys[axis], strict=True):
        groups.setdefault(key, []).append(part)
    pieces = [(members[0][0], _joined(members, what, changes, members_by_file)) for members in groups.values()]
    _no_overlap(pieces, axis, what)
    _same_elsewhere(pieces, axis, what)
    return _concatenated(pieces, axis, what)


def _by_file(parts: "Parts", what: str, changes: list[str], members_by_file: bool) -> "xr.Dataset":
    """Files at the same times, starts and members: members by file, where they have none and forecasts are read."""
    names = [n for n, _ in parts]
    first = parts[0][1]
    timed = next((a for a in ("time", "init_time") if a in first.dims), None)
    when = "" if timed is None else f"{_word(first[timed].values[0])} "
    if not members_by_file or "member" in first.dims:
        which = f" for member {', '.join(_key(first, 'member')[:4])}" if "member" in first.dims else ""
        raise DatasetError(
            what,
            found=f"{when}in {names[0]} and in {names[1]}{which}",
            expected="each time in one file",
            remedy="Give each file a member number of its own."
            if which
            else "Leave out one of the files, or cut them so that they do not overlap.",
        )
    variable = next(iter(first.data_vars))
    look = {d: slice(0, 1) for d in first[variable].dims if d not in ("latitude", "longitude")}
    seen: dict[bytes, str] = {}
    for name, data in parts:
        content = np.ascontiguousarray(data[variable].isel(look).values).tobytes()
        if content in seen:
            raise DatasetError(
                what,
                found=f"the same values in {seen[content]} and in {name}, at the same times",
                expected="a member in each file",
                remedy="Name each file once.",
            )
        seen[content] = name
    changes.append(
        f"no member number in {', '.join(names[:4])}{', …' if len(names) > 4 else ''}: each of the {len(names)} files is a member"
    )
    return _concatenated([(n, _with_member(d, i)) for i, (n, d) in enumerate(parts)], "member", what)


def _word(value: Any) -> str:
    if isinstance(value, np.timedelta64):
        return f"{value / np.timedelta64(1, 'h'):g} h"
    return iso(value) if isinstance(value, np.datetime64) or hasattr(value, "calendar") else str(value)


def _no_overlap(pieces: "Parts", axis: str, what: str) -> None:
    owner: dict[Any, str] = {}
    for name, data in pieces:
        for value, key in zip(_labels(data) if axis == "member" else data[axis].values, _key(data, axis), strict=True):
            if key in owner:
                raise DatasetError(
                    what,
                    found=f"{'member ' if axis == 'member' else ''}{_word(value)} in {owner[key]} and in {name}",
                    expected="each time in one file" if axis == "time" else f"{_WORDS[axis]} that are all the same, or all different",
                    remedy="Choose one lead time with --lead-time (lead_time= in Python), or cut the files to the same lead times."
                    if axis == "lead_time"
                    else "Leave out one of the files, or cut them so that they do not overlap.",
                )
            owner[key] = name


def _same_elsewhere(pieces: "Parts", axis: str, what: str) -> None:
    """A rectangle: along every other axis all pieces hold the same values."""
    name, first = pieces[0]
    for other in (a for a in AXES if a != axis):
        wanted = _key(first, other)
        for file, data in pieces[1:]:
            found = _key(data, other)
            if found == wanted:
                continue
            here, there = set(wanted), set(found)
            lacking, holds = (file, name) if here - there else (name, file)
            lacks, source = (first, here - there) if here - there else (data, there - here)
            at = next(i for i, k in enumerate(_key(lacks, other)) if k in source)
            value = _labels(lacks)[at] if other == "member" else lacks[other].values[at]
            choose = (
                "Choose one lead time with --lead-time (lead_time= in Python), or complete the files."
                if "lead_time" in (axis, other)
                else "Complete the files."
            )
            raise DatasetError(
                what,
                found=f"{_word(value)} in {holds} and not in {lacking} ({len(wanted)} and {len(found)} {_WORDS[other]})",
                expected=f"the same {_WORDS[other]} for all {_WORDS[axis]}",
                remedy=choose,
            )


def _concatenated(pieces: "Parts", axis: str, what: str) -> "xr.Dataset":
    """Along one axis, in its order. What the library refuses is told in words."""
    import xarray as xr

    if axis == "member":
        dtypes = {_labels(d).dtype.kind for _, d in pieces}
        if len(dtypes) > 1:
            pieces = [(n, d.assign_coords(member=("member", _labels(d).astype(str)))) for n, d in pieces]
        pieces = [(n, d if "member" in d.coords else d.assign_coords(member=("member", _labels(d)))) for n, d in pieces]
    else:
        pieces = sorted(pieces, key=lambda p: _key(p[1], axis)[0])
    beside = {c for _, d in pieces for c in d.coords if c not in d.dims}
    common = {c for c in beside if all(c in d.coords and d[c].dims == pieces[0][1][c].dims for _, d in pieces if c in pieces[0][1].coords)}
    common = {c for c in common if all(c in d.coords for _, d in pieces)}
    pieces = [(n, d.drop_vars([c for c in d.coords if c in beside - common])) for n, d in pieces]
    first = pieces[0][1]
    snapped = [d.assign_coords({a: first[a] for a in _axes(d) if a != axis}) for _, d in pieces]
    try:
        data = xr.concat(snapped, axis, join="exact", data_vars="minimal", coords="minimal", compat="override", combine_attrs="override")
    except (ValueError, TypeError) as error:
        raise DatasetError(
            what,
            found=f"files that do not fit together ({str(error).splitlines()[0][:160]})",
            expected="the same layout in all files",
            remedy="Leave out the one that differs, or score them apart.",
        ) from error
    if axis == "member":
        return data
    order = np.argsort(np.asarray(_key(data, axis)), kind="stable")
    return data if (np.diff(order) == 1).all() else data.isel({axis: order})
