"""Units of a variable, of all its levels together: the label decides, the values check it.

A label that is no unit, or one of another quantity, is refused and never guessed around. Without a label the values tell,
and that is said. In one case they decide against a label: geopotential and its height, whose labels are so often mixed up that
the name of one with the unit of the other is a contradiction within the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon, units
from engine.data._missing import Mask
from engine.errors import DatasetError
from engine.kernels.sentinels import classic

if TYPE_CHECKING:
    import xarray as xr

Samples = list[tuple[str, np.ndarray]]
_SAMPLES, _POINTS = 3, 20_000
_FAMILY = ("geopotential", "geopotential_height")
_DIFFERENCE = ("anomal", "departure from", "deviation from", "difference", "increment", "minus climatology")
_REMEDY = (
    "Correct the attribute in the file (ncatted -a units,{name},o,c,{units} FILE, or xarray's .attrs); no guess is made from the values."
)


@dataclass
class Settled:
    """What the numbers of a variable are in: its units, whether they are differences, whether they are taken on trust."""

    units: str
    difference: bool = False
    as_labelled: bool = False
    """Values outside what is usual, kept because only scores are wanted."""
    said: list[str] = field(default_factory=list)


def sample(field: "xr.DataArray", mask: Mask | None = None) -> Samples:
    """A few times of a lazy field (first, middle, last), thinned in space: (where, finite values that `mask` leaves)."""
    other = {d: 0 for d in field.dims if d not in ("time", "latitude", "longitude")}
    field = field.isel(other)
    stride = max(1, int(np.sqrt(field.sizes["latitude"] * field.sizes["longitude"] / _POINTS)))
    field = field.isel(latitude=slice(None, None, stride), longitude=slice(None, None, stride))
    if "time" not in field.dims:
        return [("the field", _finite(field.values, mask))]
    picks = sorted({int(i) for i in np.linspace(0, field.sizes["time"] - 1, _SAMPLES)})
    return [(f"time {i}", _finite(field.isel(time=i).values, mask)) for i in picks]


def _finite(values: np.ndarray, mask: Mask | None) -> np.ndarray:
    values = np.asarray(values if mask is None else mask(values), np.float64).ravel()
    return values[np.isfinite(values)]


def is_difference(key: str, attrs: Mapping[str, Any]) -> bool:
    """Whether a variable calls itself an anomaly or a difference, in its name, its long or standard name, or by CF's `units_metadata`."""
    words = " ".join(str(attrs.get(name, "")) for name in ("standard_name", "long_name", "units_metadata", "GRIB_name"))
    text = f"{key} {words}".lower().replace("_", " ")
    return any(word in text for word in _DIFFERENCE)


def _how(label: object, quantity: lexicon.Quantity, *, difference: bool = False) -> Any:
    gravity = quantity.stem in _FAMILY or quantity.stem == "orography"
    return lexicon.conversion(str(label), quantity.units, difference=difference, gravity=gravity)


def settle_units(key: str, attrs: Mapping[str, Any], samples: Mapping[str, Samples], what: str, *, strict: bool = True) -> Settled:
    """What the numbers of a variable are in, from its label and a few fields of each of its levels (`samples`, by canonical name).

    `strict` False keeps labelled units of implausible values and says so: anomalies and normalised fields can be scored, but
    no model may take them for the real thing.

    Raises DatasetError, with numbers, for a label that is no unit or of another quantity, where no unit makes the values
    plausible, where times or levels are in different units, or where several units would do and none is labelled.
    """
    label = attrs.get("units")
    bare = units.is_bare(label)
    known = lexicon.identify(next(iter(samples)))
    if known is None:
        if bare:
            return Settled("1", said=[f"{key}: no units recorded and no such variable known here; numbers taken as they are"])
        odd = [] if units.known(label) else [f"{key}: {label!r} is no unit that is known here; numbers taken as they are"]
        return Settled(lexicon.normal_units(str(label)), is_difference(key, attrs), said=odd)
    quantity = known[0]
    if units.is_one(label) and quantity.units not in ("1", "%", "kg kg-1"):
        bare = True
    if not bare and (not units.known(label) or _how(label, quantity) is None):
        kind = "which is no unit that is known here" if not units.known(label) else f"which do not convert to {quantity.units}"
        raise DatasetError(
            f"{what}: {key}",
            found=f"units {str(label)!r}, {kind}",
            expected=f"{quantity.units} for {quantity.title}, or a unit that converts to it",
            remedy=_REMEDY.format(name=key, units=quantity.units.replace(" ", "\\ "))
            + f" If {key} is another quantity, give it a name of its own: --rename {key}=NAME (rename= in Python).",
        )
    if not bare and not strict and is_difference(key, attrs):
        text = f"{key}: differences (by its name), in {label}; no offset is added"
        return Settled(lexicon.normal_units(str(label)), difference=True, as_labelled=True, said=[text])
    numbers = _numbers(samples)
    if not numbers:
        text = f"{key}: no values in the times that were looked at, units not checked"
        return Settled(quantity.units if bare else lexicon.normal_units(str(label)), said=[text])
    settled = _unlabelled(key, label, quantity, numbers, what) if bare else _labelled(key, attrs, quantity, numbers, what, strict)
    if strict:
        for name, parts in samples.items():
            _check_extremes(lexicon.named_for(name, settled.units), settled.units, parts, what)
    return settled


