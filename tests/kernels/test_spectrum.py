"""Zonal spectra against pure waves, Parseval and numpy's own periodogram."""

import numpy as np
import pytest
from scipy.signal import periodogram

from engine.errors import ScoreError
from engine.kernels.area import cell_area
from engine.kernels.spectrum import MIDLATITUDES, zonal_spectrum

LATITUDE = np.linspace(87, -87, 30)


@pytest.mark.parametrize("n", [63, 64])
def test_a_pure_wave_has_half_its_squared_amplitude_at_its_wavenumber(n):
    longitude = 2 * np.pi * np.arange(n) / n
    field = 4.0 + 3.0 * np.cos(7 * longitude + 0.4) * np.ones((30, 1))
    power = zonal_spectrum(field, LATITUDE)
    assert power.shape == (n // 2 + 1,)
    expected = np.zeros(n // 2 + 1)
    expected[0], expected[7] = 16.0, 4.5
    np.testing.assert_allclose(power, expected, atol=1e-12)


def test_the_shortest_wave_of_an_even_grid_counts_once():
    np.testing.assert_allclose(zonal_spectrum(np.tile([2.0, -2.0], (30, 8)), LATITUDE)[-1], 4.0)


@pytest.mark.parametrize("n", [63, 64])
@pytest.mark.parametrize("band", [None, MIDLATITUDES])
def test_parseval(n, band):
    field = np.random.default_rng(n).standard_normal((2, 3, 30, n))
    weight = cell_area(LATITUDE)
    if band is not None:
        weight = np.where((np.abs(LATITUDE) >= band[0]) & (np.abs(LATITUDE) <= band[1]), weight, 0)
    mean_square = np.einsum("...r,r->...", (field**2).mean(-1), weight) / weight.sum()
    power = zonal_spectrum(field, LATITUDE, band)
    assert power.shape == (2, 3, n // 2 + 1)
    np.testing.assert_allclose(power.sum(-1), mean_square)


def test_one_row_is_scipys_periodogram():
    row = np.random.default_rng(1).standard_normal((1, 48))
    np.testing.assert_allclose(zonal_spectrum(row, [40.0]), periodogram(row[0], detrend=False, scaling="spectrum")[1])


def test_rows_are_weighted_by_area_and_a_broken_row_is_left_out():
    field = np.stack([np.full(16, 1.0), np.full(16, 3.0)])
    np.testing.assert_allclose(zonal_spectrum(field, [0.0, 60.0])[0], (1 + 0.5 * 9) / 1.5)
    field[1, 3] = np.nan
    np.testing.assert_allclose(zonal_spectrum(field, [0.0, 60.0])[0], 1.0)
    assert np.isnan(zonal_spectrum(np.full((2, 16), np.nan), [0.0, 60.0])).all()


def test_band_takes_both_hemispheres_and_an_empty_one_is_refused():
    field = np.zeros((3, 16))
    field[[0, 2]] = 5.0
    np.testing.assert_allclose(zonal_spectrum(field, [45.0, 0.0, -45.0], (30, 60))[0], 25.0)
    with pytest.raises(ScoreError, match="band of latitudes"):
        zonal_spectrum(field, [1.0, 0.0, -1.0], (30, 60))
    with pytest.raises(ScoreError, match="latitude and longitude last"):
        zonal_spectrum(field, [1.0, 0.0])
