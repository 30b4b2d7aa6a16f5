import os
import zipfile

import h5py
import numpy as np
import pytest

from engine.data import open_dataset
from engine.errors import DatasetError, UnsafeFileError
from engine.safety import check_zip, human, kind_of, readable_file
from engine.settings import settings


def _plain(path, name="secret.h5"):
    other = path / name
    with h5py.File(other, "w") as file:
        file["v"] = np.arange(4.0)
    return other


def test_external_link_is_refused(tmp_path):
    _plain(tmp_path)
    with h5py.File(tmp_path / "evil.nc", "w") as file:
        file["leak"] = h5py.ExternalLink("secret.h5", "/v")
    with pytest.raises(UnsafeFileError, match=r"external link to 'secret\.h5'"):
        open_dataset(tmp_path / "evil.nc")


def test_soft_link_and_link_in_a_group_are_refused(tmp_path):
    with h5py.File(tmp_path / "soft.nc", "w") as file:
        file["leak"] = h5py.SoftLink("/elsewhere/v")
    with pytest.raises(UnsafeFileError, match="soft link"):
        open_dataset(tmp_path / "soft.nc")
    with h5py.File(tmp_path / "deep.nc", "w") as file:
        file.create_group("a/b")["leak"] = h5py.ExternalLink("secret.h5", "/v")
    with pytest.raises(UnsafeFileError, match="/a/b/leak"):
        open_dataset(tmp_path / "deep.nc")


def test_virtual_dataset_is_refused(tmp_path):
    other = _plain(tmp_path)
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(other, "v", (4,))
    with h5py.File(tmp_path / "vds.nc", "w") as file:
        file.create_virtual_dataset("leak", layout)
    with pytest.raises(UnsafeFileError, match="virtual dataset"):
        open_dataset(tmp_path / "vds.nc")


def test_external_storage_is_refused(tmp_path):
    (tmp_path / "raw.bin").write_bytes(bytes(64))
    with h5py.File(tmp_path / "ext.nc", "w") as file:
        file.create_dataset("leak", (8,), "f8", external=[("raw.bin", 0, 64)])
    with pytest.raises(UnsafeFileError, match=r"external storage in .*raw\.bin"):
        open_dataset(tmp_path / "ext.nc")


def test_hdf5_of_a_kilobyte_that_claims_320_gb_is_refused(tmp_path):
    with h5py.File(tmp_path / "bomb.nc", "w") as file:
        file.create_dataset("v", (200_000, 400, 500), "f8", chunks=(1, 400, 500))
    assert (tmp_path / "bomb.nc").stat().st_size < 10_000
    with pytest.raises(UnsafeFileError, match=r"320\.0 GB"):
        open_dataset(tmp_path / "bomb.nc")


def test_one_time_too_large_for_the_memory_is_refused_with_numbers(fields, written, monkeypatch):
    path = written(fields())
    monkeypatch.setenv("NUSCOPE_MEMORY_LIMIT", "2000")
    settings.cache_clear()
    with pytest.raises(DatasetError, match=r"for one time.*at most 500 bytes"):
        open_dataset(path)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_truncated_netcdf_is_refused(fields, written, engine, share):
    path = written(fields(periods=40), engine=engine)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DatasetError, match=r"truncated|cannot be read"):
        open_dataset(path)


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "empty.nc").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    cases = {"empty.nc": "0 bytes", "none.nc": "no such file", "folder": "no known layout"}
    for name, says in cases.items():
        with pytest.raises(DatasetError, match=says):
            open_dataset(tmp_path / name)
    with pytest.raises(UnsafeFileError, match="device or pipe"):
        readable_file(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError, match="an address"):
        open_dataset("https://example.org/data.nc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file_is_refused(tmp_path):
    path = tmp_path / "locked.nc"
    path.write_bytes(b"CDF\x01")
    path.chmod(0)
    with pytest.raises(DatasetError, match="permission"):
        readable_file(path)


def test_npz_bomb_is_refused_before_it_is_unpacked(tmp_path):
    (tmp_path / "test").mkdir()
    np.savez_compressed(tmp_path / "test" / "2018_0.npz", geopotential_500=np.zeros((20_000, 1, 32, 64), np.float32))
    np.save(tmp_path / "lat.npy", np.linspace(-87, 87, 32))
    np.save(tmp_path / "lon.npy", np.arange(64) * 5.625)
    with pytest.raises(UnsafeFileError, match="unpack to 163840128"):
        open_dataset(tmp_path / "test", step_hours=6)


def test_pickled_arrays_are_never_loaded(tmp_path):
    class Harm:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "harmed"),))

    (tmp_path / "test").mkdir()
    np.savez(tmp_path / "test" / "2018_0.npz", geopotential_500=np.array([[[[Harm()]]]], object))
    np.save(tmp_path / "lat.npy", np.array([0.0]))
    np.save(tmp_path / "lon.npy", np.array([0.0]))
    with pytest.raises(UnsafeFileError, match="Python objects"):
        open_dataset(tmp_path / "test", step_hours=6)
    np.save(tmp_path / "lat.npy", np.array([Harm()], object))
    with pytest.raises(UnsafeFileError, match=r"lat\.npy holds Python objects"):
        open_dataset(tmp_path / "test", step_hours=6)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("name", ["../out.npy", "/etc/out.npy", "a/../../out.npy", "..\\out.npy", "C:/out.npy"])
def test_zip_members_that_leave_their_folder_are_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(UnsafeFileError, match="leaves its folder"):
        check_zip(tmp_path / "evil.zip", 10**9, "archive")


def test_zip_with_a_symbolic_link_is_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UnsafeFileError, match="symbolic link"):
        check_zip(tmp_path / "link.zip", 10**9, "archive")


def test_sum_of_members_counts(tmp_path):
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for i in range(10):
            archive.writestr(f"{i}.npy", bytes(1000))
    with pytest.raises(UnsafeFileError, match=r"10\.0 kB unpacked"):
        check_zip(tmp_path / "many.zip", 9_999, "archive")
    assert len(check_zip(tmp_path / "many.zip", 10_000, "archive")) == 10


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89HDF\r\n\x1a\n", "hdf5"),
        (bytes(512) + b"\x89HDF\r\n\x1a\n", "hdf5"),
        (b"CDF\x01", "netcdf3"),
        (b"CDF\x05", "netcdf3"),
        (b"GRIB....", "grib"),
        (b"PK\x03\x04", "zip"),
        (b"\x93NUMPY", "npy"),
        (b"\x80\x02}q", "pickle"),
        ((64).to_bytes(8, "little") + b'{"a":1}', "safetensors"),
        (b"  <!DOCTYPE html>", "html"),
        (b"version https://git-lfs.github.com/spec/v1", "lfs"),
        (b"time,z500\n", "text"),
        (bytes(16), "unknown"),
    ],
)
def test_first_bytes_name_the_format(tmp_path, head, kind):
    (tmp_path / "file").write_bytes(head)
    assert kind_of(tmp_path / "file") == kind


def test_bytes_in_words():
    assert [human(n) for n in (999, 1000, 320e9, 2e15)] == ["999 bytes", "1.0 kB", "320.0 GB", "2.0 PB"]
