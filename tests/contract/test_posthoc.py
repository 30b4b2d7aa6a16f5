"""What every post-hoc method promises, run over all of them with each choice of their parameters."""

import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from engine.errors import EngineError
from engine.kernels.area import region_weights
from engine.labelled import Classifies
from engine.registry import catalogue, entries
from engine.runs.accumulate import Accumulator, finalise
from engine.runs.posthoc import after, fit_state, load_state, save_state
from engine.types import EnsembleView, Method, PostHoc

ENTRIES = {key: entry for key, entry in entries("methods").items() if isinstance(entry, PostHoc)}
LAT, LON = np.linspace(75, -75, 6), np.arange(0.0, 360.0, 45.0)
WEIGHTS = region_weights(LAT, LON)


def choices(entry):
    """Default parameters, and each value of each field in turn."""
    fields = entry.Params.model_fields
    options = [{}] + [
        {name: value}
        for name, field in fields.items()
        for value in get_args(field.annotation) or ([True] if field.annotation is bool else [])
    ]
    return [o if "normalised" not in o else o | {"kind": "split"} for o in options]


EACH = [(key, given) for key, entry in ENTRIES.items() for given in choices(entry)]


def made(cases=30, members=8, seed=0, holes=False, space=(6, 8)):
    """An ensemble half as wide as it should be."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(cases, *space))
    x = (centre + 0.5 * rng.normal(size=(members, cases, *space))).astype(np.float32)
    y = (centre + rng.normal(size=(cases, *space))).astype(np.float32)
    if holes:
        x[rng.random(x.shape) < 0.1] = np.nan
        y[rng.random(y.shape) < 0.2] = np.nan
        x[:, 0], y[1] = np.nan, np.nan  # a case without members, one without observation
        x[1:, 2] = np.nan  # one member left
    return x, y


def test_the_family_holds_both_kinds():
    assert {"temperature_variance", "isotonic", "conformal"} <= set(ENTRIES)
    assert all(isinstance(e, Method | PostHoc | Classifies) for e in entries("methods").values())
    assert set(ENTRIES) <= {e.key for e in catalogue("methods")}


def test_importing_the_family_stays_light():
    heavy = "{'torch', 'sklearn', 'skopt', 'arch', 'scipy', 'streamlit'}"
    code = f"import sys; from engine.registry import entries; entries('methods'); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("key", ENTRIES)
def test_declares_what_pages_are_written_from(key):
    entry = ENTRIES[key]
    assert entry.key == key
    assert entry.title and entry.reference and type(entry).__doc__ and type(entry).fit.__doc__
    assert entry.guarantee.endswith(".") and "break" in entry.guarantee
    assert all(field.description for field in entry.Params.model_fields.values())
    assert entry.Params.model_config["frozen"]
    with pytest.raises(ValidationError):
        entry.Params(no_such_field=1)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(("key", "given"), EACH)
def test_keeps_shapes_and_holes_and_is_the_same_each_time(key, given, holes):
    entry, params = ENTRIES[key], ENTRIES[key].Params(**given)
    x, y = made(holes=holes)
    before = x.copy()
    state, again = (fit_state(entry, x, y, WEIGHTS, params) for _ in range(2))
    for name, value in state.items():
        assert isinstance(value, np.ndarray) and value.dtype.kind in "fiubU", name
        np.testing.assert_array_equal(value, again[name])
    fresh, truth = made(cases=5, seed=1, holes=holes)
    view = after(entry, params, state, fresh, truth, WEIGHTS, thresholds=(0.5,))
    assert view.members.shape == fresh.shape and view.members.dtype == fresh.dtype
    np.testing.assert_array_equal(np.isnan(view.members), np.isnan(fresh))
    assert view.thresholds == (0.5,)
    for low, high in view.intervals.values():
        assert low.shape == high.shape == truth.shape
        known = EnsembleView(fresh, truth).count > 1
        assert (low[known] <= high[known]).all()
    np.testing.assert_array_equal(x, before)  # nothing is changed in place
    text = entry.report(state, params)
    assert str(8) in text or "cases" in text
    assert "nan" not in text


@pytest.mark.parametrize(("key", "given"), EACH)
def test_a_case_does_not_depend_on_its_neighbours(key, given):
    entry, params = ENTRIES[key], ENTRIES[key].Params(**given)
    state = fit_state(entry, *made(), WEIGHTS, params)
    fresh, truth = made(cases=4, seed=2, holes=True)
    whole, one = (after(entry, params, state, fresh[:, part], truth[part], WEIGHTS) for part in (slice(None), slice(3, 4)))
    np.testing.assert_array_equal(whole.members[:, 3:], one.members)
    for level, ends in one.intervals.items():
        np.testing.assert_array_equal(whole.intervals[level][0][3:], ends[0])


@pytest.mark.parametrize(("key", "given"), EACH)
def test_what_comes_out_can_be_scored(key, given):
    entry, params = ENTRIES[key], ENTRIES[key].Params(**given)
    state = fit_state(entry, *made(cases=60), WEIGHTS, params)
    fresh, truth = made(cases=60, seed=3)
    names, values = ("coverage_95", "width_95", "w1_pit"), []
    for view in (EnsembleView(fresh, truth), after(entry, params, state, fresh, truth, WEIGHTS)):
        sums = Accumulator(names, WEIGHTS, 8, grid=False)
        sums.add(view, range(60))
        out = finalise(sums.result(), names, members=8, replicates=10, block=1)
        values.append({name: out[name][0] for name in names})
    # half as wide as it should be: whatever a method does, the 95 % interval must come to hold more
    assert values[1]["coverage_95"] > values[0]["coverage_95"] + 0.1
    assert values[1]["width_95"] > values[0]["width_95"]


@pytest.mark.parametrize(
    ("cases", "members", "space"), [(1, 8, (6, 8)), (1, 8, ()), (30, 8, ()), (1, 2, ()), (3, 1, ()), (0, 8, ()), (2, 3, (1, 1))]
)
@pytest.mark.parametrize(("key", "given"), EACH)
def test_small_splits_are_refused_or_used_but_never_crash(key, given, cases, members, space):
    entry, params = ENTRIES[key], ENTRIES[key].Params(**given)
    weights = WEIGHTS if space == (6, 8) else np.ones((1, *space))
    x, y = made(cases, members, space=space)
    try:
        state = fit_state(entry, x, y, weights, params)
    except EngineError as refusal:
        assert refusal.found and refusal.expected and refusal.remedy
        return
    view = after(entry, params, state, x, y, weights)
    assert np.isfinite(view.members).all()
    assert entry.report(state, params)


@pytest.mark.parametrize(("key", "given"), EACH)
@pytest.mark.parametrize("wrong", ["no observation", "infinite", "shapes", "weights"])
def test_a_split_that_teaches_nothing_is_refused(key, given, wrong):
    x, y = made()
    weights = WEIGHTS
    if wrong == "no observation":
        y = np.full_like(y, np.nan)
    elif wrong == "infinite":
        x[0, 0, 0, 0] = np.inf
    elif wrong == "shapes":
        y = y[:-1]
    else:
        weights = WEIGHTS[:, :3]
    with pytest.raises(EngineError) as refusal:
        fit_state(ENTRIES[key], x, y, weights, ENTRIES[key].Params(**given))
    assert refusal.value.remedy


@pytest.mark.parametrize(("key", "given"), EACH)
def test_a_state_survives_its_file(key, given, tmp_path):
    entry, params = ENTRIES[key], ENTRIES[key].Params(**given)
    state = fit_state(entry, *made(), WEIGHTS, params)
    path = tmp_path / "state.npz"
    assert load_state(path, entry, params) is None
    save_state(path, entry, params, state)
    back = load_state(path, entry, params)
    assert back is not None and back.keys() == state.keys()
    fresh, truth = made(cases=2, seed=4)
    for name in state:
        np.testing.assert_array_equal(back[name], state[name])
    first, second = (after(entry, params, s, fresh, truth, WEIGHTS) for s in (state, back))
    np.testing.assert_array_equal(first.members, second.members)
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]
