"""Forecasts on their valid times: one lead time of many starts, or all steps of one start."""

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data._coordinates import iso, seconds_of
from engine.data._times import plus
from engine.errors import DatasetError, ScoreError

if TYPE_CHECKING:
    import xarray as xr

_SAME_LEAD = 30
"""Seconds within which a lead time is the one that was asked for."""


def hours_of_leads(data: "xr.Dataset") -> np.ndarray:
    """The lead times there are, in hours, ascending; empty where none is known."""
    if "lead_time" not in data.coords:
        return np.zeros(0)
    return np.unique(data["lead_time"].values / np.timedelta64(1, "s")) / 3600


def has_lead(data: "xr.Dataset", hours: float) -> bool:
    """Whether a dataset holds this lead time, or could: one with initial times alone is taken at its word."""
    found = hours_of_leads(data)
    return bool((np.abs(found - hours) * 3600 <= _SAME_LEAD).any()) if found.size else "init_time" in data.dims


def on_valid_times(data: "xr.Dataset", what: str, changes: list[str], *, lead: float | None = None, forecast: bool) -> "xr.Dataset":
    """A canonical dataset with `time` for its only dimension of time.

    `lead` (hours) chooses among lead times. Without it, of one start every lead time is a field at its own valid time
    (our choice: they are distinct times), and of several starts there may be one lead time alone; observations (`forecast`
    False) of several starts are put in order of valid time. Raises ScoreError where the choice is open.
    """
    if lead is not None and not has_lead(data, lead):
        raise _lacks(data, lead)
    if {"init_time", "lead_time"} <= set(data.dims):
        return _of_starts(data, what, changes, lead, forecast)
    if "lead_time" in data.dims:  # valid times × lead times
        at = _place(data["lead_time"], lead)
        return data.isel(lead_time=at).assign_coords(lead_time=("time", np.repeat(data["lead_time"].values[at], data.sizes["time"])))
    if "init_time" in data.dims:
        if forecast and lead is None:
            raise ScoreError(
                what,
                found=f"initial times ({data['init_time'].attrs.get('file_name', 'init_time')}) and no lead time",
                expected="valid times, or the lead time of these forecasts",
                remedy="Give the lead time in hours with --lead-time (lead_time= in Python); 0 where these are valid times.",
            )
        moved = np.timedelta64(round((lead or 0) * 3600), "s")
        valid = plus(data["init_time"], data["init_time"].copy(data=np.full(data.sizes["init_time"], moved)))
        name = data["init_time"].attrs.get("file_name", "init_time")
        if name != "time" or lead:
            changes.append(f"{name} " + (f"plus {lead:g} h is the valid time, as asked" if lead else "taken for the valid time"))
        return _timed(data, "init_time", valid.values)
    if lead is not None and "lead_time" in data.coords and "time" in data.dims:
        return data.isel(time=np.flatnonzero(np.abs(data["lead_time"].values / np.timedelta64(1, "s") - lead * 3600) <= _SAME_LEAD))
    return data


def _of_starts(data: "xr.Dataset", what: str, changes: list[str], lead: float | None, forecast: bool) -> "xr.Dataset":
    starts, leads = data["init_time"], data["lead_time"]
    if lead is not None or leads.size == 1:
        at = _place(leads, lead)
        return _timed(data.isel(lead_time=at, drop=True), "init_time", plus(starts, leads[at]).values, lead=leads.values[at])
    if starts.size == 1:
        if forecast:
            changes.append(f"one start {iso(starts.values[0])} with {leads.size} lead times: each is scored at its own valid time")
        moved = _timed(data.isel(init_time=0, drop=True), "lead_time", plus(starts[0], leads).values)
        return moved.assign_coords(lead_time=("time", leads.values))
    if forecast:
        hours = hours_of_leads(data)
        listed = ", ".join(f"{h:g}" for h in hours[:12]) + (", …" if hours.size > 12 else "")
        raise ScoreError(
            "lead_time",
            found=f"{starts.size} starts with {hours.size} lead times ({listed} h)",
            expected="one lead time",
            remedy="Choose one, in hours, with --lead-time (lead_time= in Python).",
        )
    stacked = plus(starts, leads).values.ravel()
    fields = {n: v for n, v in data.data_vars.items() if {"init_time", "lead_time"} <= set(v.dims)}
    if len(np.unique(seconds_of(stacked))) < stacked.size:
        raise DatasetError(
            what,
            found=f"{starts.size} starts with {leads.size} lead times that are valid at the same times",
            expected="one value for each valid time",
            remedy="Choose one lead time in the file of observations.",
        )
    changes.append(f"{starts.size} starts with {leads.size} steps put in order of their valid times")
    flat = data[list(fields)].stack(time=("init_time", "lead_time"), create_index=False).drop_vars(["init_time", "lead_time"])
    return flat.assign_coords(time=("time", stacked)).isel(time=np.argsort(seconds_of(stacked), kind="stable"))


def _place(leads: "xr.DataArray", lead: float | None) -> int:
    hours = leads.values / np.timedelta64(1, "s") / 3600
    if lead is None and hours.size > 1:
        raise ScoreError(
            "lead_time",
            found=f"{hours.size} lead times ({', '.join(f'{h:g}' for h in hours[:12])} h)",
            expected="one",
            remedy="Choose one, in hours, with --lead-time (lead_time= in Python).",
        )
    return 0 if lead is None else int(np.abs(hours - lead).argmin())


def _timed(data: "xr.Dataset", dim: str, valid: np.ndarray, lead: Any = None) -> "xr.Dataset":
    """The dimension as `time`, with valid times and what is known of their precision."""
    attrs = {k: v for k, v in data[dim].attrs.items() if k == "precision_seconds"}
    moved = data.drop_vars([n for n in ("time", "init_time", "lead_time") if n in data.coords]).rename_dims({dim: "time"})
    moved = moved.assign_coords(time=("time", valid, attrs))
    return moved if lead is None else moved.assign_coords(lead_time=("time", np.repeat(lead, len(valid))))


def _lacks(data: "xr.Dataset", lead: float) -> ScoreError:
    hours = hours_of_leads(data)
    if hours.size:
        listed = ", ".join(f"{h:g}" for h in hours[:24])
        return ScoreError("lead_time", found=f"lead times {listed} h", expected=f"{lead:g} h", remedy="Choose one that the file has.")
    return ScoreError(
        "lead_time",
        found=f"a forecast without lead times ({', '.join(map(str, data.dims))})",
        expected=f"one that holds {lead:g} h",
        remedy="Leave the lead time out: this file holds one forecast for each valid time.",
    )
