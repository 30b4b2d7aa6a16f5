"""Variables: canonical names, units, aliases and plausible ranges, and the conversions between units of one quantity.

Canonical names are those of ClimaX (`temperature_850`, `2m_temperature`, `geopotential_500`) plus
`geopotential_height_<hPa>` for files that hold heights. And what an ensemble is called: by its ν, or by its method.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import units

G0 = 9.80665
"""Standard gravity in m s-2 (WMO): geopotential = G0 × geopotential height."""


@dataclass(frozen=True)
class Quantity:
    """A physical quantity: `stem` of its canonical name, units, short names in the wild, CF standard name, plausible range."""

    stem: str
    title: str
    units: str
    short: tuple[str, ...]
    standard_name: str
    plausible: tuple[float, float]
    surface: bool = False


QUANTITIES = (
    Quantity("geopotential", "geopotential", "m2 s-2", ("z",), "geopotential", (-6e3, 4.5e5)),
    Quantity("geopotential_height", "geopotential height", "m", ("zg", "gh", "hgt"), "geopotential_height", (-600.0, 4.6e4)),
    Quantity("temperature", "temperature", "K", ("t", "ta"), "air_temperature", (130.0, 350.0)),
    Quantity("u_component_of_wind", "eastward wind", "m s-1", ("u", "ua"), "eastward_wind", (-200.0, 200.0)),
    Quantity("v_component_of_wind", "northward wind", "m s-1", ("v", "va"), "northward_wind", (-200.0, 200.0)),
    Quantity("specific_humidity", "specific humidity", "kg kg-1", ("q", "hus"), "specific_humidity", (-1e-3, 0.05)),
    Quantity("relative_humidity", "relative humidity", "%", ("r", "hur"), "relative_humidity", (-20.0, 200.0)),
    Quantity("2m_temperature", "2 m temperature", "K", ("t2m", "2t", "tas"), "air_temperature", (150.0, 350.0), surface=True),
    Quantity(
        "10m_u_component_of_wind", "10 m eastward wind", "m s-1", ("u10", "10u", "uas"), "eastward_wind", (-120.0, 120.0), surface=True
    ),
    Quantity(
        "10m_v_component_of_wind", "10 m northward wind", "m s-1", ("v10", "10v", "vas"), "northward_wind", (-120.0, 120.0), surface=True
    ),
    Quantity("land_sea_mask", "land-sea mask", "1", ("lsm", "sftlf"), "land_binary_mask", (-0.01, 1.01), surface=True),
    Quantity("orography", "orography", "m", ("orog",), "surface_altitude", (-1000.0, 9000.0), surface=True),
    Quantity("lattitude", "latitude", "degrees_north", ("lat2d",), "latitude", (-90.0, 90.0), surface=True),
)
_BY_STEM = {q.stem: q for q in QUANTITIES}
_BY_SHORT = {s: q for q in QUANTITIES for s in q.short}

PRESSURE_LEVELS = (50, 250, 500, 600, 700, 850, 925)
CLIMAX_48 = (
    "land_sea_mask",
    "orography",
    "lattitude",
    "2m_temperature",
    "10m_u_component_of_wind",
    "10m_v_component_of_wind",
    *(
        f"{stem}_{level}"
        for stem in ("geopotential", "u_component_of_wind", "v_component_of_wind", "temperature", "relative_humidity", "specific_humidity")
        for level in PRESSURE_LEVELS
    ),
)
"""The 48 variables of the pretrained ClimaX checkpoints, in their order."""

_USUAL = ("m2 s-2", "m", "K", "degC", "m s-1", "kg kg-1", "g kg-1", "%", "dam", "1")
"""How the units that occur here are written."""
READINGS: dict[str, tuple[str, ...]] = {
    "m2 s-2": ("m", "dam"),
    "m": ("m2 s-2", "dam"),
    "K": ("degC",),
    "%": ("1",),
    "1": ("%",),
    "kg kg-1": ("g kg-1",),
}
"""Canonical units to the others in which files without a label hold the quantity."""
_G0 = Fraction("9.80665")


@cache
def normal_units(label: str) -> str:
    """One spelling for each unit that occurs here: `m**2 s**-2` → `m2 s-2`, `gpm` → `m`; others stay as they are."""
    text = " ".join(str(label).split())
    if text in _USUAL:
        return text
    if units.is_bare(text) or units.is_one(text):
        return "1"
    masses = "g" in text.lower()  # a bare 1e-3 is no ratio of masses
    alike = (usual for usual in _USUAL if masses or not usual.endswith("kg-1"))
    return next((usual for usual in alike if units.affine(text, usual) == (1, 0)), text)


def identify(name: str) -> tuple[Quantity, int | None] | None:
    """Quantity and pressure level (hPa) of a name in the wild: `z500`, `ta850`, `geopotential_500`, `t2m`; None if unknown."""
    low = name.strip().lower()
    if low in _BY_STEM:
        return _BY_STEM[low], None
    if low in _BY_SHORT:
        return _BY_SHORT[low], None
    match = re.fullmatch(r"(.+?)_?(\d{1,4})(?:_?hpa)?", low)
    if match and not match[1].endswith("_"):
        quantity = _BY_STEM.get(match[1]) or _BY_SHORT.get(match[1])
        if quantity and not quantity.surface:
            return quantity, int(match[2])
    return None


def canonical(name: str) -> str | None:
    """Canonical name of a name in the wild, or None."""
    known = identify(name)
    if known is None:
        return None
    quantity, level = known
    return quantity.stem if level is None else f"{quantity.stem}_{level}"


def units_of(name: str) -> str | None:
    """Canonical units of a variable, None if it is unknown."""
    known = identify(name)
    return known[0].units if known else None


def title_of(name: str) -> str:
    """How a page names it: `Z500 geopotential height`, `T850 temperature`."""
    known = identify(name)
    if known is None:
        return name
    quantity, level = known
    if level is None:
        return quantity.title
    letter = {"geopotential": "Z", "geopotential_height": "Z"}.get(quantity.stem, quantity.stem[0].upper())
    return f"{letter}{level} {quantity.title}"


def normal_height(level: float) -> float:
    """Geopotential height in m of a pressure in hPa in the ICAO standard atmosphere (isothermal above 226 hPa)."""
    if level >= 226.32:
        return 44330.8 * (1 - (level / 1013.25) ** 0.190263)
    return 11000.0 + 6341.6 * float(np.log(226.32 / level))


def percentile_of(name: str) -> float:
    """Which percentile of a field tells its units: the median, or for humidities the 99th (most of a field is near zero)."""
    known = identify(name)
    return 99.0 if known and known[0].stem.endswith("humidity") else 50.0


def outside(name: str, label: str, values: NDArray) -> tuple[NDArray[np.bool_], str] | None:
    """Which values lie outside the quantity's plausible range (infinities do, NaN does not), and that range in words.

    None where no range is known.
    """
    known = identify(name)
    how = conversion(label, known[0].units) if known else None
    if known is None or how is None:
        return None
    low, high = known[0].plausible
    converted = how[1](values)
    return (converted < low) | (converted > high), f"{low:.6g} … {high:.6g} {known[0].units}"


def expected_range(quantity: Quantity, level: int | None) -> tuple[float, float]:
    """Where `percentile_of` a global or regional field should lie, in the quantity's canonical units.

    Heights get a band around the standard atmosphere, wide enough for polar night and tropics and narrow enough to tell
    metres from m2 s-2 (a factor of 9.8) at every level above the boundary layer.
    """
    if quantity.stem == "relative_humidity":
        return (10.0 if level is None or level >= 300 else 0.0), 200.0  # the stratosphere is dry
    if quantity.stem == "specific_humidity":
        return (2e-4 if level is not None and level >= 700 else 0.0), 0.05
    if level is None or quantity.stem not in ("geopotential", "geopotential_height"):
        return quantity.plausible
    height = normal_height(level)
    low, high = 0.88 * height - 500, 1.05 * height + 350
    return (low, high) if quantity.stem == "geopotential_height" else (low * G0, high * G0)


def readings(name: str, value: float) -> list[str]:
    """Units in which a field's `percentile_of` would be plausible for this variable, its canonical ones first."""
    known = identify(name)
    if known is None:
        return []
    quantity, level = known
    low, high = expected_range(quantity, level)
    fits = []
    for source in (quantity.units, *READINGS.get(quantity.units, ())):
        how = conversion(source, quantity.units)
        if how is not None and low <= float(how[1](np.asarray(value, np.float64))) <= high:
            fits.append(source)
    return fits


