"""Which coordinate holds initial, lead or valid times: by standard name, by name in any case, by type and units.

`init` when a forecast began, `lead` how long after it a field is valid, `valid` when it is valid, `time` one of the first
and the last, which only its neighbours can tell (`engine.data._times`).
"""

import re
from typing import TYPE_CHECKING, Literal

import numpy as np

from engine import units
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

Role = Literal["init", "lead", "valid", "time"]

_STANDARD: dict[str, Role] = {"forecast_reference_time": "init", "forecast_period": "lead", "time": "time"}
_NAMES: dict[Role, str] = {
    "init": "init_time init inits initial_time initialtime initialization initialisation initialization_time initialisation_time"
    " initialization_date init_date initialized forecast_reference_time forecast_reference_date reference_time ref_time reftime"
    " forecast_initial_time forecast_init_time model_init_time start_time start_date startdate sdate base_time basetime run_time"
    " analysis_time cycle_time issue_time hdate hindcast_date hindcast_time forecast_start_time",
    "lead": "lead_time leadtime lead leads lead_times step steps prediction_timedelta timedelta forecast_period forecast_hour"
    " forecast_hours forecast_step forecast_lead_time forecast_timedelta forecast_day fhour fhours fhr fxx fcst_hour fcst_lead horizon"
    " lead_hour lead_hours lead_day lead_days lead_week lead_weeks lead_month lead_months lead_year lead_years lead_minutes",
    "valid": "valid_time validtime valid_times validity_time valid_date validdate verification_time verif_time verifying_time target_time"
    " forecast_valid_time time_valid",
    "time": "time times date dates datetime forecast_time day_of_forecast",
}
_BY_NAME: dict[str, Role] = {name: role for role, names in _NAMES.items() for name in names.split()}
_LOOSE: dict[str, Role] = {"s": "init", "start": "init", "starts": "init", "run": "init", "cycle": "init", "l": "lead", "t": "time"}
"""Names that stand for times only where the values are times too: NMME's S, L and T, and words for much else."""
MOST_HOURS = 100_000.0
"""Beyond eleven years a bare number is no lead time in hours (our choice): nanoseconds, or a date."""


def kind_of_values(coordinate: "xr.DataArray") -> Literal["date", "span", "number", "text"]:
    """What a coordinate's values are: dates of any calendar, durations (also by units), plain numbers, or text."""
    dtype = coordinate.dtype
    if np.issubdtype(dtype, np.datetime64):
        return "date"
    if np.issubdtype(dtype, np.timedelta64):
        return "span"
    if np.issubdtype(dtype, np.number):
        return "span" if _seconds(str(coordinate.attrs.get("units", ""))) is not None else "number"
    first = np.ravel(coordinate.values)[:1]
    return "date" if dtype.kind == "O" and first.size and hasattr(first[0], "calendar") else "text"


def role_of(name: str, coordinate: "xr.DataArray | None", what: str) -> Role | None:
    """The role of a coordinate (None: of a dimension without values), None where it has none.

    Raises DatasetError where its name says one thing and its standard name another.
    """
    low = re.sub(r"[\s\-.]+", "_", name.strip().lower())
    low = re.sub(r"^(initial_time|forecast_time)\d+(_hours|_encoded)?$", r"\1", low)  # as NCL writes them
    named = _BY_NAME.get(low)
    if coordinate is None:
        return named
    standard = _STANDARD.get(str(coordinate.attrs.get("standard_name", "")).strip().lower())
    if named and standard and "time" not in (named, standard) and named != standard:
        raise DatasetError(
            what,
            found=f"{name} whose standard_name is {coordinate.attrs['standard_name']}",
            expected="a name and a standard_name that say the same",
            remedy="Mend the standard_name in the file, or rename the coordinate with --rename (rename= in Python).",
        )
    role = named if standard in (None, "time") and named else standard
    values = kind_of_values(coordinate)
    if role is None:
        loose = _LOOSE.get(low)
        if loose == "lead" and (values == "span" or _fixed_length(str(coordinate.attrs.get("units", ""))) is False):
            return "lead"
        if loose in ("init", "time") and values == "date":
            return loose
        if low not in _LOOSE and coordinate.dims == (name,):
            return "time" if values == "date" else "lead" if np.issubdtype(coordinate.dtype, np.timedelta64) else None
        return None
    if role == "time" and values == "span":
        return "lead"  # hours since a start that stands beside it
    if role == "lead" and values == "date":
        return "valid"  # steps that are given by the times at which they are valid
    return role


def lead_seconds(name: str, coordinate: "xr.DataArray", what: str, changes: list[str]) -> np.ndarray:
    """Lead times in whole seconds, int64, shaped as they are. Raises DatasetError for months and what has no unit of time."""
    values = coordinate.values
    if np.issubdtype(values.dtype, np.timedelta64):
        if np.isnat(values).any():
            raise _refused(what, f"{name} with a missing value", "a lead time for each field")
        return np.round(values.astype("timedelta64[ns]").astype(np.float64) / 1e9).astype(np.int64)
    if not np.issubdtype(values.dtype, np.number):
        raise _refused(what, f"{name} of type {values.dtype}", "lead times as numbers with a unit of time, or durations")
    if not np.isfinite(np.asarray(values, np.float64)).all():
        raise _refused(what, f"{name} with a missing value", "a lead time for each field")
    label = str(coordinate.attrs.get("units", "")).strip()
    if units.is_bare(label) or units.is_one(label):
        told = re.search(r"(minute|hour|day|week|month|year)s?$", name.lower())
        label = told[1] if told else "hours"
        if not told and np.abs(values).max(initial=0) > MOST_HOURS:
            raise _refused(what, f"{name} up to {np.abs(values).max():g} without units", "a unit of time such as hours")
        changes.append(f"{name}: no units recorded, numbers taken as {label.removesuffix('s')}s")
    if _fixed_length(label) is False:
        raise DatasetError(
            what,
            found=f"{name} in {label}, which have no fixed length",
            expected="minutes, hours, days or weeks, or valid times",
            remedy="Write the lead times in days or hours, or the valid times, into the file.",
        )
    unit = _seconds(label)
    if unit is None:
        raise _refused(what, f"{name} in {label!r}", "a unit of time such as hours")
    return np.round(np.asarray(values, np.float64) * unit).astype(np.int64)


def _refused(what: str, found: str, expected: str) -> DatasetError:
    return DatasetError(what, found=found, expected=expected, remedy="Write the lead times with their unit into the file.")


def _fixed_length(label: str) -> bool | None:
    """Whether a unit of time has a fixed length; None for what is no unit of time."""
    low = label.strip().lower()
    if low.rstrip("s") in ("mon", "mo", "mth", "yr", "season", "quarter", "decade", "century") or low in ("month_of_year",):
        return False
    if _seconds(label) is not None:
        return True
    try:
        units.hours_of(0.0, label)
    except DatasetError as refusal:
        return False if "no fixed length" in refusal.found else None
    return None


def _seconds(label: str) -> float | None:
    """Seconds of a unit of time of fixed length, `hour`, `h`, `6 hours`, `weeks`; None for anything else."""
    if units.is_bare(label) or units.is_one(label):
        return None
    how = next((h for text in (label, label.lower()) if (h := units.affine(text, "second")) is not None), None)
    return float(how[0]) if how is not None else None
