"""Which valid times a forecast and observations share: by value, within a fraction of the time step that is stated."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.data._coordinates import iso, seconds_of
from engine.data._series import tolerance
from engine.errors import ScoreError

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Match:
    """Positions of the times in common, in order of time, and how they were found."""

    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]
    counts: tuple[int, int]
    within: float | None
    largest: float | None
    first: str
    last: str

    def as_dict(self) -> dict[str, Any]:
        """What the answer of `score` says of times: counts, seconds of tolerance, largest difference that was met, extent."""
        return {
            "forecast": self.counts[0],
            "observed": self.counts[1],
            "matched": len(self.ours),
            "tolerance_seconds": self.within,
            "largest_difference_seconds": self.largest,
            "first": self.first,
            "last": self.last,
        }


NO_TIMES = {
    "forecast": 1,
    "observed": 1,
    "matched": 1,
    "tolerance_seconds": None,
    "largest_difference_seconds": None,
    "first": "",
    "last": "",
}


def match_times(forecast: "xr.DataArray", observed: "xr.DataArray") -> Match:
    """The times that both coordinates hold; each once, of one calendar. Raises ScoreError where there is none in common."""
    ours, theirs = forecast.values, observed.values
    kinds = [calendar_of_values(v) for v in (ours, theirs)]
    if kinds[0] != kinds[1]:
        raise ScoreError(
            "calendars",
            found=f"calendars {kinds[0]} and {kinds[1]}, of the forecast and of the observed",
            expected="one calendar",
            remedy="Convert one of them first, or write dates into both.",
        )
    for side, values in (("forecast", ours), ("observed", theirs)):
        if len(set(values.tolist())) < len(values):
            raise ScoreError("time", found=f"a time twice in {side}", expected="each once", remedy="Drop the duplicates.")
    counts = (len(ours), len(theirs))
    if kinds[0] in ("numbers", "text"):
        place = {value: i for i, value in enumerate(theirs.tolist())}
        pairs = sorted((value, i, place[value]) for i, value in enumerate(ours.tolist()) if value in place)
        if not pairs:
            raise _none(str(ours.min()), str(ours.max()), str(theirs.min()), str(theirs.max()))
        a, b = np.asarray([p[1] for p in pairs]), np.asarray([p[2] for p in pairs])
        return Match(a, b, counts, None, None, str(pairs[0][0]), str(pairs[-1][0]))
    x, y = _exact(ours), _exact(theirs)
    precision = max(float(c.attrs.get("precision_seconds", 0)) for c in (forecast, observed))
    within = tolerance([x, y], precision)
    order = np.argsort(y)
    sorted_y = y[order]
    right = np.clip(np.searchsorted(sorted_y, x), 1, max(1, len(y) - 1)) if len(y) > 1 else np.zeros(len(x), np.int64)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(sorted_y[left] - x) <= np.abs(sorted_y[right] - x), left, right)
    apart = np.abs(sorted_y[nearest] - x)
    met = np.flatnonzero(apart <= within)
    if not len(met):
        raise _none(iso(ours.min()), iso(ours.max()), iso(theirs.min()), iso(theirs.max()))
    met = met[np.argsort(x[met], kind="stable")]
    a, b = met, order[nearest[met]]
    return Match(a, b, counts, within, float(apart[met].max()), iso(ours[a[0]]), iso(ours[a[-1]]))


def _none(first: str, last: str, theirs_first: str, theirs_last: str) -> ScoreError:
    return ScoreError(
        "time",
        found=f"no common time: forecast {first} … {last}, observed {theirs_first} … {theirs_last}",
        expected="at least one valid time in both",
        remedy="Give observations of the forecast's valid times.",
    )


def _exact(values: NDArray[Any]) -> NDArray[np.float64]:
    """Seconds with their fractions: of datetime64 in microseconds, of other calendars in whole seconds."""
    if np.issubdtype(values.dtype, np.datetime64):
        return (values.astype("datetime64[us]") - np.datetime64("2000-01-01", "us")) / np.timedelta64(1, "us") / 1e6
    return seconds_of(values).astype(np.float64)


def calendar_of_values(values: NDArray[Any]) -> str:
    """The calendar's name; `numbers` or `text` where times are no dates."""
    if values.dtype == object and len(values):
        return str(getattr(values[0], "calendar", type(values[0]).__name__))
    return "standard" if np.issubdtype(values.dtype, np.datetime64) else "numbers" if np.issubdtype(values.dtype, np.number) else "text"
