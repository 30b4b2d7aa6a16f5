"""The values of a variable's GRIB messages, decoded when they are asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from engine.data._grib_names import Message


class _Fields(BackendArray):
    """`(…, latitude, longitude)` float32; `table` says which message lies where, −1 for none (missing)."""

    def __init__(self, file: Path, messages: Sequence[Message], table: np.ndarray, grid: Mapping[str, Any]) -> None:
        self.file, self.table = file, table
        self.places = [(m["offset"], m["part"], m["parts"], *m["scanning"]) for m in messages]
        self.field = (len(grid["latitude"]), len(grid["longitude"]))
        self.shape, self.dtype = (*table.shape, *self.field), np.dtype(np.float32)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        from engine.data._grib_process import read_fields

        outer, inner = key[: self.table.ndim], key[self.table.ndim :]
        wanted = np.asarray(self.table[outer])
        flat = wanted.ravel()
        result = np.full((flat.size, *self.field), np.nan, np.float32)
        if (there := np.flatnonzero(flat >= 0)).size:
            result[there] = read_fields(self.file, [self.places[i] for i in flat[there]], self.field)
        return result.reshape(*wanted.shape, *self.field)[(..., *inner)]


def lazy_field(file: Path, messages: Sequence[Message], table: np.ndarray, grid: Mapping[str, Any]) -> Any:
    """A lazily indexed array for an xarray Variable."""
    return indexing.LazilyIndexedArray(_Fields(file, messages, table, grid))
