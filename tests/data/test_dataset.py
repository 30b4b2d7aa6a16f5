import os

import numpy as np
import pytest

from engine.data import cases, open_dataset, open_fields
from engine.errors import DatasetError


@pytest.fixture
def two(fields, written):
    """A verification file and, earlier, a calibration file."""
    return written(fields("2001-02-01", seed=1), "verify.nc"), written(fields("2001-01-01"), "calibrate.nc")


def test_splits_point_at_their_own_times(two):
    verify, calibrate = two
    data = open_dataset(verify, calibrate=calibrate)
    times = data.fields["time"].values
    assert (times[data.splits["verify"]] >= np.datetime64("2001-02-01")).all()
    assert (times[data.splits["calibrate"]] < np.datetime64("2001-02-01")).all()
    assert not set(data.splits["verify"]) & set(data.splits["calibrate"])
    assert all(hasattr(v.data, "dask") for v in data.fields.data_vars.values())


def test_overlapping_splits_are_refused(fields, written):
    verify, calibrate = written(fields("2001-01-03"), "v.nc"), written(fields("2001-01-01"), "c.nc")
    with pytest.raises(DatasetError, match="4 times both in"):
        open_dataset(verify, calibrate=calibrate)


def test_cases_pair_by_time_and_not_by_position(fields, written):
    data = open_dataset(written(fields(periods=20).isel(time=[0, 1, 2, 3, 4, 9, 13, 14])))
    times = data.fields["time"].values
    found = cases(data, 24)
    assert [(c.init, c.valid) for c in found] == [(0, 4), (5, 6)]
    assert all(times[c.valid] - times[c.init] == np.timedelta64(24, "h") for c in found)
    assert found[0].init_time == "2001-01-01T00:00" and found[0].valid_time == "2001-01-02T00:00"


def test_cases_never_cross_splits(two):
    verify, calibrate = two
    data = open_dataset(verify, calibrate=calibrate)
    inside = set(data.splits["verify"])
    assert all({c.init, c.valid} <= inside for c in cases(data, 24))
    with pytest.raises(DatasetError, match="744 h apart"):  # 1 January to 1 February: in the data, but in two splits
        cases(data, 744)


def test_case_ids_do_not_depend_on_the_subset(fields, written):
    whole = open_dataset(written(fields(periods=40), "whole.nc"))
    part = open_dataset(written(fields(periods=40).isel(time=slice(10, None)), "part.nc"))
    ids = {c.init_time: c.id for c in cases(whole, 24)}
    assert all(ids[c.init_time] == c.id for c in cases(part, 24))
    assert len({c.id for lead in (6, 24) for c in cases(whole, lead)}) == 39 + 36
    few = cases(whole, 24, limit=5)
    assert [c.init for c in few] == [0, 9, 18, 26, 35]
    assert few == cases(whole, 24, limit=5)


def test_no_cases_says_the_step_that_was_found(two):
    with pytest.raises(DatasetError, match="steps of 6 h") as caught:
        cases(open_dataset(two[0]), 25)
    assert "25 h apart" in caught.value.expected
    with pytest.raises(DatasetError, match="calibrate"):
        cases(open_dataset(two[0]), 24, "calibrate")


def test_360_day_calendar_has_a_30th_of_february(fields, written):
    data = open_dataset(written(fields("0021-02-29", periods=9, calendar="360_day", step="12h")))
    found = cases(data, 24)
    assert found[0].init_time == "0021-02-29T00:00" and found[0].valid_time == "0021-02-30T00:00"
    assert found[2].valid_time == "0021-03-01T00:00"
    assert found[0].id > 0


def test_calendars_are_not_joined_without_a_policy(fields, written):
    a = written(fields("2001-01-01", calendar="360_day"), "a.nc")
    b = written(fields("2001-03-01", calendar="noleap", use_cftime=True), "b.nc")
    with pytest.raises(DatasetError, match="360_day in"):
        open_dataset([a, b])
    joined = open_dataset([a, b], calendar="noleap")
    assert joined.fields.sizes["time"] == 24
    assert any("360_day to noleap" in c for c in joined.changes)


def test_different_grids_are_refused_by_name(fields, written):
    a, b = written(fields(), "a.nc"), written(fields("2002-01-01", rows=9), "b.nc")
    with pytest.raises(DatasetError, match=r"9×16.*b\.nc.*8×16.*a\.nc"):
        open_dataset([a, b])


def test_same_time_in_two_files_is_refused(fields, written):
    a, b = written(fields(), "a.nc"), written(fields(seed=1), "b.nc")
    with pytest.raises(DatasetError, match=r"2001-01-01T00:00 in a\.nc .* and in b\.nc"):
        open_dataset([a, b])


