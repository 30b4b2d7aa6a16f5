"""The two sides of a score in canonical form: files opened and joined, and the variable, quantity and climatology that they share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from engine import lexicon
from engine.errors import DatasetError, ScoreError
from engine.runs.align import meet, member_dimension, same_units
from engine.runs.score_answer import Said

if TYPE_CHECKING:
    import xarray as xr

    Opener = Callable[[str | Path], tuple[xr.Dataset, tuple[str, ...]]]

Paths = str | Path | Sequence[str | Path]


def open_sides(
    forecast: Paths,
    observed: Paths,
    said: Said,
    *,
    member_dim: str | None,
    roles: dict[str, Any],
    calendar: str | None,
    opener: "Opener | None",
) -> "tuple[xr.Dataset, xr.Dataset]":
    """Both sides in canonical form, each of one or several paths."""
    ours = _open(forecast, "forecast", opener or _reader(member_dim, roles), said)
    theirs = _open(observed, "observed", opener or _reader(None, roles), said)
    _all_renamed(roles.get("rename") or {}, said)
    return ours, theirs


def _all_renamed(rename: Mapping[str, str], said: Said) -> None:
    """A name that no file has is a slip of the pen, and must not pass for a wish that was granted."""
    lost = [old for old in rename if not any(f": {old} renamed to " in change for change in said.changes)]
    if lost:
        raise DatasetError(
            "rename",
            found=f"no {lost[0]} in any of the files",
            expected="names that a file has",
            remedy="Correct it in --rename (rename= in Python).",
        )


def _open(paths: Paths, side: str, reader: "Opener", said: Said) -> "xr.Dataset":
    """All paths of one side in canonical form, joined along time."""
    import xarray as xr

    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    if not listed:
        raise ScoreError(side, found="no path", expected="at least one file", remedy=f"Name the {side} file.")
    parts = []
    for path in listed:
        data, changes = reader(path)
        parts.append(data)
        for change in changes:
            said.change(f"{side} {Path(path).name}: {change}")
    return parts[0] if len(parts) == 1 else cast("xr.Dataset", xr.concat(parts, dim="time", join="exact", combine_attrs="override"))


def _open_fields(path: str | Path, roles: dict[str, Any]) -> "tuple[xr.Dataset, tuple[str, ...]]":
    """The engine's reader. Where it finds no field, a dimension that nobody knows is the likely reason, and may be the members'."""
    from engine.data import open_fields
    from engine.data._join import open_path

    try:
        return open_fields(path, **roles)
    except DatasetError as refusal:
        if "at least one field" not in refusal.expected:
            raise
        raw, _ = open_path(path)
        listed = ", ".join(map(str, raw.dims))
        remedy = "Name the dimension of the members with --member-dim (member_dim= in Python), or choose a file with gridded fields."
        raise DatasetError(refusal.what, found=f"{refusal.found} on {listed}", expected=refusal.expected, remedy=remedy) from refusal


def _reader(member_dim: str | None, roles: dict[str, Any]) -> "Opener":
    """The engine's reader; a member dimension of an unknown name is renamed before the canonical form is made."""
    if member_dim is None:
        return lambda path: _open_fields(path, roles)

    def renamed(path: str | Path) -> "tuple[xr.Dataset, tuple[str, ...]]":
        from engine.data._join import open_path

        raw, _ = open_path(path)
        if member_dim not in raw.dims:
            member_dimension(raw[max(map(str, raw.data_vars), key=lambda v: raw[v].ndim)], member_dim)
        also = {member_dim: "member"} if member_dim != "member" else {}
        return _open_fields(path, roles | {"rename": {**(roles.get("rename") or {}), **also}})

    return renamed


def as_forecast(ours: "xr.Dataset", theirs: "xr.Dataset", said: Said) -> "xr.Dataset":
    """The observed with geopotential as height, or height as geopotential, where the forecast holds the other of the two."""
    for name in map(str, list(theirs.data_vars)):
        other = (
            name.replace("geopotential_height", "geopotential") if "height" in name else name.replace("geopotential", "geopotential_height")
        )
        if name in ours.data_vars or other == name or other not in ours.data_vars:
            continue
        factor, units = (lexicon.G0, "m2 s-2") if "height" in name else (1 / lexicon.G0, "m")
        converted = (theirs[name] * np.float32(factor)).assign_attrs(units=units)
        said.change(f"observed {name} taken as {other}: {'times' if factor > 1 else 'divided by'} {lexicon.G0}")
        theirs = theirs.drop_vars(name).assign({other: converted})
    return theirs


