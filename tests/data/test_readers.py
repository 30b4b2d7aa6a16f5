import shutil
import zipfile

import numpy as np
import pytest

from engine.data import open_dataset
from engine.data._join import open_path
from engine.errors import DatasetError, UnsafeFileError


@pytest.mark.parametrize(
    ("engine", "format"), [("h5netcdf", None), ("scipy", "NETCDF3_CLASSIC"), ("scipy", "NETCDF3_64BIT"), ("netcdf4", "NETCDF3_64BIT_DATA")]
)
def test_every_netcdf_flavour_gives_the_same_fields(fields, written, engine, format):
    data = fields()
    out = open_dataset(written(data, engine=engine, format=format))
    np.testing.assert_array_equal(out.fields["temperature_850"].values, data["t850"].values)


def test_content_decides_and_not_the_name(fields, written):
    path = written(fields(), "misnamed.grib")
    assert open_path(path)[1] == "netcdf"
    page = path.with_name("page.nc")
    page.write_text("<!DOCTYPE html><html>Sign in</html>")
    with pytest.raises(DatasetError, match="kind html"):
        open_dataset(page)


def test_variables_in_a_single_group_are_read_and_said(fields, tmp_path):
    path = tmp_path / "grouped.nc"
    fields().to_netcdf(path, engine="h5netcdf", group="forecast")
    assert any("group 'forecast'" in c for c in open_dataset(path).changes)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("form", ["folder", "zip", "zip_with_folder"])
def test_zarr_in_every_form(fields, tmp_path, zarr_format, form):
    data, store = fields(), tmp_path / "data.zarr"
    data.to_zarr(store, zarr_format=zarr_format, consolidated=False)
    path = store
    if form != "folder":
        path = tmp_path / "data.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(p for p in store.rglob("*") if p.is_file()):
                archive.write(file, file.relative_to(tmp_path if form == "zip_with_folder" else store))
    out = open_dataset(path)
    np.testing.assert_array_equal(out.fields["temperature_850"].values, data["t850"].values)
    if form != "folder":
        assert open_dataset(path).fingerprint == out.fingerprint


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_without_dimension_names_is_refused_plainly(tmp_path, zarr_format):
    import zarr

    group = zarr.open_group(tmp_path / "bare.zarr", mode="w", zarr_format=zarr_format)
    group.create_array("t850", shape=(2, 8, 16), dtype="f4")
    with pytest.raises(DatasetError, match="without dimension names: t850"):
        open_dataset(tmp_path / "bare.zarr")


def test_zarr_bomb_and_pickled_array_are_refused(fields, tmp_path):
    import json

    import zarr

    group = zarr.open_group(tmp_path / "bomb.zarr", mode="w", zarr_format=3)
    group.create_array(
        "t850", shape=(10**6, 1000, 1000), chunks=(1, 1000, 1000), dtype="f4", dimension_names=("time", "latitude", "longitude")
    )
    with pytest.raises(UnsafeFileError, match=r"4\.0 TB"):
        open_dataset(tmp_path / "bomb.zarr")
    store = tmp_path / "pickled.zarr"
    fields().to_zarr(store, zarr_format=2, consolidated=False)
    meta = json.loads((store / "t850" / ".zarray").read_text())
    (store / "t850" / ".zarray").write_text(json.dumps(meta | {"filters": [{"id": "pickle", "protocol": 5}]}))
    with pytest.raises(UnsafeFileError, match="pickle"):
        open_dataset(store)


def _shards(folder, split, year, lengths, rows=8, columns=16, first=0):
    rng = np.random.default_rng(year)
    (folder / split).mkdir(parents=True, exist_ok=True)
    np.save(folder / "lat.npy", -90 + (np.arange(rows) + 0.5) * 180 / rows)
    np.save(folder / "lon.npy", np.arange(columns) * 360 / columns)
    whole = []
    for n, length in enumerate(lengths, first):
        z = (54000 + rng.normal(0, 50, (length, 1, rows, columns))).astype(np.float32)
        t = (270 + rng.normal(0, 5, (length, 1, rows, columns))).astype(np.float32)
        np.savez(folder / split / f"{year}_{n}.npz", geopotential_500=z, temperature_850=t)
        whole.append(z)
    return np.concatenate(whole)[:, 0]


