import numpy as np
import pytest
import xarray as xr

from engine import lexicon
from engine.data.conform import conform
from engine.errors import DatasetError


def test_canonical_file_passes_unchanged(fields):
    data = fields()
    out, changes = conform(data)
    assert set(out.data_vars) == {"geopotential_height_500", "temperature_850"}
    np.testing.assert_array_equal(out["geopotential_height_500"].values, data["z500"].values)
    assert not any("turned" in c or "longitude" in c for c in changes)


def test_latitude_south_to_north_is_turned_by_value(fields):
    data = fields()
    out, changes = conform(data.isel(latitude=slice(None, None, -1)))
    np.testing.assert_array_equal(out["geopotential_height_500"].values, data["z500"].values)
    assert out["latitude"].values[0] > out["latitude"].values[-1]
    assert any("south to north" in c for c in changes)


def test_longitude_from_minus_180_is_rolled_and_keeps_its_values(fields):
    data = fields()
    west = data.assign_coords(longitude=(data.longitude + 180) % 360 - 180).sortby("longitude")
    assert west.longitude.values[0] < 0
    out, changes = conform(west)
    np.testing.assert_array_equal(out["longitude"].values, data["longitude"].values)
    np.testing.assert_array_equal(out["geopotential_height_500"].values, data["z500"].values)
    assert any("0 … 360" in c for c in changes)


def test_region_across_greenwich_loses_nothing(fields):
    data = fields().isel(longitude=slice(0, 6))
    data = data.assign_coords(longitude=[-15.0, -10.0, -5.0, 0.0, 5.0, 10.0])
    out, _ = conform(data)
    assert out.sizes["longitude"] == 6
    assert list(out.longitude.values) == [0, 5, 10, 345, 350, 355]
    assert float(out["temperature_850"].sel(longitude=345)[0, 0]) == float(data["t850"][0, 0, 0])


def test_repeated_cyclic_column_is_dropped(fields):
    data = fields()
    cyclic = xr.concat([data, data.isel(longitude=[0]).assign_coords(longitude=[360.0])], "longitude")
    out, changes = conform(cyclic)
    assert out.sizes["longitude"] == 16
    assert any("repeats" in c for c in changes)


def test_gaussian_latitudes_are_kept(fields):
    gaussian = np.rad2deg(np.arcsin(np.polynomial.legendre.leggauss(8)[0]))[::-1]
    out, _ = conform(fields().assign_coords(latitude=gaussian))
    np.testing.assert_array_equal(out.latitude.values, gaussian)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda d: d.isel(longitude=slice(None, None, -1)), "longitudes that fall"),
        (lambda d: d.assign_coords(longitude=[*d.longitude.values[:-1], np.nan]), "longitude without a value"),
        (lambda d: d.assign_coords(latitude=[np.nan, *d.latitude.values[1:]]), "latitude without a value"),
        (lambda d: d.isel(latitude=[0, 2, 1, 3, 4, 5, 6, 7]), "latitudes that turn"),
        (lambda d: d.assign_coords(latitude=d.latitude * 2), "latitude 157.5"),
        (lambda d: d.drop_vars("latitude"), "without coordinate values"),
        (lambda d: d.isel(latitude=0), "dimensions time, longitude"),
        (
            lambda d: d.rename(latitude="j", longitude="i").drop_vars(["i", "j"]).assign_coords(lat=(("j", "i"), np.ones((8, 16)))),
            "curvilinear",
        ),
        (lambda d: d.isel(time=[0, 1, 1, 2]), "times twice"),
        (lambda d: d.assign_coords(time=np.arange(12.0)), "times of type float64"),
        (lambda d: d.assign_coords(longitude=d.longitude * 2), "meet twice"),
    ],
)
def test_odd_coordinates_are_refused(fields, spoil, says):
    with pytest.raises(DatasetError, match=says):
        conform(spoil(fields()))


def test_unsorted_times_are_sorted_and_said(fields):
    data = fields()
    out, changes = conform(data.isel(time=[3, 0, 2, 1]))
    np.testing.assert_array_equal(out["temperature_850"].values, data["t850"].isel(time=slice(4)).values)
    assert any("sorted" in c for c in changes)


def test_geopotential_labelled_as_metres_is_recognised_by_magnitude(fields):
    data = fields()
    data["z500"] = (data["z500"] * lexicon.G0).assign_attrs(units="m")
    out, changes = conform(data)
    assert out["geopotential_500"].attrs["units"] == "m2 s-2"
    assert any("labelled 'm'" in c and "m2 s-2" in c for c in changes)
    np.testing.assert_allclose(out["geopotential_500"].mean() / lexicon.G0, 5500, atol=100)


def test_height_labelled_as_geopotential_is_recognised_by_magnitude(fields):
    data = fields()
    data["z500"].attrs["units"] = "m**2 s**-2"
    out, _ = conform(data)
    assert out["geopotential_height_500"].attrs["units"] == "m"


def test_gpm_and_unlabelled_heights_are_metres(fields):
    for units in ("gpm", None):
        data = fields()
        data["z500"].attrs = {"units": units} if units else {}
        assert conform(data)[0]["geopotential_height_500"].attrs["units"] == "m"


def test_mix_of_geopotential_and_height_is_refused_with_both_numbers(fields):
    data = fields()
    values = data["z500"].values
    values[6:] *= np.float32(lexicon.G0)
    with pytest.raises(DatasetError, match=r"a mix of units: 5\d\d\d.*5\d\d\d\d"):
        conform(data)