def test_variables_in_separate_files_are_put_side_by_side(fields, written):
    data = fields()
    out = open_dataset([written(data[["z500"]], "z.nc"), written(data[["t850"]], "t.nc")])
    assert set(out.fields.data_vars) == {"geopotential_height_500", "temperature_850"}
    with pytest.raises(DatasetError, match="same times"):
        open_dataset([written(data[["z500"]], "z2.nc"), written(data[["t850"]].isel(time=slice(3)), "t2.nc")])


def test_geopotential_in_one_file_and_height_in_the_next_is_a_mix(fields, written):
    first, second = fields("2001-01-01"), fields("2001-02-01")
    second["z500"] = (second["z500"] * 9.80665).assign_attrs(units="m2 s-2")
    with pytest.raises(DatasetError, match="a mix: geopotential in some files"):
        open_dataset([written(first, "a.nc"), written(second, "b.nc")])


def test_files_of_one_series_are_joined_in_order_of_time(fields, written):
    data = fields(periods=20)
    late, early = written(data.isel(time=slice(10, None)), "a.nc"), written(data.isel(time=slice(10)), "b.nc")
    out = open_dataset([late, early])
    np.testing.assert_array_equal(out.fields["temperature_850"].values, data["t850"].values)


def test_variables_chooses_and_says_what_there_is(two):
    assert list(open_dataset(two[0], variables=["t850"]).fields.data_vars) == ["temperature_850"]
    with pytest.raises(DatasetError, match="u500"):
        open_dataset(two[0], variables=["u500"])


def test_constant_fields_are_stretched_over_time(fields, written):
    data = fields()
    data["orog"] = (("latitude", "longitude"), np.full((8, 16), 300.0), {"units": "m"})
    out = open_dataset(written(data))
    assert out.fields["orography"].dims == ("time", "latitude", "longitude")
    assert float(out.fields["orography"][5, 3, 3]) == 300


def test_packed_integers_are_unpacked(fields, written):
    data = fields()
    packed = written(data, encoding={"t850": {"dtype": "int16", "scale_factor": 0.01, "add_offset": 270.0, "_FillValue": -32768}})
    np.testing.assert_allclose(open_dataset(packed).fields["temperature_850"].values, data["t850"].values, atol=0.006)


def test_fingerprint_follows_content_and_roles_not_names(two, tmp_path):
    verify, calibrate = two
    first = open_dataset(verify, calibrate=calibrate).fingerprint
    copy = tmp_path / "copy.nc"
    copy.write_bytes(verify.read_bytes())
    assert open_dataset(copy, calibrate=calibrate).fingerprint == first
    assert open_dataset(calibrate, calibrate=verify).fingerprint != first
    assert open_dataset(verify, calibrate=calibrate, variables=["t850"]).fingerprint != first


def test_fingerprint_sees_a_change_in_the_middle_of_a_large_file(tmp_path):
    from engine.data._fingerprint import content_hash

    path = tmp_path / "large.bin"
    path.write_bytes(bytes(3 * 2**20))
    before = content_hash(path)
    assert content_hash(path) == before
    with path.open("r+b") as stream:
        stream.seek(2**20)
        stream.write(b"x")
    os.utime(path, ns=(1, 1))
    assert content_hash(path) != before


def test_forecast_files_are_for_scoring(fields, written):
    import xarray as xr

    members = written(xr.concat([fields(seed=i) for i in range(3)], "number"), "members.nc")
    with pytest.raises(DatasetError, match="3 values of member"):
        open_dataset(members)
    out, changes = open_fields(members)
    assert out["temperature_850"].sizes["member"] == 3
    assert any("number → member" in c for c in changes)


def test_importing_the_package_is_light():
    import subprocess
    import sys

    code = "import sys, engine.data, engine.backbones; sys.exit(any(m in sys.modules for m in ('torch', 'xarray', 'dask')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_height_in_one_split_and_geopotential_in_the_other_are_one_quantity(tmp_path):
    import numpy as np
    import xarray as xr

    from engine.data import open_dataset

    values = 5500 + 40 * np.random.default_rng(3).normal(size=(4, 8, 16))

    def write(name, start, factor, units):
        coords = {"time": np.datetime64(start, "ns") + np.arange(4) * np.timedelta64(1, "D"), "latitude": np.linspace(70, -70, 8)}
        coords["longitude"] = np.arange(16) * 22.5
        xr.DataArray(values * factor, coords=coords, name="z500", attrs={"units": units}).to_netcdf(tmp_path / name)
        return tmp_path / name

    geopotential, height = write("v.nc", "2001-01-01", 9.80665, "m2 s-2"), write("c.nc", "2001-02-01", 1.0, "m")
    both = open_dataset(geopotential, calibrate=height)
    assert list(both.fields.data_vars) == ["geopotential_500"]
    found = both.fields["geopotential_500"].isel(time=both.splits["calibrate"]).values
    np.testing.assert_allclose(found, values * 9.80665, rtol=1e-6)  # float32