def shared_variables(ours: "xr.Dataset", theirs: "xr.Dataset", variable: str | None, said: Said) -> tuple[str, str]:
    """The variable's name on both sides: as asked, the only one they share, or the only ones there are."""
    first, second = sorted(map(str, ours.data_vars)), sorted(map(str, theirs.data_vars))
    shared = [name for name in first if name in second]
    if variable is not None:
        wanted = next((n for n in (variable, lexicon.canonical(variable)) if n in shared), None)
        if wanted is None:
            raise ScoreError(
                "variable",
                found=f"forecast: {', '.join(first)}; observed: {', '.join(second)}",
                expected=f"{variable} in both",
                remedy="Name one that both have.",
            )
        return wanted, wanted
    if len(shared) == 1:
        return shared[0], shared[0]
    alone = len(first) == len(second) == 1
    if not shared and alone and not all(lexicon.identify(n) for n in (first[0], second[0])):
        said.change(f"forecast {first[0]} is scored against observed {second[0]}: each is the only variable of its file")
        return first[0], second[0]
    raise ScoreError(
        "variable",
        found=f"forecast: {', '.join(first)}; observed: {', '.join(second)}",
        expected="one variable in common" if not shared else "one of them named",
        remedy="Say what the names stand for with --rename (rename= in Python)."
        if not shared
        else "Name it with --variable (variable= in Python).",
    )


def on_valid_times(forecast: "xr.DataArray", lead_time: float | None) -> "xr.DataArray":
    """The forecast on valid times, at one lead time."""
    if "lead_time" not in forecast.dims:
        if lead_time is not None:
            raise ScoreError(
                "lead_time",
                found=f"a forecast without a lead_time dimension ({', '.join(map(str, forecast.dims))})",
                expected=f"one that holds {lead_time:g} h",
                remedy="Leave the lead time out: this file holds one forecast for each valid time.",
            )
        return forecast
    leads = forecast["lead_time"].values if "lead_time" in forecast.coords else np.zeros(0)
    if leads.size == 0:
        raise ScoreError(
            "lead_time", found="a dimension without values", expected="lead times", remedy="Give the lead_time dimension its coordinate."
        )
    units = str(forecast["lead_time"].attrs.get("units", "hours")).lower()
    scale = {"d": 24.0, "m": 1 / 60, "s": 1 / 3600}.get(units[:1], 1.0)
    hours = (
        leads.astype("timedelta64[s]").astype(np.float64) / 3600
        if np.issubdtype(leads.dtype, np.timedelta64)
        else leads.astype(np.float64) * scale
    )
    if lead_time is None and hours.size > 1:
        listed = ", ".join(f"{h:g}" for h in hours[:12])
        raise ScoreError(
            "lead_time",
            found=f"{hours.size} lead times ({listed} h)",
            expected="one",
            remedy="Choose one, in hours, with --lead-time (lead_time= in Python).",
        )
    at = 0 if lead_time is None else int(np.abs(hours - lead_time).argmin())
    if lead_time is not None and abs(hours[at] - lead_time) > 1e-3:
        raise ScoreError(
            "lead_time", found=", ".join(f"{h:g}" for h in hours), expected=f"{lead_time:g} h", remedy="Choose one that the file has."
        )
    chosen_lead = forecast.isel(lead_time=at, drop=True)
    if "time" not in chosen_lead.dims:
        return chosen_lead
    import datetime

    start = chosen_lead["time"].values
    span = (
        np.timedelta64(round(hours[at] * 3600), "s")
        if np.issubdtype(start.dtype, np.datetime64)
        else datetime.timedelta(hours=float(hours[at]))
    )
    return chosen_lead.assign_coords(time=start + span)


def beside(path: str | Path, variable: str, observed: "xr.DataArray", opener: "Opener | None") -> "xr.DataArray":
    """The climatology on the observed grid; with a time dimension it must hold every valid time."""
    data, _ = (opener or _reader(None, {}))(path)
    if variable not in data.data_vars:
        raise ScoreError(
            "climatology", found=", ".join(map(str, data.data_vars)), expected=variable, remedy="Give a climatology of the scored variable."
        )
    field = data[variable].squeeze(drop=True)
    same_units(field, observed)
    target = observed if "time" in field.dims else observed.isel(time=0, drop=True)
    target, field = meet(target, field, lambda _: None)
    if any(target.sizes[d] != observed.sizes[d] for d in target.dims):
        raise ScoreError(
            "climatology",
            found=f"{dict(field.sizes)}",
            expected="every place and valid time that is scored",
            remedy="Give a longer or larger climatology, or one without time.",
        )
    return field.transpose(*target.dims)
