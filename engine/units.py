"""Units of measure as files write them, by a units library: spellings, conversions, and lengths of time.

Labels follow UDUNITS ("kg m-2 s-1"), GRIB tables ("m**2 s**-2"), slashes ("g/kg") or plain words ("degrees C", "knots"). The
library (pint) knows the units; what is here turns those spellings into its own, and names what meteorology calls otherwise
(`mb` is a millibar, `Sv` a sverdrup, `C` a degree Celsius). Factors are exact fractions, so 5/9 and 1852/3600 are not rounded.

Choices of ours: months and years have no fixed length and convert to nothing else; ratios of mass, of amount and of volume
do not convert into one another though all are numbers; practical salinity (psu) is itself, and 1e-3 by its older label.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.errors import DatasetError

if TYPE_CHECKING:
    import pint

BARE = frozenset({"", "~", "-", "?", "none", "unknown", "undefined", "unspecified", "n/a", "na", "nan", "missing", "null"})
"""Labels that say nothing: as if there were none."""
_ONE = frozenset(
    {"1", "1.0", "(0 - 1)", "(0-1)", "0-1", "0 - 1", "[0-1]", "[0, 1]", "fraction", "proportion", "dimensionless", "unitless"}
    | {"nondimensional", "non-dimensional", "no units", "no unit", "none (fraction)", "unity", "ratio", "count", "numeric", "number"}
)

_DEFINED = (
    "calendar_month = [calendar_month]",
    "calendar_year = [calendar_year]",
    "okta = 0.125",
    "permille = 0.001",
    "psu = [practical_salinity] = PSU",
    "ppb = 1e-9",
    "ppt = 1e-12",
    "dobson = 4.4615e-4 * mole / meter ** 2 = DU",
    "sverdrup = 1e6 * meter ** 3 / second",
    "pvu = 1e-6 * kelvin * meter ** 2 / kilogram / second = PVU",
    "langley = 41840 * joule / meter ** 2",
)
_PHRASES = {
    **dict.fromkeys(("degrees c", "degree c", "deg c", "degreesc", "degreec", "deg_c", "degree_c", "degrees_c", "°c", "ºc"), "degC"),
    **dict.fromkeys(("degrees celsius", "degree celsius", "degrees_celsius", "deg celsius", "celsius", "centigrade", "c"), "degC"),
    **dict.fromkeys(("degrees centigrade", "degree centigrade", "degree_centigrade", "celcius", "degc"), "degC"),
    **dict.fromkeys(("degrees f", "degree f", "deg f", "degreesf", "degreef", "deg_f", "degree_f", "degrees_f", "°f", "ºf", "f"), "degF"),
    **dict.fromkeys(("degrees fahrenheit", "degree fahrenheit", "degrees_fahrenheit", "fahrenheit", "degf"), "degF"),
    **dict.fromkeys(("degrees kelvin", "degree kelvin", "degrees_kelvin", "deg k", "degk", "deg_k", "degrees k", "°k", "k"), "kelvin"),
    **dict.fromkeys(("gpm", "geopotential meter", "geopotential meters", "geopotential metre", "geopotential metres", "gp m"), "meter"),
    **dict.fromkeys(("gpdm", "gpdam", "geopotential decameter", "geopotential decametre", "gp dam"), "decameter"),
    **dict.fromkeys(("m of water equivalent", "m of water", "m water equivalent", "m w.e.", "m we", "m lwe"), "meter"),
    **dict.fromkeys(("mm of water equivalent", "mm of water", "mm water equivalent", "mm w.e.", "mm we", "mm swe", "mm lwe"), "millimeter"),
    **dict.fromkeys(("dobson units", "dobson unit", "dobsons", "dobson", "du"), "dobson"),
    **dict.fromkeys(("degree true", "degrees true", "deg true", "degrees clockwise from north", "compass degrees"), "degree"),
    **dict.fromkeys(("degrees_north", "degree_north", "degrees_east", "degree_east", "degrees_n", "degrees_e", "deg"), "degree"),
    **dict.fromkeys(("per cent", "percent", "percentage", "pct", "%rh", "% rh", "(0 - 100)", "0-100"), "percent"),
    **dict.fromkeys(("eighths", "eighth", "okta", "oktas", "octas", "octa"), "okta"),
    **dict.fromkeys(("pss-78", "pss", "practical salinity units", "practical salinity unit", "psu"), "psu"),
    **dict.fromkeys(("per mille", "per mil", "permil", "‰", "o/oo"), "permille"),
}  # fmt: skip
"""Whole labels, in lower case and without double spaces."""
_NAMES = {
    **dict.fromkeys(("mb", "mbs", "mbar", "mbars", "Mb", "MB"), "millibar"),
    **dict.fromkeys(("hpa", "HPA", "HPa", "Hpa", "hPA"), "hectopascal"),
    **dict.fromkeys(("pa", "PA"), "pascal"),
    **dict.fromkeys(("kt", "kts", "KT", "kn", "Kt"), "knot"),
    **dict.fromkeys(("kmh", "kmph", "kph"), "kilometer_per_hour"),
    **dict.fromkeys(("C", "degC", "Celsius", "celsius", "degree_Celsius", "degrees_Celsius", "degree_C", "degrees_C"), "degree_Celsius"),
    **dict.fromkeys(("F", "degF", "Fahrenheit", "fahrenheit", "degree_F"), "degree_Fahrenheit"),
    **dict.fromkeys(("K", "k", "Kelvin", "kelvin", "kelvins", "degK", "deg_K"), "kelvin"),
    **dict.fromkeys(("gpm", "mgp"), "meter"),
    **dict.fromkeys(("ppmv", "ppmV"), "ppm"),
    **dict.fromkeys(("ppbv", "ppbV", "ppb"), "ppb"),
    **dict.fromkeys(("pptv", "pptV"), "ppt"),
    "%": "percent", "°": "degree", "deg": "degree", "Sv": "sverdrup", "DU": "dobson", "psu": "psu", "PSU": "psu",
    "hr": "hour", "hrs": "hour", "Hr": "hour", "dy": "day", "mn": "minute", "mins": "minute", "sec": "second", "secs": "second",
    "l": "liter", "L": "liter", "microns": "micrometer", "in": "inch", "ly": "langley",
    **dict.fromkeys(("month", "months", "mon", "mons", "mo", "mth", "mths"), "calendar_month"),
    **dict.fromkeys(("year", "years", "yr", "yrs", "annum"), "calendar_year"),
}  # fmt: skip
_EVERYDAY = frozenset({"m2 s-2", "m", "K", "degC", "m s-1", "kg kg-1", "g kg-1", "%", "1", "mm", "Pa", "hPa", "W m-2", "kg m-2"})
"""Known without asking the library, which takes a second to load."""
_SALINITY = "[practical_salinity]"
_LETTERS = frozenset("msgKhdWJNAV")
"""One-letter names that are taken as the library takes them; its others are constants (c, k, e) or clash (t, a, b)."""
_MEANT = {**dict.fromkeys(("degree", "radian", "steradian", "arcminute"), "angle"), **dict.fromkeys(("ppm", "ppb", "ppt"), "[substance]")}
"""What units without dimension are of; parts per million are of amount unless a label says otherwise."""
_LEFT_OUT = re.compile(r"decibels?|bels?|dB|nepers?|octaves?|decades?|centur(y|ies)|millenni(um|a)|.*_year|log|ln")
_EXPONENT = r"(?:\^\{(?P<brace>[-+]?\d{1,2})\}|(?:\*\*|\^)?\(?(?P<exp>[-+]?\d{1,2})\)?(?!\d|\.\d))"
_OPERATOR = r"\*(?!\*)|/|\(|\)|\s+|\.(?=[A-Za-z(])|-(?=[A-Za-z])"
_TOKEN = re.compile(rf"(?P<name>[A-Za-z_\u03bc°%]+){_EXPONENT}?|(?P<op>{_OPERATOR})|(?P<one>1(?![\d.]))")
_NUMBER = re.compile(r"(?P<base>\d+(?:\.\d*)?(?:[eE][-+]?\d{1,2})?)(?:(?:\*\*|\^)(?P<power>-?\d{1,2}))?(?P<rest>(?:\s|\*(?!\*)|/).*)?$")

Affine = tuple[Fraction, Fraction]
"""(scale, offset): what to multiply by, and what to add then."""


@cache
def _registry() -> "pint.UnitRegistry[Any]":
    import pint

    number: Any = Fraction
    registry: Any = pint.UnitRegistry(non_int_type=number, on_redefinition="ignore", cache_folder=None)
    for line in _DEFINED:
        registry.define(line)
    return registry


def _plain(label: object) -> str:
    """One line without superscripts, typographic dots and minus signs."""
    text = unicodedata.normalize("NFKC", str(label))
    return " ".join(text.replace("−", "-").replace("–", "-").replace("·", " ").replace("⋅", " ").replace("×", "*").split())


def is_bare(label: object | None) -> bool:
    """Whether a units attribute says nothing: none, empty, `unknown`."""
    return label is None or _plain(label).lower() in BARE


def is_one(label: object | None) -> bool:
    """Whether a label is that of a plain number: `1`, `(0 - 1)`, `fraction`."""
    return label is not None and _plain(label).lower() in _ONE


@cache
def _named(name: str) -> str | None:
    """The library's name of one unit; None if there is none, or none that the field means."""
    import pint

    registry = _registry()
    for spelling in dict.fromkeys((name, name.lower() if len(name) > 2 else name)):
        if spelling in _NAMES:
            return _NAMES[spelling]
        if len(spelling) == 1 and spelling not in _LETTERS:
            continue
        phrase = _PHRASES.get(spelling.lower())
        if phrase is not None and len(spelling) > 1:
            return phrase
        if _LEFT_OUT.fullmatch(spelling):
            continue
        try:
            full = str(registry.get_name(spelling))
        except (pint.PintError, AttributeError, ValueError, KeyError):
            continue
        if full:
            return full
    return None


