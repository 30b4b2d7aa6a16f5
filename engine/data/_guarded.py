"""Values that are read later than a file is opened: what a library raises on damaged content is a refusal then, too."""

from typing import TYPE_CHECKING, Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from engine.safety import reading

if TYPE_CHECKING:
    import xarray as xr


class _Guarded(BackendArray):
    """A lazily indexed variable, read within `safety.reading`."""

    def __init__(self, variable: "xr.Variable", what: str) -> None:
        self.variable, self.what = variable, what
        self.shape, self.dtype = variable.shape, variable.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        with reading(self.what):
            return np.asarray(self.variable[key].values)


def guarded(data: "xr.Dataset", what: str) -> "xr.Dataset":
    """The dataset with each lazily indexed variable guarded; those in memory and those of dask stay as they are."""
    import xarray as xr

    def lazily(variable: "xr.Variable") -> bool:
        return not isinstance(variable._data, np.ndarray) and not variable.chunks and variable.ndim > 0

    fresh = {
        name: (field.dims, indexing.LazilyIndexedArray(_Guarded(field.variable, f"{what}: {name}")), field.attrs, field.encoding)
        for name, field in data.data_vars.items()
        if lazily(field.variable)
    }
    return data.assign({name: xr.Variable(*parts) for name, parts in fresh.items()}) if fresh else data
