"""Opening data for a run: files by role, one lazily read dataset, splits that share no time; and the cases of a split."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon
from engine.data._coordinates import calendar_of, iso, seconds_of
from engine.data._fingerprint import fingerprint
from engine.data._join import join, open_path, same_calendar, same_grid
from engine.data._rename import all_found, names_in
from engine.data._series import joined
from engine.data._valid import on_valid_times
from engine.data.conform import conform
from engine.errors import DatasetError
from engine.safety import human, memory_limit, resolved
from engine.types import Case, Dataset

if TYPE_CHECKING:
    import xarray as xr

ENTRIES: tuple[Any, ...] = ()
"""No reader: what opens one."""

Paths = str | Path | Sequence[str | Path]
SPLITS = ("fit", "calibrate", "verify")
_FOLDERS = {"fit": ("train",), "calibrate": ("val", "valid", "validation"), "verify": ("test",)}


def _listed(paths: Paths | None) -> list[Path]:
    if paths is None:
        return []
    items = [paths] if isinstance(paths, str | Path) else list(paths)
    return [resolved(p, "dataset") for p in items]


def open_dataset(
    path_or_paths: Paths,
    *,
    calibrate: Paths | None = None,
    fit: Paths | None = None,
    variables: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    calendar: str | None = None,
    step_hours: float | None = None,
    climatology: str | Path | None = None,
    select: Mapping[str, str] | None = None,
    missing: float | None = None,
) -> Dataset:
    """Open files lazily as one dataset in canonical form.

    The main path or paths are what verification uses; `calibrate` and `fit` name others for tuning. A folder with train,
    val and test (ClimaX) gives all three. `rename` maps names in the file to canonical ones, `calendar` is the calendar to
    convert to where files differ, `step_hours` the time step of shards that record none. `climatology` is recorded in
    `fields.attrs["climatology"]` for the model's adapter. `select` picks GRIB messages by their keys: {"typeOfLevel":
    "isobaricInhPa", "level": "500/850"}. `missing` is a value that stands for missing ones though no attribute says so, in
    the files' units (NaN: none does).

    Raises DatasetError for a time in two roles (tuning must never see what verification scores), different grids or
    calendars, and whatever `conform` refuses; UnsafeFileError for files that read others or unpack without bound.
    """
    roles = {"verify": _listed(path_or_paths), "calibrate": _listed(calibrate), "fit": _listed(fit)}
    if not roles["verify"]:
        raise DatasetError("dataset", found="no path", expected="at least one file or folder", remedy="Name the data to verify on.")
    changes: list[str] = []
    roles = _shards(roles, changes)
    options: dict[str, Any] = {
        "variables": tuple(variables) if variables else None,
        "rename": dict(rename or {}),
        "calendar": calendar,
        "step_hours": step_hours,
    }
    options |= {"select": dict(sorted(select.items()))} if select else {}
    options |= {} if missing is None else {"missing": missing}
    narrow = [*variables, *(rename or {})] if variables else None
    parts: list[tuple[str, str, xr.Dataset]] = []
    names: list[set[str]] = []
    for role, paths in roles.items():
        for path in paths:
            raw, _ = open_path(path, step_hours=step_hours, select=select, variables=narrow)
            names.append(names_in(raw))
            data, said = conform(
                raw,
                f"dataset {path.name}",
                rename={k: v for k, v in (rename or {}).items() if k in names[-1]},
                variables=None if len(paths) > 1 else variables,
                missing=missing,
            )
            if variables and len(paths) > 1:
                data = _subset(data, variables)
            changes += [f"{path.name}: {line}" for line in said if f"{path.name}: {line}" not in changes]
            parts.append((role, path.name, _one_forecast(data, path.name, changes)))
    all_found(rename or {}, names, "dataset")
    aligned = same_calendar(same_grid([(f"{name} ({role})", data) for role, name, data in parts]), calendar, changes)
    by_role = {role: [(n, d) for (r, _, _), (n, d) in zip(parts, aligned, strict=True) if r == role] for role in SPLITS}
    splits = {role: _timed(join(members, f"{role} data", changes)) for role, members in by_role.items() if members}
    fields = _together(splits)
    seconds = seconds_of(fields["time"].values)
    positions = {role: np.searchsorted(seconds, seconds_of(data["time"].values)).astype(np.int64) for role, data in splits.items()}
    _check_slice(fields)
    if missing is not None and np.isnan(missing):
        fields.attrs["no_stand_ins"] = 1
    if climatology is not None:
        roles["climatology"] = _listed(climatology)
        fields.attrs["climatology"] = str(roles["climatology"][0])
    sources = tuple(path for paths in roles.values() for path in paths)
    return Dataset(fields, positions, changes=tuple(changes), sources=sources, fingerprint=fingerprint(roles, options))


def _shards(roles: dict[str, list[Path]], changes: list[str]) -> dict[str, list[Path]]:
    """A folder with train, val and test stands for three roles."""
    found = dict(roles)
    for role, inner in splits_of_tree(roles["verify"]).items():
        if role == "verify" or not roles[role]:
            found[role] = [inner]
            changes.append(f"{inner.parent.name}/{inner.name} is the data to {role} on")
    return found


def splits_of_tree(paths: Sequence[Path]) -> dict[str, Path]:
    """The folders that a tree of train, val and test holds, by what they are for (`SPLITS`); empty for anything else."""
    if len(paths) != 1 or not (paths[0] / "test").is_dir():
        return {}
    each = {role: next((paths[0] / n for n in names if (paths[0] / n).is_dir()), None) for role, names in _FOLDERS.items()}
    return {role: inner for role, inner in each.items() if inner is not None}


def _subset(data: "xr.Dataset", variables: Sequence[str]) -> "xr.Dataset":
    from engine import lexicon

    wanted = {(lexicon.canonical(v) or v).replace("geopotential_height", "geopotential") for v in variables}
    return data[[n for n in data.data_vars if str(n).replace("geopotential_height", "geopotential") in wanted]]


def _one_forecast(data: "xr.Dataset", name: str, changes: list[str]) -> "xr.Dataset":
    """Analyses have one member and one step; a forecast file is for `engine score`, not for a model's input."""
    for axis in ("member", "lead_time"):
        if data.sizes.get(axis, 1) > 1:
            raise DatasetError(
                f"dataset {name}",
                found=f"{data.sizes[axis]} values of {axis}: a forecast file",
                expected="analyses: one field for each time",
                remedy="Score forecasts with `python -m engine score`, or choose one member and step.",
            )
    if "member" in data.dims:
        data = data.isel(member=0, drop=True)
        changes.append(f"{name}: the single member was taken")
    return data


