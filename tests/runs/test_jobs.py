"""Runs as people meet them: submitted twice, cancelled, killed, resumed; the numbers are those of an undisturbed run."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import xarray as xr

from engine.errors import EngineError, RunError
from engine.runs import jobs, store
from engine.runs.verification import open_verification

SUBMIT = "import sys; from engine.runs import jobs, spec; print(jobs.submit(spec.RunSpec.model_validate_json(sys.argv[1])))"


def processes(key: str) -> list[psutil.Process]:
    """Living workers of a run."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if (process.info["cmdline"] or [])[-2:] == ["engine.runs.worker", key] and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def row(key: str) -> dict:
    with store.table() as connection:
        return dict(store.row(connection, key))


def change(key: str, **values) -> None:
    assert store.update(key, **values)


def arrays(key: str) -> dict[str, np.ndarray]:
    """Every number of both result files, but the time that it took."""
    found = {}
    for name in ("verification.nc", "fields.nc"):
        with xr.open_dataset(store.folder(key) / name, engine="h5netcdf") as file:
            found |= {f"{name}:{n}": v.values for n, v in file.variables.items() if n != "seconds"}
    return found


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_submitted_twice_is_one_run(home, spec, monkeypatch) -> None:
    monkeypatch.setattr(jobs, "dispatch", lambda: None)
    keys = {jobs.submit(spec()), jobs.submit(spec(title="again")), jobs.submit(spec().model_dump())}
    assert len(keys) == 1 and len(jobs.runs()) == 1
    assert jobs.runs()[0].status == "queued"


def test_two_processes_submit_at_once(workers, spec) -> None:
    """On a home that does not exist yet, where even the table is made by both."""
    text = spec().resolved().model_dump_json()
    both = [subprocess.Popen([sys.executable, "-c", SUBMIT, text], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=120)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1]
    assert len(jobs.runs()) == 1
    key = answers[0]
    assert len(processes(key)) <= 1, "one worker at most"
    jobs.cancel(key)  # its parent is gone: nobody else would end it


def test_a_finished_run_is_found_and_not_computed_again(home, spec) -> None:
    key = jobs.run(spec()).attrs["key"]
    before = (store.folder(key) / "verification.nc").stat().st_mtime_ns
    assert jobs.submit(spec()) == key
    assert jobs.progress(key).share == 1.0
    jobs.run(spec())
    assert (store.folder(key) / "verification.nc").stat().st_mtime_ns == before


def test_results_that_were_lost_are_made_again(home, spec) -> None:
    key = jobs.run(spec()).attrs["key"]
    (store.folder(key) / "verification.nc").unlink()
    with pytest.raises(RunError, match="no verification"):
        jobs.result(key)
    assert jobs.run(spec()).attrs["key"] == key


def test_a_worker_computes_and_tells(workers, spec, wait) -> None:
    key = jobs.submit(spec())
    assert jobs.progress(key).status == "running"
    done = wait(key, lambda p: p.status not in ("queued", "running"))
    assert done.status == "done" and done.done == done.total > 0 and done.finished
    assert jobs.result(key).attrs["key"] == key


def test_killed_three_times_the_numbers_are_those_of_an_undisturbed_run(working, wait, monkeypatch) -> None:
    """The worker alone, at random moments of its work; each time at least one shard was finished before."""
    spec = working(max_cases=40)
    undisturbed = jobs.run(spec)
    key = undisturbed.attrs["key"]
    expected = arrays(key)
    jobs.remove(key)
    assert not store.folder(key).exists()
    chance = random.Random(5)
    assert jobs.submit(spec) == key
    for part in range(3):
        state = wait(key, lambda p, part=part: p.status == "running" and p.total and p.share > 0.2 * (part + 1))
        time.sleep(chance.uniform(0.0, 0.3))
        pid = row(key)["pid"]
        if state.status == "running" and jobs.progress(key).status == "running":
            os.kill(pid, signal.SIGKILL)
    wait(key, lambda p: p.status == "done")
    assert (store.folder(key) / "log.txt").read_text().count(": worker ") == 4, "three workers died, the fourth came to the end"
    same(arrays(key), expected)


