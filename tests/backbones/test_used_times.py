"""Values are judged at every time that is used, not only at the few that opening a file looks at."""

import numpy as np
import pytest
import xarray as xr

from engine.backbones._fields import read_fields
from engine.errors import DatasetError
from engine.types import Dataset


@pytest.mark.parametrize("odd", [16.0, 1e6, np.inf], ids=["celsius", "fill value", "infinite"])
def test_an_implausible_value_at_a_used_time_is_refused_by_place(odd):
    values = np.full((9, 4, 8), 290.0, np.float32)
    values[4, 1, 3] = odd
    coords = {"time": np.arange("2001-01-01", "2001-01-10", dtype="datetime64[D]"), "latitude": [60.0, 20.0, -20.0, -60.0]}
    coords["longitude"] = np.arange(8) * 45.0
    fields = xr.Dataset({"2m_temperature": (("time", "latitude", "longitude"), values, {"units": "K"})}, coords).chunk(time=3)
    dataset = Dataset(fields, {"verify": np.arange(9)})
    assert read_fields(dataset, {"2m_temperature": "K"}, [0, 8], complete=True).shape == (2, 1, 4, 8)
    for complete in (True, False):  # inputs, and what is observed
        with pytest.raises(DatasetError, match=r"2001-01-05.*latitude 20\.00, longitude 135\.00"):
            read_fields(dataset, {"2m_temperature": "K"}, [0, 4], complete=complete)


@pytest.mark.parametrize("odd", [-999.0, -9999.0, 1e20, np.inf])
def test_a_stand_in_in_a_variable_that_nobody_knows_is_refused_by_place(odd):
    values = np.random.default_rng(0).gamma(0.5, 8, (9, 4, 8)).astype(np.float32)
    values[4, 1, 3:5] = odd
    coords = {"time": np.arange("2001-01-01", "2001-01-10", dtype="datetime64[D]"), "latitude": [60.0, 20.0, -20.0, -60.0]}
    coords["longitude"] = np.arange(8) * 45.0
    fields = xr.Dataset({"tp": (("time", "latitude", "longitude"), values, {"units": "mm"})}, coords).chunk(time=3)
    dataset = Dataset(fields, {"verify": np.arange(9)})
    assert read_fields(dataset, {"tp": "mm"}, [0, 8], complete=False).shape == (2, 1, 4, 8)
    for complete in (True, False):
        with pytest.raises(DatasetError, match=r"2 times, the first at 2001-01-05.*latitude 20\.00, longitude 135\.00.*--missing nan"):
            read_fields(dataset, {"tp": "mm"}, [0, 4], complete=complete)
    honest = Dataset(fields.assign_attrs(no_stand_ins=1), dataset.splits)
    assert read_fields(honest, {"tp": "mm"}, [0, 4], complete=False).shape == (2, 1, 4, 8)