def conversion(
    source: str, target: str, *, difference: bool = False, gravity: bool = True
) -> tuple[str, Callable[[NDArray], NDArray]] | None:
    """How to go from one unit to another: in words, and as a function; None where they do not convert.

    `difference` leaves offsets out (anomalies). `gravity` also takes geopotential to height and back, by g0.
    """
    ours, theirs = normal_units(source), normal_units(target)
    if ours == theirs:
        return "", lambda a: a
    how = units.affine(ours, theirs, difference=difference)
    if how is not None:
        return units.in_words(how), units.converter(how)
    for here, there, factor, words in (("m2 s-2", "m", 1 / _G0, "divided"), ("m", "m2 s-2", _G0, "multiplied")):
        first, last = units.affine(ours, here), units.affine(there, theirs)
        if gravity and first is not None and last is not None:
            steps = [units.in_words(first), f"{words} by g0 = {G0} m s-2", units.in_words(last)]
            return ", ".join(step for step in steps if step), units.converter((first[0] * factor * last[0], Fraction(0)))
    return None


def named_for(name: str, label: str | None) -> str:
    """The canonical name of a variable whose units are known: `z500` in m is a height, in m2 s-2 a geopotential."""
    known = identify(name)
    if known is None:
        return name
    quantity, level = known
    stem = quantity.stem
    if stem in ("geopotential", "geopotential_height") and label is not None:
        usual = normal_units(label)  # the library is loaded for unusual spellings only
        if usual in ("m", "dam") or (usual not in _USUAL and units.affine(label, "m") is not None):
            stem = "geopotential_height"
        elif usual == "m2 s-2" or (usual not in _USUAL and units.affine(label, "m2 s-2") is not None):
            stem = "geopotential"
    return stem if level is None else f"{stem}_{level}"


