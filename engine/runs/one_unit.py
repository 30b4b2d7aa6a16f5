"""Two sides of a score in one unit: by their labels, checked by their values, never guessed from them.

Fields of the engine's reader say beside their `units` what the file had (`file_units`), whether they are differences
(`difference`) and whether values unusual for the quantity were kept (`as_labelled`); arrays from elsewhere have `units` alone.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import lexicon, units
from engine.errors import ScoreError
from engine.runs.align import Say

if TYPE_CHECKING:
    import xarray as xr

_POINTS = 20_000
_COLDEST = 100.0
"""Kelvin: below this a field is no temperature of air, sea or land but an anomaly."""
_WATER = re.compile(
    r"precip|rain|snow|hail|drizzle|evapo|runoff|water.equivalent|\blwe\b|\bswe\b|sublimation|\b(tp|pr|cp|lsp|sf|ro|apcp|prsn|prc|mtpr|tprate|snr)\b"
)
_THICK = re.compile(r"depth(?!.*water)|thickness")
_REMEDY = "Convert one of the files, or correct its units attribute (ncatted -a units,NAME,o,c,UNIT FILE)."


def in_one_unit(
    forecast: "xr.DataArray", observed: "xr.DataArray", say: Say, other: str = "observed"
) -> "tuple[xr.DataArray, xr.DataArray]":
    """Both sides in the forecast's units; what was converted or assumed goes to `say`.

    A missing label is taken on trust and said. Raises ScoreError where units do not convert, where one side holds
    differences and the other does not, or where the values say that a label is wrong; and where the two are of different heights.
    """
    _same_height(forecast, observed, other)
    ours, theirs = (f.attrs.get("units") for f in (forecast, observed))
    bare = [units.is_bare(label) for label in (ours, theirs)]
    if any(bare):
        if not all(bare):
            say(f"{other if bare[1] else 'forecast'} without units: taken as {ours if bare[1] else theirs}, as the other side")
        return forecast, observed
    ours, theirs = str(ours).strip(), str(theirs).strip()
    forecast, observed, difference = _same_kind(forecast, observed, say, other)
    how = _conversion(forecast, observed, theirs, ours, difference)
    if how is None:
        unknown = [label for label in (ours, theirs) if not units.known(label)]
        raise ScoreError(
            "units",
            found=f"forecast in {ours!r}, {other} in {theirs!r}" + (f"; {unknown[0]!r} is no unit that is known here" if unknown else ""),
            expected="one unit, or two that convert into one another",
            remedy=_REMEDY,
        )
    words, step = how
    if words:
        converted = observed.copy(deep=False, data=_apply(observed, step)).assign_attrs(units=ours)
        _refuse_label_against_values(forecast, observed, converted, (ours, theirs), other)
        say(f"{other}: {theirs} to {ours}, {words}")
        return forecast, converted
    _say_far(forecast, observed, say, other)
    return forecast, observed if ours == theirs else observed.assign_attrs(units=ours)


def _conversion(forecast: "xr.DataArray", observed: "xr.DataArray", source: str, target: str, difference: bool) -> Any:
    """What takes one label to the other: units of one dimension, g0 for geopotential, and 1 kg m-2 of water as 1 mm."""
    if source == target:
        return "", lambda a: a
    names = [str(f.name or "") for f in (forecast, observed)]
    known = [lexicon.identify(name) for name in names]
    gravity = any(k is not None and k[0].stem in ("geopotential", "geopotential_height") for k in known)
    found = lexicon.conversion(source, target, difference=difference, gravity=gravity)
    if found is not None or not (_water(forecast) or _water(observed)):
        return found
    for mass, depth in (("kg m-2", "mm"), ("kg m-2 s-1", "mm s-1")):
        for here, there in ((mass, depth), (depth, mass)):
            first, last = units.affine(source, here), units.affine(there, target)
            if first is not None and last is not None:
                how = (first[0] * last[0], first[1])
                words = units.in_words(how)
                return f"1 kg m-2 of water taken as 1 mm{', ' if words else ''}{words}", units.converter(how)
    return None


def _water(field: "xr.DataArray") -> bool:
    """Whether a field is an amount of water, whose mass on an area is a depth of liquid water."""
    text = " ".join(str(v) for v in (field.name, field.attrs.get("standard_name", ""), field.attrs.get("file_label", "")))
    text = text.lower().replace("_", " ")
    return bool(_WATER.search(text)) and not _THICK.search(text)


def _apply(field: "xr.DataArray", step: Any) -> Any:
    data = field.data
    return data.map_blocks(step, dtype=data.dtype) if hasattr(data, "map_blocks") else step(np.asarray(data))


def _same_height(forecast: "xr.DataArray", observed: "xr.DataArray", other: str) -> None:
    """Fields at two different heights are two variables, whatever they are called."""
    places = [(f.attrs.get("height"), f.attrs.get("height_units")) for f in (forecast, observed)]
    if any(value is None for value, _ in places):
        return
    metres = [float(value) * float((units.affine(label, "m") or (1, 0))[0]) for value, label in places if value is not None]
    if abs(metres[0] - metres[1]) > 1e-3 * max(1.0, abs(metres[0])):
        raise ScoreError(
            "height",
            found=f"forecast at {places[0][0]:g} {places[0][1]}, {other} at {places[1][0]:g} {places[1][1]}",
            expected="one height",
            remedy="Choose fields of the same height or depth.",
        )


def _typical(field: "xr.DataArray") -> np.ndarray:
    """Some values of a field: the first member and the middle of each other axis but the places, thinned."""
    space = [d for d in field.dims if str(d).lower() in ("latitude", "lat", "longitude", "lon", "long")]
    part = field.isel({d: field.sizes[d] // 2 for d in field.dims if d not in space}) if space else field
    if space:
        stride = max(1, int(np.sqrt(part.size / _POINTS)))
        part = part.isel({d: slice(None, None, stride) for d in part.dims})
    values = np.asarray(part.values, np.float64).reshape(-1)[: 50 * _POINTS]
    return values[np.isfinite(values) & (np.abs(values) < 1e15)]


@dataclass(frozen=True)
class _Side:
    """A side's typical values in kelvin, as they stand and without the offset that its reader added, and that offset."""

    label: str
    values: np.ndarray
    without: np.ndarray
    added: float
    difference: bool


