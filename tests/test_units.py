"""Spellings of units as files have them, and what converts into what."""

import numpy as np
import pytest

from engine import units
from engine.errors import DatasetError

CONVERT = {
    ("knots", "m s-1"): (1852 / 3600, 0), ("kt", "m/s"): (1852 / 3600, 0), ("km h-1", "m s**-1"): (1 / 3.6, 0),
    ("mph", "m s-1"): (0.44704, 0),
    ("meters per second", "m s-1"): (1, 0), ("m·s⁻¹", "m s-1"): (1, 0), ("M S-1", "m s-1"): (1, 0), ("m s^{-1}", "m s-1"): (1, 0),
    ("degF", "K"): (5 / 9, 459.67 * 5 / 9), ("degrees C", "K"): (1, 273.15), ("deg_C", "K"): (1, 273.15),
    ("Kelvin", "degC"): (1, -273.15),
    ("°C", "K"): (1, 273.15), ("degC/day", "K h-1"): (1 / 24, 0), ("g/kg", "kg kg-1"): (1e-3, 0), ("g kg**-1", "1"): (1e-3, 0),
    ("mm day-1", "mm h-1"): (1 / 24, 0), ("kg m-2 s-1", "kg/(m2 day)"): (86400, 0), ("kg.m-2.s-1", "kg m**-2 s**-1"): (1, 0),
    ("W m**-2", "W/m^2"): (1, 0), ("J m**-2", "MJ m-2"): (1e-6, 0), ("%", "(0 - 1)"): (0.01, 0), ("oktas", "%"): (12.5, 0),
    ("dam", "m"): (10, 0), ("gpm", "m"): (1, 0), ("gpdm", "m"): (10, 0), ("hPa", "Pa"): (100, 0), ("millibars", "hPa"): (1, 0),
    ("mb", "Pa"): (100, 0),
    ("m2 s-2", "m^2/s^2"): (1, 0), ("m**2 s**-2", "J kg-1"): (1, 0), ("psu", "1e-3"): (1, 0), ("psu", "0.001"): (1, 0),
    ("Dobson", "DU"): (1, 0),
    ("m of water equivalent", "mm"): (1000, 0), ("µg m-3", "kg m-3"): (1e-9, 0), ("1e-3 kg m-2", "g m-2"): (1, 0),
    ("PVU", "K m2 kg-1 s-1"): (1e-6, 0),
    ("weeks", "hour"): (168, 0), ("degree", "radian"): (np.pi / 180, 0), ("Pa s**-1", "hPa/hr"): (36, 0), ("1/s", "s-1"): (1, 0),
    ("ppmv", "mol mol-1"): (1e-6, 0),
}  # fmt: skip
APART = [
    ("J m-2", "W m-2"), ("mm month-1", "mm day-1"), ("psu", "1"), ("psu", "g kg-1"), ("ppmv", "kg kg-1"), ("m3 m-3", "kg kg-1"),
    ("degree", "1"),
    ("m", "m2 s-2"), ("mm", "kg m-2"), ("K", "m s-1"), ("year", "day"), ("dBZ", "dB"), ("mb", "m-2"),
]  # fmt: skip
NO_UNITS = ["foo", "u", "e", "log(Pa)", "9**9**9**9", "code table (4.201)", "K since yesterday"]
NO_UNITS += ["m**", "/", "(m", "dBZ", "x" * 200, "0", "__import__"]


@pytest.mark.parametrize(("labels", "how"), CONVERT.items(), ids=lambda v: " to ".join(map(str, v)))
def test_spellings_convert(labels, how) -> None:
    found = units.affine(*labels)
    assert found is not None
    assert [float(v) for v in found] == pytest.approx(how, rel=1e-12)


@pytest.mark.parametrize("labels", APART, ids=" and ".join)
def test_what_is_not_the_same_quantity_does_not_convert(labels) -> None:
    assert units.affine(*labels) is None


@pytest.mark.parametrize("label", NO_UNITS)
def test_what_is_no_unit_is_not_taken_for_one(label) -> None:
    assert not units.known(label)


def test_a_difference_has_no_offset() -> None:
    assert units.affine("degF", "K", difference=True) == units.affine("degF day-1", "K day-1")
    assert units.affine("degC", "K", difference=True) == (1, 0)


def test_numbers_are_converted_in_double_precision_and_keep_their_type() -> None:
    values = np.float32([-40, 14, 212])
    how = units.affine("degF", "K")
    assert how is not None
    found = units.convert(values, how)
    assert found.dtype == np.float32
    assert found.tolist() == np.float32((values.astype(np.float64) + 459.67) * 5 / 9).tolist()
    assert units.in_words(how) == "multiplied by 0.5555555556, 255.3722222 added"
    assert units.in_words((how[0] * 0 + 1, how[1] * 0)) == ""


@pytest.mark.parametrize(
    ("number", "label", "hours"),
    [(1, "weeks", 168), (90, "minutes", 1.5), (2, "days", 48), (6, "h", 6), (6, "hrs", 6), (1, "D", 24), (7200, "s", 2), (6, None, 6),
    (6, "1", 6), (6, "", 6)],
)  # fmt: skip
def test_lengths_of_time_in_hours(number, label, hours) -> None:
    assert units.hours_of([number], label).tolist() == pytest.approx([hours])


@pytest.mark.parametrize("label", ["months", "month", "mon", "years", "yr", "K", "fortnight of rain", "M"])
def test_a_length_of_time_that_is_none_is_refused(label) -> None:
    with pytest.raises(DatasetError, match="hours, days or weeks") as refusal:
        units.hours_of([1], label)
    assert ("no fixed length" in refusal.value.found) == (label in ("months", "month", "mon", "years", "yr"))
