"""What a map says in words: its headline, the chance in one cell, and the text alternative."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.figures._geo import place
from engine.figures._map_data import KINDS, perfect
from engine.figures._select import Selection
from engine.figures._style import in_units, number, percent, pretty_units

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Summary:
    """Area-weighted mean and root mean square, extremes with their places, share of cells with a value."""

    mean: float
    rms: float
    low: float
    high: float
    low_at: str
    high_at: str
    finite: float


def summary(data: "xr.Dataset") -> Summary:
    """The numbers that a map is described by."""
    values = np.asarray(next(iter(data.data_vars.values())), float)
    lat, lon = data["latitude"].values, data["longitude"].values
    weight = np.where(np.isfinite(values), np.cos(np.deg2rad(lat))[:, None], 0.0)
    if not weight.any():
        return Summary(np.nan, np.nan, np.nan, np.nan, "–", "–", 0.0)
    filled = np.where(weight > 0, values, 0.0)
    total = weight.sum()
    low, high = (np.unravel_index(f(values), values.shape) for f in (np.nanargmin, np.nanargmax))
    mean, rms = float((filled * weight).sum() / total), float(np.sqrt((filled**2 * weight).sum() / total))
    spots = (place(lat[low[0]], lon[low[1]]), place(lat[high[0]], lon[high[1]]))
    return Summary(mean, rms, float(values[low]), float(values[high]), *spots, float(np.isfinite(values).mean()))


def message(data: "xr.Dataset", s: Selection) -> str:
    """The map's headline with its one number."""
    which, units = next(iter(data.data_vars)), pretty_units(str(data.attrs["units"]))
    m = summary(data)
    if which == "coverage":
        return (
            f"The {data.attrs['level']}% interval held {percent(m.mean)} of the observations; a perfect ensemble holds "
            f"{percent(perfect(data, s))}"
        )
    if which == "error":
        return (
            f"Ensemble mean minus observed: {number(m.rms)} {units} root mean square, worst near "
            f"{m.high_at if m.high > -m.low else m.low_at}"
        )
    if which == "bias":
        side = "too high" if m.mean > 0 else "too low"
        return f"On average the ensemble mean is {number(abs(m.mean))} {units} {side}; which places differ?"
    if which == "rmse":
        return f"The error is {number(m.rms)} {units} on average, largest near {m.high_at}"
    if which in ("spread", "mean_width", "width"):
        return f"{KINDS[str(which)].title}: {number(m.mean)} {units} on average, largest near {m.high_at}"
    if which == "valid":
        return f"{percent(m.mean, 1)} of the data can be verified"
    return f"{KINDS[str(which)].title}: from {number(m.low)} to {number(m.high)} {units}"


def noise(data: "xr.Dataset", s: Selection) -> str:
    """The sampling uncertainty of one cell, in words; consecutive cases are not independent, so chance may do more."""
    which, n = next(iter(data.data_vars)), max(int(s.verification.attrs.get("cases", 1)), 1)
    units = pretty_units(str(data.attrs["units"]))
    if data.attrs.get("init_time"):
        return "one case: no sampling interval; see the maps over all cases"
    if which == "coverage":
        p = perfect(data, s)
        return f"one cell, {n} cases: ±\N{NO-BREAK SPACE}{percent(1.96 * np.sqrt(p * (1 - p) / n))} by chance at least (95%)"
    if which == "bias":
        typical = float(np.nanmedian(s.at("rmse_map", nu=s.nu).values))
        return f"one cell, {n} cases: ±\N{NO-BREAK SPACE}{number(1.96 * typical / np.sqrt(n), 2)} {units} by chance at least (95%)"
    if which == "valid":
        return "counted, no sampling uncertainty"
    return f"one cell, {n} cases: ±\N{NO-BREAK SPACE}{percent(1.96 / np.sqrt(2 * n))} of its value by chance at least (95%)"


def words(data: "xr.Dataset", s: Selection) -> str:
    """The text alternative of a map."""
    which, m = str(next(iter(data.data_vars))), summary(data)
    units = in_units(str(data.attrs["units"]))
    show = percent if data.attrs["units"] == "1" else number
    text = (
        f"Map of {KINDS[which].title.lower()}{units} for {s.subject(region=False, nu=KINDS[which].uses_nu)}, M = "
        f"{s.members}: area mean {show(m.mean)}, smallest {show(m.low)} at {m.low_at}, "
        f"largest {show(m.high)} at {m.high_at}; {percent(m.finite)} of cells have a value."
    )
    if data.attrs.get("init_time"):
        text += f" Forecast from {data.attrs['init_time']}, valid {data.attrs['valid_time']}."
    if which == "coverage":
        text += f" A perfect ensemble of M = {s.members} covers {percent(perfect(data, s), 1)}."
    return f"{text} Uncertainty: {noise(data, s)}."
