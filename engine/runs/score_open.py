"""Opening the two sides of a score: files in canonical form, joined, on valid times; the forecast with its members."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine import lexicon
from engine.data._coordinates import order_times
from engine.data._join import join, open_path, same_calendar, same_grid
from engine.data._rename import all_found, names_in
from engine.data._times import settle_times
from engine.data._valid import has_lead, hours_of_leads, on_valid_times
from engine.data.conform import conform
from engine.errors import DatasetError, ScoreError
from engine.runs.score_answer import Said

if TYPE_CHECKING:
    import xarray as xr

    Opener = Callable[[str | Path], tuple[xr.Dataset, tuple[str, ...]]]
    Parts = list[tuple[str, xr.Dataset]]

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Roles:
    """What a user says of the files: what their names mean, which variables are read, which GRIB messages, which value means missing."""

    rename: Mapping[str, str] = field(default_factory=dict)
    variables: Sequence[str] | None = None
    select: Mapping[str, str] | None = None
    missing: float | None = None


def open_sides(
    forecast: Paths,
    observed: Paths,
    said: Said,
    *,
    member_dim: str | None = None,
    variable: str | None = None,
    roles: Roles,
    calendar: str | None = None,
    lead_time: float | None = None,
    opener: "Opener | None" = None,
) -> "tuple[xr.Dataset, xr.Dataset]":
    """Both sides in canonical form on valid times, each of one or several paths; the observed without members.

    Raises an `EngineError` where files of one side do not fit together, where a name of `rename` or `member_dim` is in no
    file, or where the lead time that is asked for is in none.
    """
    names: list[set[str]] = []
    sides: dict[str, Parts] = {}
    for side, paths in (("forecast", forecast), ("observed", observed)):
        listed = [paths] if isinstance(paths, str | Path) else list(paths)
        if not listed:
            raise ScoreError(side, found="no path", expected="at least one file", remedy=f"Name the {side} file.")
        asked = member_dim if side == "forecast" else None
        read = [_opened(path, side, asked, len(listed) > 1, roles, names, said, opener) for path in listed]
        sides[side] = _of_variable(read, variable, said)
    if opener is None:
        all_found(roles.rename, names, "rename")
    if lead_time is not None:
        sides["forecast"] = _at_lead(sides["forecast"], lead_time, said)
    changes: list[str] = []
    grids = [part for side in sides.values() for part in same_grid(side)]
    one = same_calendar(grids, calendar, changes)
    count = len(sides["forecast"])
    whole = [
        join(parts, side, changes, members_by_file=side == "forecast")
        for side, parts in (("forecast", one[:count]), ("observed", one[count:]))
    ]
    ours, theirs = (on_valid_times(data, side, changes, forecast=side == "forecast") for data, side in zip(whole, sides, strict=True))
    for line in changes:
        said.change(line)
    return ours, _without_members(theirs, said)


def open_climatology(path: str | Path, roles: Roles, said: Said, opener: "Opener | None") -> "xr.Dataset":
    """A climatology in canonical form, on its own times where it has any."""
    _, data = _opened(path, "climatology", None, False, roles, [], said, opener)
    return on_valid_times(data, "climatology", [], forecast=False)


def _opened(
    path: str | Path,
    side: str,
    member_dim: str | None,
    several: bool,
    roles: Roles,
    names: list[set[str]],
    said: Said,
    opener: "Opener | None",
) -> "tuple[str, xr.Dataset]":
    """One file in canonical form; its name and what was changed are kept."""
    name = Path(path).name
    if opener is not None:
        data, changes = opener(path)
        notes = list(changes)
        data = order_times(settle_times(data, f"dataset {name}", notes), f"dataset {name}", notes, numbered=True)
    else:
        narrow = [*roles.variables, *roles.rename] if roles.variables else None
        raw, _ = open_path(path, select=roles.select, variables=narrow)
        known = names_in(raw)
        names.append(known)
        mine = {old: new for old, new in roles.rename.items() if old in known}
        # of several files one may be a control, without members
        asked = None if member_dim is None or (several and member_dim not in known) else mine.get(member_dim, member_dim)
        try:
            data, changed = conform(
                raw, f"dataset {name}", rename=mine, variables=roles.variables, member_dim=asked, strict=False, missing=roles.missing
            )
        except DatasetError as refusal:
            if "at least one field" not in refusal.expected or side != "forecast" or asked:
                raise
            remedy = (
                "Name the dimension of the members with --member-dim (member_dim= in Python), or say what another one is, by "
                "--rename NAME=lead_time (rename= in Python)."
            )
            raise DatasetError(refusal.what, found=refusal.found, expected=refusal.expected, remedy=remedy) from refusal
        notes = list(changed)
    for line in notes:
        said.change(f"{side} {name}: {line}")
    return name, data


def _of_variable(parts: "Parts", variable: str | None, said: Said) -> "Parts":
    """Where a variable is named, only it: other variables of other files need not fit."""
    if variable is None:
        return parts
    family = {variable, lexicon.canonical(variable) or variable}
    family |= {n.replace("geopotential_height", "geopotential") for n in family}
    family |= {n.replace("geopotential", "geopotential_height") for n in family if "height" not in n}
    kept = [(name, data[[n for n in map(str, data.data_vars) if n in family]]) for name, data in parts]
    kept = [(name, data) for name, data in kept if data.data_vars]
    if kept and len(kept) < len(parts):
        said.note(f"{len(parts) - len(kept)} of {len(parts)} files left out, which do not hold {variable}")
    return kept or parts


def _at_lead(parts: "Parts", lead: float, said: Said) -> "Parts":
    """Each file at the lead time that is asked for; files without it are left out."""
    changes: list[str] = []
    held = [(name, data) for name, data in parts if has_lead(data, lead)]
    if not held and len(parts) > 1:
        every = sorted({float(h) for _, data in parts for h in hours_of_leads(data)})
        listed = ", ".join(f"{h:g}" for h in every[:24]) or "none"
        raise ScoreError(
            "lead_time",
            found=f"lead times {listed} h in {len(parts)} files",
            expected=f"{lead:g} h",
            remedy="Choose one that the files have.",
        )
    if held and len(held) < len(parts):
        said.note(f"{len(parts) - len(held)} of {len(parts)} forecast files left out, which have no lead time of {lead:g} h")
    found = [(name, on_valid_times(data, "forecast", changes, lead=lead, forecast=True)) for name, data in held or parts]
    for line in changes:
        said.change(line)
    return found


def _without_members(observed: "xr.Dataset", said: Said) -> "xr.Dataset":
    if "member" not in observed.dims:
        return observed
    if observed.sizes["member"] > 1:
        raise ScoreError(
            "observed",
            found=f"{observed.sizes['member']} members",
            expected="one value for each place and time",
            remedy="Select one member in the file of observations.",
        )
    said.note("the observed has one member, which is taken")
    return observed.isel(member=0, drop=True)
