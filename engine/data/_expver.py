"""ERA5 beside ERA5T: the Climate Data Store's dimension `expver` (1 final, 5 preliminary), each missing where the other is."""

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

_LOOKS = 6
"""Rows and columns at which versions are compared before they are merged."""


def merge_versions(data: "xr.Dataset", what: str, changes: list[str]) -> "xr.Dataset":
    """The dataset without `expver`: at each time the version that is there.

    Raises DatasetError where two versions hold values at one time: which of them is meant cannot be told.
    """
    dim = next((str(d) for d in data.dims if str(d).lower() == "expver"), None)
    if dim is None:
        return data
    labels = [str(v) for v in data[dim].values] if dim in data.coords else [str(i) for i in range(data.sizes[dim])]
    merged: dict[Any, Any] = {}
    for name, field in data.data_vars.items():
        if dim not in field.dims:
            continue
        first = field.isel({dim: 0}, drop=True)
        if field.sizes[dim] > 1:
            _complementary(field, dim, labels, f"{what}: {name}")
            first = first.chunk({d: -1 if d in field.dims[-2:] else 1 for d in first.dims})
            for i in range(1, field.sizes[dim]):
                first = first.fillna(field.isel({dim: i}, drop=True).chunk(first.chunksizes))
        merged[name] = first.assign_attrs(field.attrs)
    changes.append(f"expver {', '.join(labels)} merged: each holds values where the others are missing")
    return data.drop_vars([n for n in data.variables if dim in data[n].dims]).assign(merged)


def _complementary(field: "xr.DataArray", dim: str, labels: list[str], what: str) -> None:
    thin = {d: np.unique(np.linspace(0, field.sizes[d] - 1, min(_LOOKS, field.sizes[d])).astype(int)) for d in field.dims[-2:]}
    there = field.isel(thin).notnull().values
    both = there.sum(axis=field.dims.index(dim)) > 1
    if both.any():
        raise DatasetError(
            what,
            found=f"expver {', '.join(labels)}, {int(both.sum())} of {both.size} values that were looked at in more than one of them",
            expected="at each time values of one version, the others missing",
            remedy="Keep one version in the file: select along its dimension expver (1 is final, 5 preliminary).",
        )