@dataclass(frozen=True)
class _Number:
    """One field's percentile that tells its units."""

    name: str
    where: str
    value: float
    readings: tuple[str, ...]
    expected: tuple[float, float]


def _numbers(samples: Mapping[str, Samples]) -> list[_Number]:
    found = []
    for name, parts in samples.items():
        # geopotential and height are one family: the same list of units, whatever the file calls it
        probe = name.replace("geopotential_height", "geopotential")
        identified = lexicon.identify(name)
        assert identified is not None
        for where, values in parts:
            real = values[~_stand_ins(values)]
            if real.size:
                value = float(np.percentile(real, lexicon.percentile_of(name)))
                place = where if len(samples) == 1 else f"{where} of {name}"
                found.append(_Number(name, place, value, tuple(lexicon.readings(probe, value)), lexicon.expected_range(*identified)))
    return found


def _stand_ins(values: np.ndarray) -> np.ndarray:
    """Where a sample holds numbers that files use for missing values, at its ends: they say nothing of units."""
    ends = [v for v in (values.min(), values.max()) if classic(float(v))] if values.size else []
    return np.isin(values, ends) | (np.abs(values) >= 1e15)


def _unlabelled(key: str, label: object, quantity: lexicon.Quantity, numbers: Sequence[_Number], what: str) -> Settled:
    fits = [u for u in numbers[0].readings if all(u in n.readings for n in numbers)]
    if not fits:
        _refuse_mix(key, quantity, numbers, what)
        _refuse_values(key, label, quantity, numbers, what)
    if len(fits) > 1 and (quantity.stem in _FAMILY or quantity.units not in fits):
        _refuse_either(key, label, numbers, fits, what)
    found = fits[0] if len(fits) == 1 else quantity.units
    return Settled(found, said=[f"{key}: no units recorded; values near {numbers[0].value:.6g} taken as {found}"])


def _labelled(
    key: str, attrs: Mapping[str, Any], quantity: lexicon.Quantity, numbers: Sequence[_Number], what: str, strict: bool
) -> Settled:
    label = str(attrs["units"])
    stated = lexicon.normal_units(label)
    how = _how(label, quantity)[1]
    wrong = [n for n in numbers if not n.expected[0] <= float(how(np.asarray(n.value, np.float64))) <= n.expected[1]]
    others = [u for u in numbers[0].readings if u != stated and all(u in n.readings for n in numbers)]
    if quantity.stem in _FAMILY and wrong:
        if len(others) == 1:
            worst = wrong[0]
            text = f"{key}: labelled {label!r}, but values near {worst.value:.6g} at {worst.where} are {others[0]}; treated as such"
            return Settled(others[0], said=[text + (" at all levels" if len({n.name for n in numbers}) > 1 else "")])
        _refuse_mix(key, quantity, numbers, what)
    if quantity.stem in _FAMILY and not wrong and _contradicts(key, attrs, label) and "m2 s-2" in others:
        _refuse_either(key, label, numbers, ["m", "m2 s-2"], what)
    if not wrong:
        return Settled(stated)
    span = quantity.plausible[1] - quantity.plausible[0]
    small = _how(label, quantity, difference=True)[1]
    anomalies = all(abs(float(small(np.asarray(n.value, np.float64)))) <= span / 4 for n in numbers)
    if strict or (others and not anomalies):
        _refuse_values(key, label, quantity, wrong, what, others)
    text = f"{key}: values near {wrong[0].value:.6g} {stated} are outside what is usual for {quantity.title}; kept as labelled"
    return Settled(stated, difference=anomalies, as_labelled=True, said=[text + (", as anomalies without an offset" if anomalies else "")])


