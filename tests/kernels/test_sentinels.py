"""What stands for nothing, and what is a value like any other."""

import numpy as np
import pytest

from engine.kernels.sentinels import Tally, classic, held

RNG = np.random.default_rng(0)
RAIN = RNG.gamma(0.5, 8, 4000).astype(np.float32)
KELVIN = RNG.normal(285, 8, 4000).astype(np.float32)
PRESSURE = RNG.uniform(950, 1040, 4000).astype(np.float32).round(0)


def judged(*sides, pieces=4, **options):
    tallies = [Tally(**options) for _ in sides]
    for tally, values in zip(tallies, sides, strict=True):
        for i, piece in enumerate(np.array_split(values, pieces)):
            tally.add(piece, i)
    return [(i, v, s.count) for i, v, s in held(tallies)]


def spoiled(values, value, count, at=700):
    found = values.copy()
    found[at : at + count] = value
    return found


@pytest.mark.parametrize("pieces", [1, 4, 50])
@pytest.mark.parametrize(
    "value", [-999, -9999, -99, -999.9, 9.96921e36, 1e20, -32767, 32767, -32768, 1e30, 3.4028235e38, 99999, np.inf, -np.inf]
)
@pytest.mark.parametrize("field", [RAIN, KELVIN], ids=["rain", "kelvin"])
def test_stand_ins_are_found(field, value, pieces):
    found = judged(KELVIN if field is KELVIN else RAIN, spoiled(field, value, 6), pieces=pieces)
    assert [(i, c) for i, _, c in found] == [(1, 6)]
    assert found[0][1] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("value", [-20000.5, 123456, 7e8])
def test_any_number_that_repeats_far_from_the_rest_is_found(value):
    assert judged(spoiled(KELVIN, value, 5), pieces=1) == [(0, value, 5)]


@pytest.mark.parametrize("value", [-1, -9, -5])
def test_the_only_negative_number_among_others_that_are_none_is_found(value):
    assert judged(spoiled(RAIN, value, 6), pieces=1) == [(0, value, 6)]
    whole = spoiled(RAIN.round(0), value, 6)  # degrees rounded to whole ones may well be −1
    signed = spoiled(RAIN - np.float32(0.3), value, 6)  # and so may a field that is negative elsewhere
    assert judged(whole, pieces=1) == judged(signed, pieces=1) == []


@pytest.mark.parametrize("value", [-999, -9999, 9.96921e36, 1e20])
def test_one_alone_is_enough(value):
    assert len(judged(spoiled(KELVIN, value, 1))) == 1


@pytest.mark.parametrize(
    "field",
    [
        RAIN, np.where(RNG.random(4000) < 0.6, 0, RAIN), KELVIN, PRESSURE, spoiled(PRESSURE, 999, 30),
        np.zeros(40), np.full(40, 5.0), np.full(9, np.nan), spoiled(RAIN, 350.5, 1), np.exp(RNG.normal(0, 4, 4000)),
        RNG.uniform(0, 100, 4000).round(0), spoiled(RNG.uniform(0, 100, 4000).round(0), 99, 40),
        RNG.uniform(-2000, 2000, 4000).round(-1) - 9, spoiled(RNG.uniform(0, 12000, 4000), 9999, 5),
        np.where(RNG.random(4000) < 0.5, 0, RNG.uniform(9e4, 1e5, 4000)),
        RNG.integers(0, 256, 4000).astype(float), RNG.integers(-128, 128, 4000).astype(float),
    ],
)  # fmt: skip
def test_honest_values_are_none(field):
    assert judged(field) == []
    assert judged(field.astype(np.float32), pieces=1) == []


def test_a_member_that_holds_nothing_else_is_found_beside_the_others():
    assert judged(np.full(500, -9999.0, np.float32), RAIN) == [(0, -9999.0, 500)]
    assert judged(np.full(500, -9999.0, np.float32)) == [(0, -9999.0, 500)]


def test_a_stand_in_is_known_by_its_number_in_the_file():
    kelvin = spoiled(KELVIN, np.float32(-99 + 273.15), 4)
    assert judged(kelvin, pieces=1) == []
    assert len(judged(kelvin, pieces=1, back=lambda v: v - 273.15)) == 1


def test_the_first_place_is_told():
    tally = Tally()
    tally.add(KELVIN[:100].reshape(10, 10), 0)
    tally.add(spoiled(KELVIN[:100], -9999, 2, at=37).reshape(10, 10), 3)
    ((_, _, suspect),) = held([tally])
    assert (suspect.piece, suspect.position, suspect.count) == (3, 37, 2)


def test_classic_in_single_precision():
    assert classic(float(np.float32(9.969209968386869e36)))
    assert classic(float(np.float32(-999.9)))
    assert not classic(0.0)
    assert not classic(-1.0)
