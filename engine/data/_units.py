"""Units by attribute *and* magnitude: a file labelled m that holds m2 s-2 is common, and ruins every score quietly."""

from typing import TYPE_CHECKING

import numpy as np

from engine import lexicon
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

_SAMPLES, _POINTS = 3, 20_000


def sample(field: "xr.DataArray") -> list[tuple[str, np.ndarray]]:
    """A few times of a lazy field (first, middle, last), thinned in space: (where, finite values)."""
    other = {d: 0 for d in field.dims if d not in ("time", "latitude", "longitude")}
    field = field.isel(other)
    stride = max(1, int(np.sqrt(field.sizes["latitude"] * field.sizes["longitude"] / _POINTS)))
    field = field.isel(latitude=slice(None, None, stride), longitude=slice(None, None, stride))
    if "time" not in field.dims:
        return [("the field", _finite(field.values))]
    picks = sorted({int(i) for i in np.linspace(0, field.sizes["time"] - 1, _SAMPLES)})
    return [(f"time {i}", _finite(field.isel(time=i).values)) for i in picks]


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float64).ravel()
    return values[np.isfinite(values)]


def settle_units(
    name: str, attrs: dict, samples: list[tuple[str, np.ndarray]], what: str, *, strict: bool = True
) -> tuple[str, str, str | None]:
    """Canonical name, the units that the numbers are in, and what to say about it (None: as labelled).

    `strict` False keeps labelled units of implausible values and says so: anomalies and normalised fields can be scored, but
    no model may take them for the real thing.

    Raises DatasetError, with numbers, where no unit makes the values plausible, where times are in different units, or
    where several units would and none is labelled.
    """
    label = attrs.get("units")
    stated = None if label is None or str(label).strip().lower() in ("", "unknown", "~") else lexicon.normal_units(str(label))
    known = lexicon.identify(name)
    if known is None:
        return (
            name,
            stated or "1",
            None if stated else f"{name}: no units recorded and no such variable known here; numbers taken as they are",
        )
    quantity, level = known
    # geopotential and height are one family: the same list of units, whatever the file calls it
    probe = name if quantity.stem != "geopotential_height" else name.replace("geopotential_height", "geopotential")
    samples = [(where, values) for where, values in samples if values.size]
    if not samples:
        return (
            lexicon.named_for(name, stated),
            stated or quantity.units,
            f"{name}: no values in the times that were looked at, units not checked",
        )
    numbers = [float(np.percentile(values, lexicon.percentile_of(name))) for _, values in samples]
    each = [lexicon.readings(probe, number) for number in numbers]
    fits = [u for u in each[0] if all(u in options for options in each)]
    low, high = lexicon.expected_range(quantity, level)
    if not fits:
        if all(each):
            raise DatasetError(
                f"{what}: {name}",
                found=f"a mix of units: {numbers[0]:.6g} at {samples[0][0]}, {_other(numbers, each):.6g} later",
                expected=f"one unit throughout ({low:.6g} … {high:.6g} {quantity.units})",
                remedy="Convert the file to one unit; parts are not guessed.",
            )
        worst = next(i for i, options in enumerate(each) if not options)
        if not strict and stated is not None:
            odd = f"{name}: values near {numbers[worst]:.6g} {stated} are outside what is usual for {quantity.title}; kept as labelled"
            return lexicon.named_for(name, stated), stated, odd
        raise DatasetError(
            f"{what}: {name}",
            found=f"{numbers[worst]:.6g} (labelled {label!r}) at {samples[worst][0]}",
            expected=_expected(quantity, level),
            remedy="Check units, level and fill values of this variable.",
        )
    if stated in fits:
        units, said = str(stated), None
    elif len(fits) == 1 or (stated is None and quantity.units in fits and quantity.stem not in ("geopotential", "geopotential_height")):
        units = fits[0] if len(fits) == 1 else quantity.units
        said = (
            f"{name}: labelled {label!r}, but values near {numbers[0]:.6g} are {units}; treated as such"
            if stated
            else f"{name}: no units recorded; values near {numbers[0]:.6g} taken as {units}"
        )
    else:
        raise DatasetError(
            f"{what}: {name}",
            found=f"units {label!r} with values near {numbers[0]:.6g}, which could be {' or '.join(fits)}",
            expected="a units attribute that settles it",
            remedy="Write the units into the file.",
        )
    final = lexicon.named_for(name, units)
    _check_extremes(final, units, samples, what)
    return final, units, said


def _other(numbers: list[float], each: list[list[str]]) -> float:
    return next((n for n, options in zip(numbers, each, strict=True) if not set(options) & set(each[0])), numbers[-1])


def _expected(quantity: lexicon.Quantity, level: int | None) -> str:
    low, high = lexicon.expected_range(quantity, level)
    text = f"{low:.4g} … {high:.4g} {quantity.units}"
    if quantity.stem == "geopotential":
        text += f", or {low / lexicon.G0:.4g} … {high / lexicon.G0:.4g} m for a height"
    if quantity.stem == "geopotential_height":
        text += f", or {low * lexicon.G0:.4g} … {high * lexicon.G0:.4g} m2 s-2 for a geopotential"
    return text


def _check_extremes(name: str, units: str, samples: list[tuple[str, np.ndarray]], what: str) -> None:
    for where, values in samples:
        ends = np.asarray([values.min(), values.max()])
        judged = lexicon.outside(name, units, ends)
        if judged is not None and judged[0].any():
            raise DatasetError(
                f"{what}: {name}",
                found=f"{ends[judged[0]][0]:.6g} {units} at {where}",
                expected=judged[1],
                remedy="Check fill values and units; mark missing values as such (_FillValue).",
            )
