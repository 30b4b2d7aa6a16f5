"""What every reader promises, run over all of them."""

import numpy as np
import pytest
import xarray as xr

from engine.data.conform import conform
from engine.errors import EngineError
from engine.registry import catalogue, entries

READERS = {
    key: reader for key, reader in entries("data").items() if getattr(reader, "task", "fields") == "fields" and hasattr(reader, "sniff")
}


def _source() -> xr.Dataset:
    rng = np.random.default_rng(0)
    time = np.datetime64("2018-01-01T00", "ns") + np.arange(8) * np.timedelta64(6, "h")
    dims = ("time", "latitude", "longitude")
    coords = {"time": time, "latitude": np.linspace(78.75, -78.75, 8), "longitude": np.arange(16) * 22.5}
    z = (54000 + rng.normal(0, 50, (8, 8, 16))).astype(np.float32)
    return xr.Dataset({"geopotential_500": (dims, z, {"units": "m2 s-2"})}, coords=coords)


def _write(key, folder):
    """The same fields in each reader's format; returns the path and the options to open it."""
    data = _source()
    if key == "netcdf":
        data.to_netcdf(folder / "a.nc", engine="h5netcdf")
        return folder / "a.nc", {}
    if key == "zarr":
        data.to_zarr(folder / "a.zarr", zarr_format=3, consolidated=False)
        return folder / "a.zarr", {}
    if key == "npz":
        np.save(folder / "lat.npy", data.latitude.values)
        np.save(folder / "lon.npy", data.longitude.values)
        (folder / "test").mkdir()
        np.savez(folder / "test" / "2018_0.npz", geopotential_500=data["geopotential_500"].values[:, None])
        return folder / "test", {"step_hours": 6}
    if key == "grib":
        eccodes = pytest.importorskip("eccodes")
        with (folder / "a.grib").open("wb") as sink:
            for i, values in enumerate(data["geopotential_500"].values):
                gid = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
                corners = {"latitudeOfFirstGridPointInDegrees": 78.75, "latitudeOfLastGridPointInDegrees": -78.75}
                corners |= {"longitudeOfFirstGridPointInDegrees": 0.0, "longitudeOfLastGridPointInDegrees": 337.5}
                corners |= {"iDirectionIncrementInDegrees": 22.5, "jDirectionIncrementInDegrees": 22.5, "Ni": 16, "Nj": 8}
                when = {"dataDate": 20180101 + i // 4, "dataTime": i % 4 * 600, "typeOfLevel": "isobaricInhPa", "level": 500}
                for name, value in (corners | when | {"shortName": "z", "bitsPerValue": 24}).items():
                    eccodes.codes_set(gid, name, value)
                eccodes.codes_set_values(gid, values.astype(float).ravel())
                eccodes.codes_write(gid, sink)
                eccodes.codes_release(gid)
        return folder / "a.grib", {}
    raise AssertionError(f"write a file for the reader {key!r} here, so that its promises are tested")


@pytest.mark.parametrize("key", READERS)
def test_reader_gives_the_canonical_fields_lazily(key, tmp_path):
    path, options = _write(key, tmp_path)
    reader = READERS[key]
    assert reader.title and reader.key == key
    assert reader.sniff(path)
    raw = reader.open(path, **options)
    assert not any(isinstance(v.variable._data, np.ndarray) for v in raw.data_vars.values()), "values were read while opening"
    out, _ = conform(raw)
    expected = _source()["geopotential_500"]
    assert out["geopotential_500"].dims == expected.dims
    assert out["geopotential_500"].attrs["units"] == "m2 s-2"
    np.testing.assert_allclose(out["geopotential_500"].values, expected.values, atol=0.01)  # GRIB packs to 24 bits of a 400 m2 s-2 range
    np.testing.assert_array_equal(out["time"].values, expected["time"].values)


@pytest.mark.parametrize("key", READERS)
def test_exactly_one_reader_takes_a_file(key, tmp_path):
    path, _ = _write(key, tmp_path)
    assert [k for k, r in READERS.items() if r.sniff(path)] == [key]


@pytest.mark.parametrize("key", READERS)
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"<html></html>", b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"GRIB", b"PK\x03\x04"])
def test_rubbish_is_refused_in_plain_words_or_not_taken(key, content, tmp_path):
    path = tmp_path / "2018_0.npz"
    path.write_bytes(content)
    if READERS[key].sniff(path):
        with pytest.raises(EngineError) as caught:
            READERS[key].open(path)
        assert caught.value.found and caught.value.expected and caught.value.remedy


def test_catalogue_lists_every_reader():
    assert {"netcdf", "zarr", "grib", "npz"} <= {e.key for e in catalogue("data")}