def _timed(data: "xr.Dataset") -> "xr.Dataset":
    """Constant fields stretched along time; lazily, so they take no space."""
    if "time" not in data.dims:
        raise DatasetError(
            "dataset", found="constant fields only", expected="fields with a time dimension", remedy="Add the files with the times."
        )
    still = {str(n): data[n].expand_dims(time=data["time"]) for n in data.data_vars if "time" not in data[n].dims}
    return data.assign(still)


def _one_height(splits: "dict[str, xr.Dataset]") -> "dict[str, xr.Dataset]":
    """Geopotential and its height are one quantity: a split that holds the other form than the verify data is converted."""
    main = splits.get("verify", next(iter(splits.values())))
    result = {}
    for role, data in splits.items():
        for name in map(str, main.data_vars):
            other = (
                name.replace("geopotential_height", "geopotential")
                if "height" in name
                else name.replace("geopotential", "geopotential_height")
            )
            if other == name or name in data.data_vars or other not in data.data_vars:
                continue
            units = main[name].attrs["units"]
            how = lexicon.conversion(data[other].attrs["units"], units)
            if how is not None:
                converted = data[other].copy(deep=False, data=how[1](data[other].data)).rename(name)
                data = data.drop_vars(other).assign({name: converted.assign_attrs(main[name].attrs)})
        result[role] = data
    return result


def _together(splits: "dict[str, xr.Dataset]") -> "xr.Dataset":
    if len(splits) == 1:
        return next(iter(splits.values()))
    splits = _one_height(splits)
    common = set.intersection(*(set(map(str, d.data_vars)) for d in splits.values()))
    lacking = {role: sorted(set(map(str, d.data_vars)) - common) for role, d in splits.items()}
    if any(lacking.values()):
        role = next(r for r, names in lacking.items() if names)
        raise DatasetError(
            "splits",
            found=f"{', '.join(lacking[role][:6])} only in the {role} data",
            expected="the same variables in all splits",
            remedy="Choose the common ones with --read (variables= in Python), or complete the files.",
        )
    seen: dict[int, str] = {}
    for role, data in splits.items():
        seconds = seconds_of(data["time"].values)
        shared = [i for i, s in enumerate(seconds) if int(s) in seen]
        first = iso(data["time"].values[shared[0]]) if shared else ""
        if shared:
            raise DatasetError(
                "splits",
                found=f"{len(shared)} times both in {seen[int(seconds[shared[0]])]} and in {role}, the first {first}",
                expected="no time in two splits",
                remedy="Cut the files: what is tuned on must not be verified on.",
            )
        seen |= {int(s): role for s in seconds}
    order = sorted(map(str, next(iter(splits.values())).data_vars))
    return joined([(role, data[order]) for role, data in splits.items()], "splits", [])


