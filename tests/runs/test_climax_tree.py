"""A tree of ClimaX shards: what it says about its splits is what is done with them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.runs import jobs
from engine.runs.plan import make_plan
from engine.runs.spec import parse_spec, read_spec

ROOT = Path(__file__).resolve().parents[2]
YEARS = {"train": 2015, "val": 2016, "test": 2017}


@pytest.fixture
def tree(tmp_path, make, world):
    """Daily fields of a year in each folder, cut short to 73 fields (every 5 days), and a checkpoint for them."""
    folder = tmp_path / "shards"
    for seed, (split, year) in enumerate(YEARS.items()):
        data = make.fields("0001-01-01", 73, seed)
        (folder / split).mkdir(parents=True)
        np.savez(folder / split / f"{year}_0.npz", **{str(n): data[n].values[:, None] for n in data.data_vars})
    np.save(folder / "lat.npy", data.latitude.values)
    np.save(folder / "lon.npy", data.longitude.values)
    return folder


@pytest.fixture
def daily(monkeypatch):
    """73 fields a year do not divide its hours into a step that is known: the step is named, as a user of Python would."""
    import engine.runs.plan as plan

    opened = plan.open_dataset
    monkeypatch.setattr(plan, "open_dataset", lambda *args, **named: opened(*args, **(named | {"step_hours": 24})))


def of_tree(tree, world, **changes):
    few = {"nu": (2, 16), "members": 4, "max_cases": 5, "calibrate_cases": 4, "calibrate_members": 2, "bootstrap": 100, "maps": False}
    named = {"checkpoint": world.checkpoint, "data": (tree,), "variables": ("geopotential_height_500",)}
    return parse_spec(named | few | {"scores": ("crps_fair", "w1_pit", "rmse")} | changes)


def test_operating_points_are_chosen_on_val_and_verified_on_test(home, tree, world, daily):
    spec = of_tree(tree, world)
    plan = make_plan(spec)
    assert {str(c.init_time)[:4] for c in plan.calibrate} == {"2016"}
    assert {str(c.init_time)[:4] for c in plan.cases[0]} == {"2017"}
    assert any("shards/val is the data to calibrate on" in change for change in plan.dataset.changes)
    points = json.loads(jobs.run(spec).attrs["operating_points"])
    assert {p["chosen_on"] for p in points.values()} == {"calibrate"}


def test_a_tree_without_val_chooses_on_test_and_says_so(home, tree, world, daily):
    (tree / "val").rename(tree / "other")
    points = json.loads(jobs.run(of_tree(tree, world)).attrs["operating_points"])
    assert {p["chosen_on"] for p in points.values()} == {"verify"}


def test_a_file_named_to_calibrate_on_comes_before_the_trees_own(tree, world, daily):
    other = tree.parent / "more" / "val"
    (tree / "val").rename(tree / "kept")
    other.mkdir(parents=True)
    (tree / "kept" / "2016_0.npz").rename(other / "2016_0.npz")
    for axis in ("lat", "lon"):
        (other.parent / f"{axis}.npy").write_bytes((tree / f"{axis}.npy").read_bytes())
    plan = make_plan(of_tree(tree, world, calibrate=(other,)))
    assert {str(c.init_time)[:4] for c in plan.calibrate} == {"2016"}


def test_what_needs_calibration_takes_the_trees(tree, world, tmp_path):
    """By Python, and by a file whose paths are relative to it."""
    assert of_tree(tree, world, posthoc="temperature_variance").gives("calibrate")
    named = {"checkpoint": str(world.checkpoint), "data": ["shards"], "tune": {}}
    (tmp_path / "spec.json").write_text(json.dumps(named))
    assert read_spec(tmp_path / "spec.json").data == (tmp_path / "shards",)
    (tree / "val").rename(tree / "other")
    with pytest.raises(Exception, match="needs calibration files"):
        read_spec(tmp_path / "spec.json")


def test_a_method_that_learns_takes_train(tree, world, daily):
    spec = of_tree(tree, world, method="director", nu=(1,))
    assert spec.gives("fit")
    assert make_plan(spec).dataset.splits.keys() == {"fit", "calibrate", "verify"}


def test_calibrate_on_the_command_line_takes_a_tree_alone(home, tree, world):
    """No --calibrate is asked for; what stops it here is the step, which the tiny shards do not tell."""
    command = [sys.executable, "-m", "engine", "calibrate", "--checkpoint", str(world.checkpoint), "--data", str(tree), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "--calibrate" not in done.stdout and "73 fields in" in done.stdout