@cache
def _parsed(text: str) -> "tuple[Fraction, Any, frozenset[str]] | None":
    """(number in front, the library's unit, dimensions that stand in it); None where a label is no unit."""
    found = _read(text)
    return _read(text.lower()) if found is None and text.isupper() else found  # "M S-1" of older tools


def _read(text: str) -> "tuple[Fraction, Any, frozenset[str]] | None":
    import pint

    if len(text) > 60:
        return None
    number, rest = Fraction(1), _PHRASES.get(text.lower(), text)
    if text.lower() in _ONE:
        return number, _registry().dimensionless, frozenset()
    if (found := _NUMBER.match(rest)) is not None:
        number = Fraction(found["base"]) ** int(found["power"] or 1) if Fraction(found["base"]) else Fraction(0)
        rest = (found["rest"] or "").strip().removeprefix("*").strip()
        rest = f"1{rest}" if rest.startswith("/") else rest or "1"
    if number == 0:
        return None
    written = _written(rest)
    if written is None:
        return None
    expression, names = written
    try:
        unit = _registry().parse_units(expression)
        stands = frozenset(str(d) for name in names for d in _registry().get_dimensionality(name))
    except (pint.PintError, ValueError, TypeError, AttributeError, ZeroDivisionError, KeyError, TokenError):
        return None  # what the library raises on text that is no unit
    return number, unit, stands | frozenset(_MEANT[name] for name in names if name in _MEANT)