def obtain(wanted: str, label: str | None, available: Mapping[str, str]) -> tuple[str, str, Callable[[NDArray], NDArray]] | None:
    """Where a model finds a variable: the name in the data, the conversion in words ("" for none) and its function.

    `label` names the units that the model works in (None: canonical), `available` maps the names there are to their units.
    Height stands in for geopotential and the other way round, with the conversion said. None where nothing fits.
    """
    target = label if label is not None else (units_of(wanted) or available.get(wanted))
    if target is None:
        return None
    other = {"m": "m2 s-2", "m2 s-2": "m"}.get(normal_units(target))
    names = [wanted, named_for(wanted, target)]
    if other and wanted != named_for(wanted, other):
        names.append(named_for(wanted, other))
    for name in names:
        if name in available and (how := conversion(available[name], target)):
            return name, how[0], how[1]
    return None


def has_nu(attrs: Mapping[Any, Any]) -> bool:
    """Whether a Verification's method has a ν, by its attributes; without one the single value on that axis means nothing."""
    return bool(attrs.get("uses_nu", 1))


def at_nu(attrs: Mapping[Any, Any], nu: int) -> str:
    """`ν = 4`, or the method's title where it has none."""
    return f"ν = {nu}" if has_nu(attrs) else str(attrs["method_title"])