def test_server_and_worker_killed_together(working, spec, wait) -> None:
    """The process that submitted is killed too; whoever looks next finds the run, and it goes on from its finished shards."""
    asked = working(max_cases=40)
    server = subprocess.Popen(
        [sys.executable, "-c", SUBMIT + "; import time; time.sleep(600)", asked.resolved().model_dump_json()],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        key = server.stdout.readline().strip()
        with store.table() as connection:  # looking without looking after: the server does that
            pid = store.row(connection, key)["pid"]
        until = time.monotonic() + 60
        while len(list((store.folder(key) / "shards").glob("verify*.npz"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    os.kill(pid, signal.SIGKILL)
    finished = {p.name: p.stat().st_mtime_ns for p in (store.folder(key) / "shards").glob("*.npz")}
    assert len(finished) >= 2
    wait(key, lambda p: p.status == "done")
    now = {p.name: p.stat().st_mtime_ns for p in (store.folder(key) / "shards").glob("*.npz")}
    assert now.items() >= finished.items(), "what was finished was not computed again"
    disturbed = arrays(key)
    jobs.remove(key)
    assert jobs.run(asked).attrs["key"] == key
    same(disturbed, arrays(key))


def test_cancel_within_a_second_and_resume_from_there(working, wait) -> None:
    key = jobs.submit(working())
    shards = store.folder(key) / "shards"
    wait(key, lambda p: any(shards.glob("*.npz")))  # the work on the calibration split counts as done, but is no shard
    worker = processes(key)[0]
    began = time.monotonic()
    jobs.cancel(key)
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert time.monotonic() - began < 1.0
    state = jobs.progress(key)
    assert state.status == "cancelled" and 0 < state.share < 1
    finished = set(shards.glob("*.npz"))
    with pytest.raises(RunError, match="cancelled"):
        jobs.result(key)
    jobs.resume(key)
    fresh = wait(key, lambda p: p.status == "running" and p.message not in ("", "starting", "opening the model and the data"))
    assert fresh.done >= len(finished) > 0
    assert set(shards.glob("*.npz")) >= finished
    jobs.cancel(key)


def test_a_resumed_run_judges_its_remaining_time_by_what_is_new(home, spec) -> None:
    key = jobs._record(spec().resolved())
    change(
        key,
        status="running",
        pid=os.getpid(),
        pid_started=store.born(os.getpid()),
        done=90,
        total=100,
        done_before=90,
        started=time.time() - 60,
    )
    assert jobs.progress(key).seconds_left is None, "nothing new yet: nothing is known"
    change(key, done=95)
    assert jobs.progress(key).seconds_left == pytest.approx(60, rel=0.05)  # five in 60 s, five left


def test_a_clock_that_is_set_back_gives_no_negative_time(home, spec) -> None:
    key = jobs._record(spec().resolved())
    change(key, status="running", pid=os.getpid(), pid_started=store.born(os.getpid()), done=50, total=100, started=time.time() + 3600)
    assert jobs.progress(key).seconds_left == 0


def test_a_worker_lives_whatever_the_clock_says(monkeypatch) -> None:
    """Its birth is told in ticks since boot: a clock that jumps an hour makes no living worker a dead one."""
    me, then = os.getpid(), store.born(os.getpid())
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: time.time() - 7200)
    assert store.alive(me, then)
    assert not store.alive(me, then - 500), "the same id, another process"
    assert not store.alive(2**22 + 5, None)


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        until = time.monotonic() + 30
        while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
            time.sleep(0.02)
        assert not store.alive(child.pid, None)
    finally:
        child.wait()


@pytest.mark.parametrize("key", ["", "../../etc", "a/b", "x" * 65, "none0123456789ab", "a'; DROP TABLE runs; --", "²", "\0"])
def test_unknown_and_hostile_keys(home, key) -> None:
    for act in (jobs.progress, jobs.cancel, jobs.resume, jobs.remove, jobs.result):
        with pytest.raises(RunError):
            act(key)
    assert home.exists() and jobs.runs() == []


def test_a_worker_that_always_dies_is_given_up_with_a_remedy(workers, spec, monkeypatch, wait) -> None:
    """As under the kernel's out-of-memory killer: SIGKILL before any shard is finished."""
    killer = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    started = []

    class Killed(subprocess.Popen):
        def __init__(self, command, **options) -> None:
            started.append(command)
            super().__init__(killer, **options)

    monkeypatch.setattr(jobs.subprocess, "Popen", Killed)
    key = jobs.submit(spec())
    failed = wait(key, lambda p: p.status == "failed", seconds=60)
    assert len(started) == jobs.MAX_ATTEMPTS
    assert "died 5 times" in failed.error["found"] and "memory" in failed.error["remedy"]
    with pytest.raises(EngineError, match="died"):
        jobs.result(key)
    monkeypatch.undo()
    jobs.resume(key)
    assert row(key)["attempts"] == 1, "resuming counts anew"


def test_only_finished_shards_count_as_getting_somewhere(home, spec, monkeypatch) -> None:
    """A worker that is killed in the middle of each first shard must not be restarted for ever."""
    from engine.runs import execute

    monkeypatch.setattr(execute, "run_shard", lambda plan, shard, place, states, tick: [tick(1, "half a shard"), os_killed()])
    key = jobs._record(spec().resolved())
    change(key, attempts=3)
    with pytest.raises(SystemError):
        jobs.run(spec())
    assert row(key)["attempts"] == 1, "the evaluations of the calibration split were finished, and are kept"
    change(key, attempts=3, status="queued", pid=None)
    with pytest.raises(SystemError):
        jobs.run(spec())
    assert row(key)["attempts"] == 4, "what was there already is no progress"


def os_killed() -> None:
    raise SystemError("as if killed")


def test_what_is_cancelled_from_elsewhere_stops_a_run_inside_a_program(home, spec) -> None:
    """`engine.run` in a thread or a notebook: nobody can kill it, so it looks."""

    def stop(done: int, total: int, message: str) -> None:
        if total and done:
            jobs.cancel(key)

    key = jobs._record(spec().resolved())
    with pytest.raises(RunError, match="cancelled"):
        jobs.run(spec(), stop)
    assert jobs.progress(key).status == "cancelled"
    assert not (store.folder(key) / "verification.nc").exists()


def test_one_who_waits_for_another_sees_its_progress(working, spec) -> None:
    asked = working(max_cases=20)
    key = jobs.submit(asked)
    seen = []
    assert jobs.run(asked, lambda done, total, message: seen.append((done, total))).attrs["key"] == key
    assert seen and seen[-1][1] > 0


def test_the_next_in_the_queue_starts_when_one_is_done(workers, spec, wait) -> None:
    """One slot: the second waits, and its worker is started by the first one's, without anybody looking."""
    first, second = jobs.submit(spec()), jobs.submit(spec(seed=1))
    assert row(second)["status"] == "queued"
    until = time.monotonic() + 120
    while row(second)["status"] != "done" and time.monotonic() < until:  # the row alone: nobody dispatches here
        time.sleep(0.1)
    assert row(first)["status"] == row(second)["status"] == "done"
    assert open_verification(store.folder(second)).attrs["seed"] == 1


def test_a_second_worker_of_one_run_leaves_it_alone(home, spec) -> None:
    from engine.runs import worker

    key = jobs._record(spec().resolved())
    mine = psutil.Process().ppid()
    change(key, status="running", pid=mine, pid_started=store.born(mine))
    assert worker.main(key) == 0
    assert row(key)["pid"] == mine and not (store.folder(key) / "shards").exists()
    # whoever started it died before it could say so: the row is still queued, and this worker takes it
    change(key, status="queued", pid=None)
    assert worker.main(key) == 0
    assert row(key)["status"] == "done"