def _written(text: str) -> tuple[str, list[str]] | None:
    """A label as the library writes it, and the units that stand in it; None where a part of it is no unit."""
    parts, names, place = [], [], 0
    text = re.sub(r"\s*(/|\*\*|\^|\*(?!\*))\s*", r"\1", re.sub(r"\bper\b", "/", text.strip()))
    text = re.sub(r"\s+(?=\))|(?<=\()\s+", "", text)
    while place < len(text):
        token = _TOKEN.match(text, place)
        if token is None:
            return None
        place = token.end()
        if token["name"]:
            name = _named(token["name"])
            if name is None:
                return None
            names.append(name)
            power = token["brace"] or token["exp"]
            if power and int(power) == 0:
                return None
            parts.append(f"{name}**({power})" if power else name)
        elif token["one"]:
            parts.append("dimensionless")
        else:
            operator = token["op"].strip()
            parts.append(operator if operator in ("/", "(", ")") else "*")
    expression = "".join(parts)
    whole = expression.count("(") == expression.count(")") and not re.search(
        r"^[*/]|[*/(]$|[*/(][*/)](?!\()|\*\*\*", expression.replace("**(", "^(")
    )
    return (expression, names) if whole and parts else None


def known(label: object) -> bool:
    """Whether a label is a unit at all."""
    text = _plain(label)
    return text in _EVERYDAY or _parsed(text) is not None


