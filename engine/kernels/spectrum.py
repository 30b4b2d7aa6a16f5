"""Zonal power spectra of latitude-longitude fields: how much of a field's variance lies at which wavenumber along the parallels.

Each row of the grid is a periodic series in longitude; its one-sided power spectrum is averaged over latitudes by cell area. Powers
add up to the mean square (Parseval), so that spectra of fields, forecasts and members are compared in the field's unit squared.
A wavenumber is a number of waves round the whole parallel: at 60° it is half as long as at the equator (our choice: no
spherical harmonics, since patches and tokens are laid out in degrees too).
"""

import numpy as np
from numpy.typing import ArrayLike

from engine.errors import ScoreError
from engine.kernels.area import cell_area
from engine.types import Array

MIDLATITUDES = (30.0, 60.0)
"""|latitude| where weather is wavy: the band that is usually shown."""


def zonal_spectrum(field: ArrayLike, latitude: ArrayLike, band: tuple[float, float] | None = None) -> Array:
    """Power at zonal wavenumbers 0 … n//2, `(..., wavenumber)`, in the field's unit squared; the sum is the area-weighted mean square.

    `field` `(..., latitude, longitude)` on n equally spaced longitudes round the globe; `latitude` `(latitude,)` in degrees. `band`
    (low, high) keeps the rows whose |latitude| lies between both ends, on both hemispheres; None: all rows. A row with a missing
    value is left out of its field's mean; NaN where none is whole. Raises ScoreError for another shape or an empty band.
    """
    values, phi = np.asarray(field, dtype=np.float64), np.asarray(latitude, dtype=np.float64)
    if values.ndim < 2 or values.shape[-2] != phi.size or values.shape[-1] < 2:
        raise ScoreError(
            "zonal spectrum",
            found=f"a field of shape {values.shape}",
            expected=f"(..., {phi.size}, longitudes)",
            remedy="Give the field with latitude and longitude last, and the latitude of each row.",
        )
    weight = cell_area(phi)
    if band is not None:
        weight = np.where((np.abs(phi) >= band[0]) & (np.abs(phi) <= band[1]), weight, 0.0)
    if weight.sum() <= 0:
        raise ScoreError(
            "zonal spectrum",
            found=f"no row between {band}",
            expected="at least one row of the grid",
            remedy="Choose another band of latitudes.",
        )
    n = values.shape[-1]
    kept = weight > 0
    power = np.abs(np.fft.rfft(values[..., kept, :], axis=-1) / n) ** 2
    power[..., 1 : (n + 1) // 2] *= 2  # both ±k; wavenumber 0 and, on an even grid, n/2 stand alone
    whole = np.isfinite(power).all(-1)
    weights = weight[kept] * whole
    total = weights.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (
            np.einsum("...r,...rk->...k", weights, np.where(whole[..., None], power, 0.0)) / np.where(total > 0, total, np.nan)[..., None]
        )