def test_climax_shards_are_joined_and_dated(tmp_path):
    z = _shards(tmp_path, "test", 2018, (730, 730))
    out = open_dataset(tmp_path / "test")
    np.testing.assert_array_equal(out.fields["geopotential_500"].values, z[:, ::-1])  # upstream runs south to north
    times = out.fields["time"].values
    assert times[1] - times[0] == np.timedelta64(6, "h") and times[730] == np.datetime64("2018-07-02T12:00")
    assert any("derived from the shards' names" in c for c in out.changes)


def test_climax_root_gives_three_splits(tmp_path):
    for split, year in (("train", 2016), ("val", 2017), ("test", 2018)):
        _shards(tmp_path, split, year, (4, 4))
    out = open_dataset(tmp_path, step_hours=6)
    assert {k: len(v) for k, v in out.splits.items()} == {"verify": 8, "calibrate": 8, "fit": 8}
    assert str(out.fields["time"].values[out.splits["verify"][0]])[:4] == "2018"


def test_shards_that_do_not_say_their_times_are_refused(tmp_path):
    _shards(tmp_path, "test", 2018, (5,))
    with pytest.raises(DatasetError, match="5 fields in 2018"):
        open_dataset(tmp_path / "test")
    shutil.copy(tmp_path / "test" / "2018_0.npz", tmp_path / "test" / "2018_2.npz")
    with pytest.raises(DatasetError, match="shards 0, 2 of 2018"):
        open_dataset(tmp_path / "test", step_hours=6)


def test_shard_on_another_grid_than_its_coordinates_is_refused(tmp_path):
    _shards(tmp_path, "test", 2018, (4,))
    np.save(tmp_path / "lat.npy", np.linspace(-90, 90, 9))
    with pytest.raises(DatasetError, match=r"\(T, 1, 9, 16\)"):
        open_dataset(tmp_path / "test", step_hours=6)


@pytest.fixture
def grib(tmp_path):
    eccodes = pytest.importorskip("eccodes")

    def message(sink, values, short, kind, level, day, **more):
        gid = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
        rows, columns = values.shape
        keys = {
            "Ni": columns, "Nj": rows, "latitudeOfFirstGridPointInDegrees": 78.75, "latitudeOfLastGridPointInDegrees": -78.75,
            "longitudeOfFirstGridPointInDegrees": 0.0, "longitudeOfLastGridPointInDegrees": 337.5,
            "iDirectionIncrementInDegrees": 22.5, "jDirectionIncrementInDegrees": 22.5, "dataDate": 20010100 + day, "dataTime": 0,
            "typeOfLevel": kind, "level": level, "shortName": short, "bitsPerValue": 24,
        }  # fmt: skip
        for key, value in (keys | more).items():
            eccodes.codes_set(gid, key, value)
        eccodes.codes_set_values(gid, values.ravel())
        eccodes.codes_write(gid, sink)
        eccodes.codes_release(gid)

    def write(name="data.grib", days=(1, 2, 3)):
        path = tmp_path / name
        rng = np.random.default_rng(0)
        with path.open("wb") as sink:
            for day in days:
                for level, base in ((500, 54000.0), (850, 14300.0)):
                    message(sink, base + rng.normal(0, 50, (8, 16)), "z", "isobaricInhPa", level, day)
                message(sink, 285 + rng.normal(0, 5, (8, 16)), "2t", "heightAboveGround", 2, day)
        return path

    return write


def test_grib_of_several_level_types_keeps_every_variable(grib, tmp_path):
    out = open_dataset(grib())
    assert set(out.fields.data_vars) == {"geopotential_500", "geopotential_850", "2m_temperature"}
    assert out.fields.sizes["time"] == 3
    assert out.fields["latitude"].values[0] == 78.75
    assert not list(tmp_path.glob("*.idx"))


def test_truncated_grib_is_refused(grib):
    path = grib()
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match="cut off"):
        open_dataset(path)


def test_skipped_grib_messages_are_listed(grib):
    path = grib()
    with path.open("ab") as sink:
        import eccodes

        gid = eccodes.codes_grib_new_from_samples("sh_ml_grib2")
        eccodes.codes_write(gid, sink)
        eccodes.codes_release(gid)
    assert any("skipped by the GRIB reader: 1 message (t) on a grid of type sh" in c for c in open_dataset(path).changes)


def test_reads_from_many_threads_agree(fields, written):
    from concurrent.futures import ThreadPoolExecutor

    data = fields(periods=60)
    path = written(data)
    out = open_dataset(path).fields["temperature_850"]
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda i: out.isel(time=i).compute(scheduler="synchronous").values, range(60)))
    np.testing.assert_array_equal(np.stack(parts), data["t850"].values)
