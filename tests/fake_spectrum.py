"""Spectra to go with a synthetic Verification: a power law, a frozen forecast that is too smooth, members that are rough at small ν."""

import numpy as np
import xarray as xr


def with_spectra(verification: xr.Dataset, patch: int = 4) -> xr.Dataset:
    """The Verification with `spectrum_*` and the patch's width."""
    n = verification.sizes["longitude"]
    k = np.arange(n // 2 + 1)
    scale = np.array([900.0, 4.0])[: verification.sizes["variable"]]
    leads = verification.sizes["lead_time"]
    observed = np.broadcast_to(scale[:, None] * (1 + (k / 4.0) ** 2) ** -1.5, (leads, scale.size, k.size)) + 0.0
    frozen = observed * np.exp(-((k / 14.0) ** 2))
    nu = verification["nu"].values.astype(float)[:, None, None, None]
    members = frozen + scale[:, None] * 0.02 / nu * (1 + 3 * np.exp(-(((k - n / patch) / 1.5) ** 2)))
    out = verification.assign_coords(wavenumber=k)
    lead = ("lead_time", "variable", "wavenumber")
    for name, dims, values in (
        ("observed", lead, observed),
        ("deterministic", lead, frozen),
        ("members", ("nu", *lead), members),
        ("members_low", ("nu", *lead), members * 0.8),
        ("members_high", ("nu", *lead), members * 1.3),
    ):
        out[f"spectrum_{name}"] = (dims, values)
    return out.assign_attrs(patch=patch)