def _side(field: "xr.DataArray") -> _Side:
    label, source = str(field.attrs["units"]), str(field.attrs.get("file_units", field.attrs["units"]))
    scale, offset = units.affine(label, "K") or (1, 0)
    flagged = bool(field.attrs.get("difference"))
    added = 0.0 if flagged else float((units.affine(source, label) or (1, 0))[1])
    typical = _typical(field)
    values = typical * float(scale) + (0.0 if flagged else float(offset))
    impossible = typical.size > 0 and bool(np.median(values) < _COLDEST)
    return _Side(source, values, (typical - added) * float(scale), added, flagged or impossible)


def _same_kind(forecast: "xr.DataArray", observed: "xr.DataArray", say: Say, other: str) -> "tuple[xr.DataArray, xr.DataArray, bool]":
    """Temperatures against temperatures, anomalies against anomalies; and which of the two (True: differences).

    A side is of anomalies where it says so, or where it would be colder than anything is. Beside it, the other is taken for
    anomalies where, without the offset of its label, it looks alike; the offset that its reader added is taken back, and that is said.
    """
    if any(units.affine(f.attrs["units"], "K") is None for f in (forecast, observed)):
        return forecast, observed, False
    sides = [_side(forecast), _side(observed)]
    flags = [side.difference for side in sides]
    if flags[0] == flags[1] or any(side.values.size == 0 for side in sides):
        return forecast, observed, all(flags)
    at = flags.index(False)
    names = ("forecast", other)
    plain, single = sides[at], sides[1 - at]
    spreads = sorted(float(np.std(v)) for v in (plain.without, single.without))
    near = abs(float(np.median(plain.without) - np.median(single.without))) <= 0.5 * max(spreads)
    if not (near and spreads[1] <= 3 * spreads[0]):
        raise ScoreError(
            "units",
            found=f"{names[1 - at]} of anomalies (near {np.median(single.without):.4g} K), {names[at]} of temperatures (near "
            f"{np.median(plain.values):.5g} K)",
            expected="anomalies on both sides, or temperatures on both",
            remedy="Bring both in the same form; anomalies in degC need 'anomaly' in their name or long_name.",
        )
    say(f"{names[at]}: values in {plain.label} taken as anomalies, as those of the {names[1 - at]}: no offset is added")
    field = (forecast, observed)[at]
    if plain.added:
        shift = plain.added
        field = field.copy(deep=False, data=_apply(field, lambda a: (a.astype(np.float64) - shift).astype(a.dtype)))
    field = field.assign_attrs(difference=1, as_labelled=1)
    forecast, observed = (field, observed) if at == 0 else (forecast, field)
    return forecast, observed, True


def _refuse_label_against_values(
    forecast: "xr.DataArray", observed: "xr.DataArray", converted: "xr.DataArray", labels: tuple[str, str], other: str
) -> None:
    """Refuse where the two agree as they stand and are far apart after the conversion that their labels ask for."""
    sides = [_typical(f) for f in (forecast, observed, converted)]
    if any(s.size == 0 for s in sides):
        return
    if _distance(sides[0], sides[1]) < 0.5 and _distance(sides[0], sides[2]) > 4:
        sizes = [f"{np.percentile(np.abs(s), 90):.4g}" for s in sides[:2]]
        raise ScoreError(
            "units",
            found=f"forecast in {labels[0]!r} (90 % below {sizes[0]}) and {other} in {labels[1]!r} (90 % below {sizes[1]}): "
            "the same numbers under two labels, so that one label is wrong",
            expected="labels that fit the values",
            remedy="Correct the units attribute of the file that is wrong (ncatted -a units,NAME,o,c,UNIT FILE).",
        )


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """How far apart two sets of numbers are: of their medians in spreads, or of their sizes in powers of two; the larger."""
    spread = np.std(a) + np.std(b) + 1e-12 * (np.abs(a).max() + np.abs(b).max()) + 1e-300
    sizes = [float(np.percentile(np.abs(s), 90)) for s in (a, b)]
    ratio = abs(np.log2(sizes[0] / sizes[1])) * 2 if min(sizes) > 0 else 0.0
    return max(float(abs(np.median(a) - np.median(b)) / spread), ratio)


def _say_far(forecast: "xr.DataArray", observed: "xr.DataArray", say: Say, other: str) -> None:
    """A word where numbers of one label differ by a factor that no forecast has."""
    sides = [_typical(f) for f in (forecast, observed)]
    if any(s.size == 0 for s in sides):
        return
    sizes = [float(np.percentile(np.abs(s), 99)) for s in sides]
    if min(sizes) > 0 and max(sizes) / min(sizes) > 30:
        say(f"values differ in size: 99 % of the forecast below {sizes[0]:.4g}, of the {other} below {sizes[1]:.4g}; check their units")