def _check_slice(fields: "xr.Dataset") -> None:
    once = fields.nbytes // max(1, fields.sizes["time"])
    if once > memory_limit() // 4:
        raise DatasetError(
            "dataset",
            found=f"{human(once)} for one time",
            expected=f"at most {human(memory_limit() // 4)}, a quarter of the memory",
            remedy="Choose variables with --read (variables= in Python), or raise NUSCOPE_MEMORY_LIMIT.",
        )


def cases(dataset: Dataset, lead_hours: float, split: str = "verify", limit: int | None = None) -> list[Case]:
    """The forecasts that a split allows: every initial time whose valid time, matched by value, is in the same split.

    `limit` picks that many, evenly spaced. A case's id follows from its initial time and lead: minutes since 0001-01-01 of
    the calendar × 4096 + hours, so that its noise is the same in whatever subset it is run.
    """
    if split not in dataset.splits:
        raise DatasetError(
            "splits",
            found=f"splits {', '.join(dataset.splits)}",
            expected=split,
            remedy=f"Name files for it with --{'data' if split == 'verify' else split} (the role's own argument in Python).",
        )
    times, positions = dataset.fields["time"].values, np.asarray(dataset.splits[split])
    seconds = seconds_of(times[positions])
    place = {int(s): int(p) for s, p in zip(seconds, positions, strict=True)}
    lead = round(lead_hours * 3600)
    pairs = [(place[s], place[s + lead], s) for s in sorted(place) if s + lead in place]
    if not pairs:
        steps = np.unique(np.diff(np.sort(seconds))) / 3600
        every = ", ".join(f"{step:g}" for step in steps[:4])
        span = f"{len(positions)} times in steps of {every or 'no'} h, {iso(times[positions[0]])} … {iso(times[positions[-1]])}"
        raise DatasetError(
            f"{split} data",
            found=span,
            expected=f"pairs of times {lead_hours:g} h apart",
            remedy="Choose a lead time that the time step divides, or bring a longer period.",
        )
    if limit is not None:
        if limit < 1:
            raise DatasetError("cases", found=f"limit {limit}", expected="1 or more", remedy="Ask for at least one case.")
        if limit < len(pairs):
            pairs = [pairs[i] for i in np.linspace(0, len(pairs) - 1, limit).round().astype(int)]
    return [
        Case(s // 60 * 4096 + round(lead_hours), init, valid, float(lead_hours), iso(times[init]), iso(times[valid]))
        for init, valid, s in pairs
    ]


def calendar(dataset: Dataset) -> str:
    """Calendar of a dataset: `standard`, `360_day`, `noleap`, …."""
    return calendar_of(dataset.fields["time"].values)


def open_fields(
    path: str | Path,
    *,
    variables: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    select: Mapping[str, str] | None = None,
    missing: float | None = None,
) -> "tuple[xr.Dataset, tuple[str, ...]]":
    """A file of forecasts or observations in canonical form, members and lead times kept, and what was changed; lazy.

    `select` picks GRIB messages by their keys; `missing` is a value that stands for missing ones though no attribute says so.
    Names of `rename` that the file lacks may be another file's: whoever opens them all checks that each was found.
    """
    raw, _ = open_path(path, select=select, variables=[*variables, *(rename or {})] if variables else None)
    mine = {k: v for k, v in (rename or {}).items() if k in names_in(raw)}
    what = f"dataset {Path(path).name}"
    data, changes = conform(raw, what, rename=mine, variables=variables, strict=False, missing=missing)
    if data.sizes.get("lead_time", 1) == 1 and "init_time" in data.dims:
        said = list(changes)
        return on_valid_times(data, what, said, forecast=False), tuple(said)
    return data, changes