def test_implausible_values_are_refused_with_numbers(fields):
    data = fields()
    data["z500"] = (data["z500"] * 3).assign_attrs(units="m")
    with pytest.raises(DatasetError) as caught:
        conform(data)
    assert "165" in caught.value.found
    assert "m2 s-2" in caught.value.expected and " m " in caught.value.expected


def test_fill_values_that_nobody_marked_are_refused(fields):
    data = fields()
    data["t850"].values[0, 3, 3] = 9.96921e36
    with pytest.raises(DatasetError, match=r"9\.96921e\+36"):
        conform(data)


def test_celsius_is_converted_and_said(fields):
    data = fields()
    kelvin = data["t850"].values.copy()
    data["t850"] = (data["t850"] - 273.15).assign_attrs(units="degC")
    out, changes = conform(data)
    np.testing.assert_allclose(out["temperature_850"].values, kelvin, atol=1e-3)
    assert any("273.15" in c for c in changes)


def test_kelvin_labelled_celsius_is_refused_and_never_guessed(fields):
    data = fields()
    data["t850"].attrs["units"] = "degC"
    for strict in (True, False):
        with pytest.raises(DatasetError, match=r"labelled 'degC'.*usual in K"):
            conform(data, strict=strict)


def test_unlabelled_field_that_fits_two_units_is_refused(fields):
    data = fields()
    near_ground = data["z500"] * 0 + 150
    near_ground.attrs = {}
    with pytest.raises(DatasetError, match="could be"):
        conform(data.assign(z1000=near_ground))


def test_levels_are_taken_apart_and_named_in_hectopascals(fields):
    data = fields()
    stack = xr.concat([data["t850"], data["t850"] - 30], "plev").assign_coords(plev=("plev", [85000.0, 50000.0], {"units": "Pa"}))
    stack.attrs = {"units": "K", "standard_name": "air_temperature"}
    out, _ = conform(xr.Dataset({"ta": stack}))
    assert set(out.data_vars) == {"temperature_850", "temperature_500"}
    np.testing.assert_allclose(out["temperature_850"].values - out["temperature_500"].values, 30, atol=1e-3)


def test_model_levels_are_refused(fields):
    stack = fields()["t850"].expand_dims(lev=[0.5]).assign_attrs(units="K")
    stack["lev"].attrs = {"standard_name": "atmosphere_hybrid_sigma_pressure_coordinate"}
    with pytest.raises(DatasetError, match="model levels"):
        conform(xr.Dataset({"t": stack}))


def test_members_are_kept_under_one_name(fields):
    stack = xr.concat([fields(seed=i) for i in range(3)], "number").assign_coords(number=[0, 1, 2])
    out, _ = conform(stack)
    assert out["temperature_850"].dims == ("member", "time", "latitude", "longitude")


def test_what_is_no_field_is_left_out_and_said(fields):
    out, changes = conform(fields().assign(time_bnds=(("time", "bnds"), np.zeros((12, 2)))))
    assert "time_bnds" not in out
    assert any("time_bnds" in c for c in changes)


def test_unknown_names_stay_and_rename_overrides(fields):
    data = fields().rename(t850="strange")
    assert "strange" in conform(data)[0]
    assert "temperature_850" in conform(data, rename={"strange": "t850"})[0]
    with pytest.raises(DatasetError, match="stranger"):
        conform(data, rename={"stranger": "t850"})


def test_result_is_lazy(fields, written):
    path = written(fields(periods=50))
    with xr.open_dataset(path, engine="h5netcdf") as data:
        out, _ = conform(data)
        assert all(hasattr(v.data, "dask") for v in out.data_vars.values())


def test_plain_numbers_are_times_for_scoring_only(tmp_path):
    import numpy as np
    import xarray as xr

    from engine.data import open_dataset, open_fields
    from engine.errors import DatasetError

    coords = {"time": np.arange(5), "latitude": np.linspace(-70, 70, 8), "longitude": np.arange(16) * 22.5}
    values = np.full((5, 8, 16), 5500.0)
    path = tmp_path / "o.nc"
    xr.DataArray(values, coords=coords, name="z500", attrs={"units": "m"}).to_netcdf(path)
    fields, changes = open_fields(path)
    assert fields["time"].values.tolist() == [0, 1, 2, 3, 4]
    assert any("plain numbers" in line for line in changes)
    try:
        open_dataset(path)
    except DatasetError as refusal:
        assert "int64" in refusal.found
    else:
        raise AssertionError("a model's data without dates was accepted")


def test_anomalies_are_kept_as_labelled_for_scoring_only(tmp_path):
    import numpy as np
    import pytest
    import xarray as xr

    from engine.data import open_dataset, open_fields
    from engine.errors import DatasetError

    coords = {"time": np.arange("2001-01-01", "2001-01-06", dtype="datetime64[D]"), "latitude": np.linspace(-70, 70, 8)}
    coords["longitude"] = np.arange(16) * 22.5
    values = np.random.default_rng(0).normal(size=(5, 8, 16))
    path = tmp_path / "anomalies.nc"
    xr.DataArray(values, coords=coords, name="z500", attrs={"units": "m"}).to_netcdf(path)
    fields, changes = open_fields(path)
    assert np.allclose(np.sort(fields["geopotential_height_500"].values, None), np.sort(values, None), atol=1e-6)  # float32
    assert any("kept as labelled" in line for line in changes)
    with pytest.raises(DatasetError, match="Check units"):
        open_dataset(path)
