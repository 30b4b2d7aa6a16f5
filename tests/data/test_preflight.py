from dataclasses import dataclass

import numpy as np
import pytest

from engine.data import open_dataset
from engine.data.preflight import preflight


@dataclass
class Model:
    """What preflight looks at in a model."""

    in_variables: tuple = ("geopotential_500", "temperature_850", "lattitude")
    out_variables: tuple = ("geopotential_500",)
    out_units: tuple = ("m2 s-2",)
    grid: tuple = (8, 16)
    lead_hours: tuple = (24.0,)


def rows(found, what):
    return [r for r in found if r.what == what]


def test_good_data_and_model_have_no_problem(fields, written):
    found = preflight(open_dataset(written(fields())), Model(), seconds_per_forward=30)
    assert not [r for r in found if r.level == "problem"]
    assert rows(found, "calendar")[0].found == "standard"
    assert "every 6 h" in rows(found, "times (verify)")[0].found
    assert "global" in rows(found, "grid")[0].found and "evenly" in rows(found, "grid")[0].found
    assert rows(found, "cases (verify, 24 h)")[0].found == "8, about 4.0 min for each member and ν"
    assert "multiplied by g0 = 9.80665" in rows(found, "model's geopotential_500")[0].found
    assert all(set(r.as_dict()) == {"level", "what", "found", "expected", "remedy"} for r in found)


def test_missing_values_are_counted_with_the_first_place(fields, written):
    data = fields()
    data["t850"].values[2, 3, 4] = np.nan
    data["t850"].values[5] = np.nan
    row = rows(preflight(open_dataset(written(data))), "missing values of temperature_850")[0]
    assert row.level == "note"
    assert row.found.startswith(f"129 ({129 / 1536:.2%}), the first at 2001-01-01T12:00, latitude 11.25, longitude 90.00")


def test_gaps_in_time_are_noted(fields, written):
    row = rows(preflight(open_dataset(written(fields(periods=12).isel(time=[0, 1, 2, 3, 7, 8])))), "times (verify)")[0]
    assert row.level == "note" and "1 gaps up to 24 h" in row.found


def test_missing_variables_are_named_with_what_was_found(fields, written):
    found = preflight(open_dataset(written(fields())), Model(in_variables=("geopotential_500", "relative_humidity_700")))
    row = rows(found, "variables")[0]
    assert row.level == "problem"
    assert "relative_humidity_700 (%)" in row.found and "temperature_850" in row.found


@pytest.mark.parametrize(("grid", "says"), [((16, 8), "swapped"), ((7, 16), "both poles"), ((9, 16), "both poles"), ((32, 64), "8×16")])
def test_grid_mismatches_are_explained(fields, written, grid, says):
    row = rows(preflight(open_dataset(written(fields())), Model(grid=grid)), "model's grid")[0]
    assert row.level == "problem" and says in row.found


def test_impossible_lead_is_a_problem_row(fields, written):
    row = rows(preflight(open_dataset(written(fields())), Model(lead_hours=(25.0,))), "cases (verify, 25 h)")[0]
    assert row.level == "problem" and "6 h" in row.found


def test_conversions_are_listed(fields, written):
    data = fields().isel(latitude=slice(None, None, -1))
    found = preflight(open_dataset(written(data)))
    assert any("south to north" in r.found for r in rows(found, "changed on the way in"))
