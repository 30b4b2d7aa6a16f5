"""What machines do to runs: full disks, folders without rights, damaged files, edited specs, tables that are held."""

import errno
import logging
import os
import shutil
import sqlite3
import threading
import time

import numpy as np
import pytest

from engine.errors import EngineError, RunError
from engine.runs import execute, fields, jobs, pieces, store, worker
from engine.settings import settings


def row(key: str) -> dict:
    with store.table() as connection:
        return dict(store.row(connection, key))


def unfinished(spec, monkeypatch, after: int = 2) -> str:
    """A run that stopped after some shards, as if its process had been killed."""
    true, count = execute.run_shard, []

    def some(*args) -> None:
        if len(count) == after:
            raise SystemError("as if killed")
        count.append(1)
        true(*args)

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(execute, "run_shard", some)
        jobs.run(spec)
    return spec.resolved().key()


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other cases"])
def test_a_damaged_shard_is_found_computed_again_and_said_so(home, spec, shards_of, monkeypatch, caplog, damage) -> None:
    key = jobs.run(spec()).attrs["key"]
    expected = shards_of(key)
    jobs.remove(key)
    unfinished(spec(), monkeypatch, after=2)
    victim = sorted((store.folder(key) / "shards").glob("verify*.npz"))[0]
    whole = victim.read_bytes()
    if damage == "truncated":
        victim.write_bytes(whole[: len(whole) // 2])
    elif damage == "empty":
        victim.write_bytes(b"")
    elif damage == "flipped":
        at = len(whole) // 2
        victim.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    else:
        with np.load(victim) as file:
            held = dict(file)
        np.savez(victim, **(held | {"cases": held["cases"] + 1}))
    with caplog.at_level(logging.WARNING, logger="engine.runs"):
        jobs.run(spec())
    assert [r for r in caplog.records if victim.name in r.getMessage() and "again" in r.getMessage()]
    found = shards_of(key)
    assert found.keys() == expected.keys()
    for name, arrays in expected.items():
        for part, values in arrays.items():
            if part != "seconds":
                np.testing.assert_array_equal(found[name][part], values, err_msg=f"{name} {part}")


def test_a_full_disk_while_a_shard_is_written(home, spec, monkeypatch) -> None:
    key = spec().resolved().key()

    def half(file, **_) -> None:
        file.write(b"PK half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(RunError, match=r"no space left.*resume"):
        patch.setattr(execute.np, "savez", half)
        jobs.run(spec())
    failed = jobs.progress(key)
    assert failed.status == "failed" and "Free some space" in failed.error["remedy"]
    assert list((store.folder(key) / "shards").iterdir()) == [], "nothing half written stays"
    assert jobs.run(spec()).attrs["key"] == key


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("write failed: errno = 28")])
def test_a_full_disk_while_results_are_written(home, spec, monkeypatch, fault) -> None:
    """HDF5 says it in its own way. No half a file is ever seen under the final name."""
    key = spec().resolved().key()

    def half(dataset, path, **_) -> None:
        path.write_bytes(b"\x89HDF half")
        raise fault

    with monkeypatch.context() as patch, pytest.raises(RunError, match="no space left"):
        patch.setattr(fields.xr.Dataset, "to_netcdf", half)
        jobs.run(spec())
    assert not [p for p in store.folder(key).iterdir() if p.suffix in (".nc", ".part")]
    assert jobs.run(spec()).attrs["key"] == key


def test_other_faults_are_not_called_a_full_disk() -> None:
    with pytest.raises(RuntimeError, match="a bug"), pieces.writing(store.folder("k")):
        raise RuntimeError("a bug")


def test_what_a_dead_writer_left_is_swept(home, spec, monkeypatch) -> None:
    key = unfinished(spec(), monkeypatch)
    left = store.folder(key) / "shards" / "verify-00-000000-2.123.part"
    left.write_bytes(b"half")
    jobs.run(spec())
    assert not left.exists()


def test_a_home_that_cannot_be_made(spec, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("NUSCOPE_HOME", str(tmp_path / "file" / "home"))
    settings.cache_clear()
    try:
        for act in (jobs.runs, lambda: jobs.progress("abc"), lambda: jobs.submit(spec())):
            with pytest.raises(RunError, match="NUSCOPE_HOME"):
                act()
    finally:
        settings.cache_clear()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_without_rights(home, spec) -> None:
    jobs.runs()
    home.chmod(0o500)
    try:
        with pytest.raises(RunError, match="NUSCOPE_HOME"):
            jobs.submit(spec())
    finally:
        home.chmod(0o700)


def test_a_read_only_table(home, spec, monkeypatch) -> None:
    """What SQLite says on a read-only file system, where root would be let through."""
    jobs.runs()
    true = sqlite3.connect
    monkeypatch.setattr(store.sqlite3, "connect", lambda path, **options: true(f"file:{path}?mode=ro", uri=True, **options))
    assert jobs.runs() == []  # looking needs no rights
    with pytest.raises(store.TableError, match=r"readonly.*NUSCOPE_HOME"):
        jobs.submit(spec())


def hold(path, seconds: float) -> threading.Thread:
    """Another that holds the table for a while."""
    held = threading.Event()

    def run() -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        held.set()
        time.sleep(seconds)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert held.wait(10)
    return thread


def test_a_table_that_is_held_is_waited_for(home, spec) -> None:
    jobs.runs()
    thread = hold(settings().table, 1.0)
    began = time.monotonic()
    assert jobs.runs() == []
    assert time.monotonic() - began > 0.5
    thread.join()


def test_a_table_that_stays_held_is_a_refusal(home, spec, monkeypatch) -> None:
    jobs.runs()
    monkeypatch.setattr(store, "PATIENCE", 0.2)
    thread = hold(settings().table, 1.5)
    with pytest.raises(store.TableError, match=r"locked.*Another process"):
        jobs.runs()
    thread.join()


def test_a_run_goes_on_while_the_table_is_held(home, spec, monkeypatch, caplog) -> None:
    """It cannot tell how far it is, and computes on; its end is told as soon as the table is free."""
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    threads = []

    def listen(done: int, total: int, message: str) -> None:
        if total and not threads:
            threads.append(hold(settings().table, 3.0))

    with caplog.at_level(logging.WARNING, logger="engine.worker"):
        try:
            jobs._record(spec().resolved())
            key = spec().resolved().key()
            with store.table() as connection:
                connection.execute("UPDATE runs SET status = 'running', pid = ?, pid_started = ?", (os.getpid(), store.born(os.getpid())))
            worker.work(key, listen)
        finally:
            [t.join() for t in threads]
    assert any("goes on without telling" in r.getMessage() for r in caplog.records)
    assert row(key)["status"] == "done"


def test_an_edited_spec_is_put_right_and_said_so(home, spec, caplog) -> None:
    key = jobs._record(spec().resolved())
    path = store.folder(key) / "spec.json"
    for text in (path.read_text().replace('"members": 4', '"members": 40'), "{ half"):
        path.write_text(text)
        with store.table() as connection:
            connection.execute("UPDATE runs SET status = 'cancelled'")
        with caplog.at_level(logging.WARNING, logger="engine.worker"):
            shutil.rmtree(store.folder(key) / "shards", ignore_errors=True)
            # resumed as it was submitted: the table's spec counts, the folder holds its copy
            with store.table() as connection:
                connection.execute("UPDATE runs SET status = 'queued'")
            assert worker.main(key) == 0
        assert '"members": 4,' in path.read_text()
        assert jobs.result(key).attrs["members"] == 4
    assert sum("written again" in r.getMessage() for r in caplog.records) == 2


def test_a_file_that_changed_after_it_was_submitted_is_refused(home, make, world, tmp_path) -> None:
    """Its numbers would stand under the key of another content, and beside shards of it."""
    moved = shutil.copytree(world.folder, tmp_path / "mine")
    asked = make.spec(world, data=(moved / "verify.nc",))
    key = jobs._record(asked.resolved())
    make.fields("0004-01-01", 30, 9).to_netcdf(moved / "verify.nc", engine="h5netcdf")
    assert worker.main(key) == 2
    assert "changed after it was submitted" in jobs.progress(key).error["found"]
    (moved / "verify.nc").unlink()
    with store.table() as connection:
        connection.execute("UPDATE runs SET status = 'queued'")
    assert worker.main(key) == 2
    assert "verify.nc" in jobs.progress(key).error["what"]


def test_a_fault_of_ours_is_recorded_with_its_place(home, spec, monkeypatch) -> None:
    monkeypatch.setattr(execute, "make_plan", lambda _: 1 / 0)
    key = jobs._record(spec().resolved())
    assert worker.main(key) == 1
    error = jobs.progress(key).error
    assert "ZeroDivisionError" in error["found"] and "log.txt" in error["remedy"] and "test_trouble.py" in error["remedy"]


def test_a_worker_that_cannot_start_hides_no_other_run(home, spec, finished_run, monkeypatch) -> None:
    def fails(*_, **__) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(jobs.subprocess, "Popen", fails)
    key = jobs.submit(spec())
    assert {p.key: p.status for p in jobs.runs()} == {finished_run: "done", key: "failed"}
    assert "Cannot allocate memory" in jobs.progress(key).error["found"]


def test_a_home_named_relative_to_here_is_the_workers_too(spec, wait, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUSCOPE_HOME", "here")
    settings.cache_clear()
    try:
        key = jobs.submit(spec())
        wait(key, lambda p: p.status == "done")
        assert (tmp_path / "here" / "runs" / key / "verification.nc").exists()
    finally:
        settings.cache_clear()
        for child in jobs._children:
            child.wait(timeout=30)
        jobs._children.clear()


def test_too_little_memory_is_said_before_anything_runs(home, spec, monkeypatch) -> None:
    monkeypatch.setenv("NUSCOPE_MEMORY_LIMIT", str(10**6))
    settings.cache_clear()
    with pytest.raises(EngineError, match=r"GiB needed.*Fewer members"):
        jobs.run(spec())