def affine(source: object, target: object, *, difference: bool = False) -> Affine | None:
    """How numbers in one unit become numbers in another: (scale, offset), exact; None where they do not convert.

    `difference` leaves offsets out: an anomaly of 1 degC is one of 1 K.
    """
    return _affine(_plain(source), _plain(target), difference)


@cache
def _affine(source: str, target: str, difference: bool) -> Affine | None:
    import pint

    if source == target:
        return Fraction(1), Fraction(0)
    ours, theirs = _parsed(source), _parsed(target)
    if ours is None or theirs is None:
        return None
    (number, unit, stands), (other, goal, others) = ours, theirs
    saline = [_SALINITY in u.dimensionality for u in (unit, goal)]
    if any(saline) and not all(saline):
        share, stood = (other * _size(goal), others) if saline[0] else (number * _size(unit), stands)
        return (Fraction(1), Fraction(0)) if share == Fraction(1, 1000) and not stood else None
    if unit.dimensionality != goal.dimensionality or not _same_ratio(unit, stands, others):
        return None
    quantity = _registry().Quantity
    try:
        zero = Fraction(quantity(Fraction(0), unit).to(goal).magnitude)
        one = Fraction(quantity(Fraction(1), unit).to(goal).magnitude)
    except (pint.PintError, ValueError, TypeError):
        return None
    if zero and (number != 1 or other != 1):
        return None  # a scaled scale with an offset means nothing
    return (one - zero) * number / other, Fraction(0) if difference else zero / other


def _size(unit: Any) -> Fraction:
    """What a unit without dimension stands for: a percent is 1/100; 0 for all others."""
    return Fraction(_registry().Quantity(Fraction(1), unit).to("dimensionless").magnitude) if unit.dimensionless else Fraction(0)


def _same_ratio(unit: Any, stands: frozenset[str], others: frozenset[str]) -> bool:
    """Two plain numbers are of one kind: of mass, of amount, of volume, of angle; or one of them says no kind."""
    if not unit.dimensionless:
        return True
    if ("angle" in stands) != ("angle" in others):
        return False
    return not stands or not others or stands == others


def convert(values: NDArray, how: Affine) -> NDArray:
    """Values in the other unit, computed in float64 and given back in their own type."""
    scale, offset = float(how[0]), float(how[1])
    found = np.asarray(values, np.float64) * scale + offset
    return found.astype(values.dtype) if np.issubdtype(values.dtype, np.floating) else found


def converter(how: Affine) -> Callable[[NDArray], NDArray]:
    """`convert` with its factors set."""
    return lambda values: convert(values, how)


def in_words(how: Affine) -> str:
    """What a conversion does: `divided by 1000`, `273.15 added`; "" where it does nothing."""
    scale, offset = how
    words = []
    if scale != 1:
        inverse = 1 / scale
        exact = inverse.denominator == 1 and scale < 1
        words.append(f"divided by {inverse.numerator}" if exact else f"multiplied by {float(scale):.10g}")
    if offset:
        words.append(f"{abs(float(offset)):.10g} {'added' if offset > 0 else 'subtracted'}")
    return ", ".join(words)


def hours_of(numbers: ArrayLike, units: object | None) -> NDArray[np.float64]:
    """Lengths of time in hours; without units they are taken as hours, which the caller says (`is_bare`).

    Raises DatasetError for units that are no length of time, and for months and years, whose length is not fixed.
    """
    values = np.asarray(numbers, np.float64)
    if is_bare(units) or is_one(units):
        return values
    how = affine(units, "hour")
    if how is None:
        found = _parsed(_plain(units))
        loose = found is not None and any("calendar" in str(d) for d in found[1].dimensionality)
        raise DatasetError(
            "lead time",
            found=f"units {str(units)!r}" + (", which have no fixed length" if loose else ""),
            expected="seconds, minutes, hours, days or weeks",
            remedy='Write the lead time in hours into the file, with the attribute units = "hours".',
        )
    return values * float(how[0])
