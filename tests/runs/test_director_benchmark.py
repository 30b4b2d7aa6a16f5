"""The DIRECTOR benchmark on tiny sets: pooled over seeds, resumed from its work folder, and its options on the command line."""

import importlib.util
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from engine.errors import SpecError
from engine.labelled import Labelled
from engine.runs import benchmarks
from engine.runs.benchmarks import _sets, director
from engine.runs.classify.scores import Scored, score_table

_place = importlib.util.spec_from_file_location("tiny_classifier", Path(__file__).parents[1] / "tiny_classifier.py")
tiny = importlib.util.module_from_spec(_place)
_place.loader.exec_module(tiny)


def pictures(data: Path | None, sizes: _sets.Sizes) -> _sets.Sets:
    """Three noisy pictures as a set of the benchmark."""
    del data
    made = {}
    for name, (count, seed) in tiny.SETS.items():
        images, labels = tiny.pictures(count, seed)
        made[name] = Labelled("images", images, labels, tiny.CLASSES, fingerprint=name)
    made["outside"] = Labelled("images", np.zeros((12, 8, 8, 1), np.uint8), np.full(12, -1), tiny.CLASSES)
    parts = _sets._images("Pictures", made, sizes, patch=4, width=16, outside="black")
    return _sets.replace(parts, shifted={"again": _sets.some(made["verify"], 20)})


@pytest.fixture
def run(monkeypatch, tmp_path, home):
    """`run(**options)`: a benchmark of seconds."""
    monkeypatch.setitem(_sets.KNOWN, "pictures", pictures)
    few = {"sets": ("pictures",), "seeds": 2, "epochs": 2, "members": 2, "depth": 2, "heads": 2, "work": tmp_path / "work"}
    few |= {"methods": ("deterministic", "director", "director:s1", "director:no_noise")}
    return lambda **changes: director.run(None, **(few | changes))


def test_pooled_over_seeds_and_kept(run, monkeypatch) -> None:
    found = run()
    own = found["sets"]["pictures"]
    assert own["cases"] == 90 and own["seeds"] == 2 and found["sets"]["pictures:again"]["cases"] == 20
    assert [r["entry"] for r in own["rows"]] == ["deterministic", "director", "director:s1", "director:no_noise"]
    for row in own["rows"]:
        for name in (*director.COMPARED, "auroc_ood", "milliseconds"):
            assert row[name].keys() == {"mean", "sd"}
    assert own["differences"].keys() == {"deterministic", "director:s1", "director:no_noise"}
    rows = {r["entry"]: r for r in own["rows"]}
    for other, scores in own["differences"].items():
        apart = rows["director"]["nll"]["mean"] - rows[other]["nll"]["mean"]
        assert scores["nll"]["value"] == pytest.approx(apart) and scores["nll"]["low"] <= apart <= scores["nll"]["high"]
    text = director.text(found)
    assert "DIRECTOR, no noise" in text and "±" in text and "exclude zero" in text
    monkeypatch.setattr(director, "execute_classification", lambda *_: pytest.fail("computed again"))
    monkeypatch.setattr("engine.methods._train.train", lambda *_, **__: pytest.fail("trained again"))
    again = run()
    assert json.dumps(again["sets"]) == json.dumps(found["sets"])  # NaN is no equal of itself
    with pytest.raises(pytest.fail.Exception, match="again"):
        run(epochs=3)  # other settings are other numbers


def test_the_interval_of_a_pooled_difference_is_paired() -> None:
    """Two methods that make the same mistakes but one: far surer a difference than the scores themselves."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    right = np.where(rng.random(400) < 0.7, labels, 1 - labels)
    p = np.stack([1 - 0.8 * right - 0.1, 0.8 * right + 0.1], 1)
    q = p.copy()
    q[np.flatnonzero(right != labels)[0]] = q[np.flatnonzero(right != labels)[0]][::-1]
    one, other = (score_table(x, labels, ["accuracy"], replicates=300)["accuracy"] for x in (q, p))
    found = director._difference([(one, other), (one, other)])
    assert found["value"] == pytest.approx(1 / 400) and found["sd"] == 0
    assert found["high"] - found["low"] < 0.2 * (one.high - one.low)
    nothing = director._difference([(Scored(np.nan, np.nan, np.nan, np.full(9, np.nan)),) * 2])
    assert np.isnan(nothing["value"]) and np.isnan(nothing["low"])


def test_splits_are_disjoint_and_the_same_for_every_seed() -> None:
    whole = Labelled("text", np.array([str(i) for i in range(1003)]), np.zeros(1003, np.int64), ("a", "b"))
    parts = _sets.apart(whole, (7, 1, 2))
    assert sorted(np.concatenate([p.inputs for p in parts]).tolist()) == sorted(whole.inputs.tolist())
    assert [round(len(p) / 100) for p in parts] == [7, 1, 2]
    assert all((p.inputs == q.inputs).all() for p, q in zip(parts, _sets.apart(whole, (7, 1, 2)), strict=True))


def test_sets_are_written_as_files_that_are_read_back(tmp_path) -> None:
    from engine.data import open_labelled

    text = Labelled("text", np.array(['a "quoted" one', "two,\nlines"], object), np.array([1, 0]), ("bad", "good"))
    back = open_labelled(_sets.write(text, tmp_path / "text"), classes=text.classes)
    assert back.inputs.tolist() == text.inputs.tolist() and back.labels.tolist() == [1, 0]
    images, labels = tiny.pictures(5, 0)
    back = open_labelled(_sets.write(Labelled("images", images, labels, tiny.CLASSES), tmp_path / "images"), classes=tiny.CLASSES)
    assert (back.inputs == images).all() and (back.labels == labels).all()


def test_options_are_read_by_the_benchmarks_own_signature() -> None:
    known = inspect.signature(director.run, eval_str=True).parameters
    given = benchmarks.options_of("director", known, ["--seeds", "2", "--sets=fashion,cola", "--train-cases", "0", "--work", "x"])
    assert given == {"seeds": 2, "sets": ("fashion", "cola"), "train_cases": 0, "work": Path("x")}
    for words, says in (
        (["--colour", "red"], "--colour"),
        (["--seeds"], "without a value"),
        (["--seeds", "many"], "integer"),
        (["3"], "3"),
    ):
        with pytest.raises(SpecError, match=says):
            benchmarks.options_of("director", known, words)


def test_a_set_without_its_data_is_refused(run) -> None:
    with pytest.raises(SpecError, match="--data"):
        run(sets=("cola",))
    with pytest.raises(SpecError, match="nowhere"):
        run(sets=("nowhere",))


def test_the_interval_of_a_pooled_difference_holds_the_seeds_scatter() -> None:
    """Two seeds that differ by 0.2: t(1) = 12.7 times their standard error, whatever the examples say."""
    drawn = np.random.default_rng(0).normal(0, 1e-6, 200)
    pairs = [(Scored(v, v, v, v + drawn), Scored(0.0, 0.0, 0.0, 0 * drawn)) for v in (0.4, 0.6)]
    found = director._difference(pairs)
    half = 12.706 * (0.2 / np.sqrt(2)) / np.sqrt(2)
    np.testing.assert_allclose([found["low"], found["high"]], [0.5 - half, 0.5 + half], rtol=1e-3)