def _contradicts(key: str, attrs: Mapping[str, Any], label: str) -> bool:
    """A variable that is called geopotential, with a plain length as its unit."""
    called = key.lower().startswith("geopotential") or str(attrs.get("standard_name", "")) == "geopotential"
    text = f"{key} {attrs.get('long_name', '')} {attrs.get('standard_name', '')}".lower()
    return called and "height" not in text and lexicon.normal_units(label) == "m" and not label.lower().startswith("gp")


def _refuse_mix(key: str, quantity: lexicon.Quantity, numbers: Sequence[_Number], what: str) -> None:
    first = numbers[0]
    if not all(n.readings for n in numbers) or set(first.readings).intersection(*(n.readings for n in numbers)):
        return
    other = next((n for n in numbers if not set(n.readings) & set(first.readings)), numbers[-1])
    low, high = first.expected
    raise DatasetError(
        f"{what}: {key}",
        found=f"a mix of units: {first.value:.6g} at {first.where}, {other.value:.6g} at {other.where}",
        expected=f"one unit throughout ({low:.6g} … {high:.6g} {quantity.units} at {first.where})",
        remedy="Convert the file to one unit; parts are not guessed.",
    )


def _refuse_either(key: str, label: object, numbers: Sequence[_Number], fits: Sequence[str], what: str) -> None:
    raise DatasetError(
        f"{what}: {key}",
        found=f"units {label!r} with values near {numbers[0].value:.6g}, which could be {' or '.join(fits)}",
        expected="a units attribute and a name that settle it",
        remedy=f"Write the units into the file (ncatted -a units,{key},o,c,'{fits[-1]}' FILE); "
        "for a height, call the variable geopotential_height (zg, gh).",
    )


def _refuse_values(
    key: str, label: object, quantity: lexicon.Quantity, numbers: Sequence[_Number], what: str, others: Sequence[str] = ()
) -> None:
    worst = next((n for n in numbers if not n.readings), numbers[0])
    _, level = lexicon.identify(worst.name) or (quantity, None)
    hint = f", which would be usual in {' or '.join(others)}" if others else ""
    raise DatasetError(
        f"{what}: {key}",
        found=f"{worst.value:.6g} (labelled {label!r}) at {worst.where}{hint}",
        expected=_expected(quantity, level),
        remedy="Check units, level and fill values of this variable; correct its attribute (ncatted, or xarray's .attrs).",
    )


def _expected(quantity: lexicon.Quantity, level: int | None) -> str:
    low, high = lexicon.expected_range(quantity, level)
    text = f"{low:.4g} … {high:.4g} {quantity.units}"
    if quantity.stem == "geopotential":
        text += f", or {low / lexicon.G0:.4g} … {high / lexicon.G0:.4g} m for a height"
    if quantity.stem == "geopotential_height":
        text += f", or {low * lexicon.G0:.4g} … {high * lexicon.G0:.4g} m2 s-2 for a geopotential"
    return text


def _check_extremes(name: str, label: str, samples: Samples, what: str) -> None:
    for where, values in samples:
        if not values.size:
            continue
        ends = np.asarray([values.min(), values.max()])
        judged = lexicon.outside(name, label, ends)
        if judged is not None and judged[0].any():
            raise DatasetError(
                f"{what}: {name}",
                found=f"{ends[judged[0]][0]:.6g} {label} at {where}",
                expected=judged[1],
                remedy="Check fill values and units; mark missing values as such (_FillValue; --missing VALUE; missing= in Python).",
            )
