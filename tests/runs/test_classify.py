"""Classification runs: the whole schema, equal keys, resumed and split runs with equal numbers, and what is refused in words."""

import importlib.util
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from engine.errors import CheckpointError, EngineError, RunError, SpecError
from engine.runs import classification, jobs, store
from engine.runs.classify import rows
from engine.runs.classify.entries import method_schema, parse_entry
from engine.runs.classify.execute import examples_to_show, execute_classification
from engine.runs.classify.plan import make_plan
from engine.runs.classify.spec import ClassifySpec
from engine.runs.classify.states import load_state, read_record, save_state
from engine.runs.spec import RunSpec, parse_spec, read_spec


def _module(name: str):
    place = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / f"{name}.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


tiny = _module("tiny_classifier")


@pytest.fixture(scope="session")
def clothes(tmp_path_factory):
    """Files that no test changes."""
    return tiny.write(tmp_path_factory.mktemp("classifier"))


@pytest.fixture
def spec(clothes):
    """`spec(*entries, **changes)`: a tiny run."""
    return lambda *entries, **changes: parse_spec(tiny.fields(clothes, *entries, **changes))


@pytest.fixture
def compute(tmp_path):
    """`compute(spec, name)`: run in a folder of its own, give the result."""

    def run(spec: ClassifySpec, name: str = "run", report=lambda *_: None) -> xr.Dataset:
        (tmp_path / name).mkdir(exist_ok=True)
        execute_classification(spec.resolved(), tmp_path / name, report)
        return classification.open_classification(tmp_path / name)

    return run


def same(one: xr.Dataset, other: xr.Dataset, *, exact: bool = True) -> None:
    """All numbers but times."""
    assert set(one.variables) == set(other.variables)
    for name in set(one.variables) - {"milliseconds", "fit_seconds"}:
        a, b = one[name].values, other[name].values
        if exact or a.dtype.kind not in "f":
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            np.testing.assert_allclose(a, b, atol=2e-6, err_msg=name)


# ---- the result --------------------------------------------------------------------------------------------------------------


def test_the_result_holds_everything_that_the_schema_names(compute, spec) -> None:
    entries = ("deterministic", "temperature_scaling", "stochastic_attention", "director", "director:no_noise", "director:s1")
    asked = spec(*entries, outside={"noise": spec().data[0].with_name("outside.npz")}, corruptions=("blur",), severities=(1, 5))
    found = compute(asked)
    dims = dict(found.sizes)
    assert dims["entry"] == 6 and dims["class"] == 3 and dims["case"] == 90 and dims["example"] == 8 and dims["path"] == 3
    assert list(found["against"].values) == ["deterministic", "director:no_noise"]
    assert list(found["severity"].values) == [0, 1, 5] and list(found["ood"].values) == ["noise"]
    text = classification.__doc__
    per_entry = re.findall(r"[a-z0-9_]+", text[text.index("accuracy, mcc") : text.index("; 95 % bootstrap")])
    detection = re.findall(r"[a-z0-9_]+", text[text.index("auroc_ood_max") : text.index("each with _low")])
    assert len(per_entry) == 12 and len(detection) == 6
    for name in per_entry:
        assert found[name].dims == ("entry",) and found[f"{name}_difference"].dims == ("entry", "against")
        about = {"title", "symbol", "units", "better", "perfect", "estimator", "reference"}
        assert about <= set(found[name].attrs)
        low, value, high = (found[name + end].values for end in ("_low", "", "_high"))
        assert (np.isnan(low) | ((low <= value + 1e-12) & (value <= high + 1e-12))).all(), name
        assert (found[f"{name}_difference"].sel(entry="deterministic", against="deterministic") == 0) or np.isnan(value[0])
    for name in detection:
        assert {found[name + end].dims for end in ("", "_low", "_high")} == {("entry", "ood")}
    for name in ("accuracy", "ece", "nll"):
        assert found[f"{name}_corrupted"].dims == ("entry", "corruption", "severity")
        np.testing.assert_allclose(found[f"{name}_corrupted"].sel(severity=0)[:, 0], found[name])
        assert not np.isnan(found[f"{name}_corrupted"]).any()
    np.testing.assert_allclose(found["probability"].sum("class"), 1, atol=1e-5)
    assert found["probability"].dtype == np.float32
    accuracy = (found["probability"].argmax("class") == found["observed"]).mean("case")
    np.testing.assert_allclose(accuracy, found["accuracy"])
    assert found["accuracy"].sel(entry="deterministic") > 0.6, "the tiny model has learned something"
    paths = found["path_probability"]
    assert paths.dims == ("entry", "example", "path", "class") and found["example_image"].shape == (8, 8, 8, 1)
    assert np.isnan(paths.sel(entry="deterministic")[:, 1:]).all() and not np.isnan(paths.sel(entry="stochastic_attention")).any()
    shown = found["probability"].sel(entry="stochastic_attention").values[found["example"].values]
    np.testing.assert_allclose(paths.sel(entry="stochastic_attention").mean("path"), shown, atol=1e-6)
    assert list(found["members"].values) == [1, 1, 3, 3, 3, 1]
    assert (found["memory_bytes"] == 4 * found["parameters"]).all() and (found["milliseconds"] > 0).all()
    for name in ("step_spread", "step_error", "step_sigma", "step_sigma_variation"):
        assert found[name].dims == ("entry", "step") and np.isnan(found[name].sel(entry="deterministic")).all()
        assert np.isfinite(found[name].sel(entry="director")).all()
    assert found["step_correlation"].dims == ("entry", "step", "step_other")
    assert np.isnan(found["spread_error_auroc"].sel(entry="director:no_noise")), "no spread, nothing to tell mistakes by"
    assert 0 <= found["spread_error_auroc"].sel(entry="stochastic_attention") <= 1
    named = re.findall(r"\b[a-z_]+\b", text[text.index("attrs         ") + 6 :].partition('"""')[0])
    for name in ("task", "command", "spec", "members", "seed", "cases", "title", "version", "teacher", "checkpoint_revision", "data"):
        assert name in named and name in found.attrs
    assert {"kind", "bootstrap", "ece_rule", "notes", "nu", "nu_rule", "key"} <= set(found.attrs)
    assert found.attrs["nu"] in (2, 8) and "calibration" in found.attrs["nu_rule"]
    assert isinstance(json.loads(found.attrs["notes"]), list)
    assert parse_spec(json.loads(found.attrs["spec"])) == asked.resolved()


def test_one_path_is_the_first_of_several(compute, spec) -> None:
    """`director:s1` uses the state of `director`: one training, and the same first path."""
    found = compute(spec("deterministic", "director", "director:s1"))
    first = found["path_probability"].isel(path=0)
    np.testing.assert_allclose(first.sel(entry="director"), first.sel(entry="director:s1"), atol=1e-6)


def test_texts_are_kept_as_texts(tmp_path, compute) -> None:
    from engine.backbones import new_text_encoder

    texts = [f"a {word} film about {i}" for i, word in enumerate(["good", "bad"] * 12)]
    words = ["a", "good", "bad", "film", "about"]
    made = new_text_encoder(("bad", "good"), words, length=6, width=8, depth=2, num_heads=2, hidden=8, dropout=0.1, seed=0)
    made.write(tmp_path / "text.safetensors")
    rows_ = "\n".join(f'"{t}",{"good" if "good" in t else "bad"}' for t in texts)
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows_}\n")
    fields = {"task": "classification", "checkpoint": tmp_path / "text.safetensors", "data": (tmp_path / "reviews.csv",)}
    found = compute(parse_spec(fields | {"corruptions": ("drop_words",), "severities": (5,), "examples": 4, "bootstrap": 100}))
    assert found.attrs["kind"] == "text" and found["example_text"].values[0] in texts
    assert found["accuracy_corrupted"].shape == (1, 1, 2)


def test_examples_that_are_shown() -> None:
    p = np.full((40, 2), 0.5)
    p[:, 0] = np.linspace(0.51, 0.99, 40)
    p[:, 1] = 1 - p[:, 0]
    labels = np.zeros(40, np.int64)
    labels[[10, 20, 30]] = 1
    shown = examples_to_show(p, labels, 12)
    assert list(shown[:3]) == [30, 20, 10], "the most confident mistake first"
    assert list(shown[3:7]) == [0, 1, 2, 3], "then the least certain"
    assert len(set(shown)) == 12 and not {10, 20, 30} & set(shown[3:]) and shown[7] == 39
    assert len(examples_to_show(p, labels, 500)) <= 40 and len(examples_to_show(p, labels, 0)) == 0


# ---- keys and specs ----------------------------------------------------------------------------------------------------------


def test_equal_specs_have_equal_keys(spec, clothes, tmp_path) -> None:
    moved = tmp_path / "elsewhere.npz"
    moved.write_bytes(clothes.verify.read_bytes())
    key = spec("deterministic", "mc_dropout").key()
    assert key == spec("deterministic", "mc_dropout", title="another", shard_cases=7, data=(moved,)).key()
    others = [{"seed": 1}, {"members": 4}, {"nu": (2,)}, {"data": (clothes.calibrate,)}, {"outside": {"x": clothes.outside}}]
    keys = {spec("deterministic", "mc_dropout", **change).key() for change in others} | {spec("deterministic").key(), key}
    assert len(keys) == len(others) + 2


def test_two_kinds_of_specs(spec, clothes, tmp_path) -> None:
    assert isinstance(spec(), ClassifySpec)
    assert isinstance(parse_spec({"checkpoint": "c", "data": ["d"]}), RunSpec)
    path = clothes.folder / "spec.json"
    path.write_text(json.dumps(tiny.fields(clothes) | {"checkpoint": "vit.safetensors", "data": ["verify.npz"]}, default=str))
    assert read_spec(path).resolved() == spec().resolved()


@pytest.mark.parametrize(
    ("entries", "changes", "says"),
    [
        (("director:shaky",), {}, "no_noise"),
        (("Director",), {}, "begins with a method"),
        (("deterministic:16",), {}, "variant '16'"),
        (("deterministic",), {"states": {"director": "x"}}, "states of director"),
        (("deterministic",), {"params": {"sgpa": {}}}, "params of sgpa"),
        (("deterministic",), {"severities": (0,)}, "severities"),
        (("deterministic",), {"colour": 1}, "colour"),
    ],
)
def test_specs_that_do_not_hold_together(spec, entries, changes, says) -> None:
    with pytest.raises(SpecError, match=says):
        spec(*entries, **changes)


@pytest.mark.parametrize(
    ("entries", "changes", "says"),
    [
        (("conformal",), {}, "does not classify"),
        (("nothing",), {}, "nothing"),
        (("director",), {"fit": ()}, "--fit"),
        (("temperature_scaling",), {"calibrate": ()}, "--calibrate"),
        (("stochastic_attention",), {"calibrate": ()}, "one ν"),
        (("mc_dropout",), {"params": {"mc_dropout": {"colour": 1}}}, "colour"),
        (("deterministic",), {"corruptions": ("snow",)}, "snow"),
        (("deterministic",), {"checkpoint": Path("nowhere.safetensors")}, "nowhere"),
    ],
)
def test_runs_that_cannot_be_made_say_so_before_any_work(spec, compute, entries, changes, says) -> None:
    with pytest.raises(EngineError, match=says):
        compute(spec(*entries, **changes))


def test_entries_are_taken_apart() -> None:
    assert parse_entry("director:s5").members == 5 and parse_entry("director:s5").state_name == "director"
    both = parse_entry("director:no_noise:s1")
    assert both.asked == {"noise": "none"} and both.state_name == "director:no_noise" and both.control
    assert parse_entry("kep_svgp:2").asked == {"last": 2} and parse_entry("kep_svgp:2").state_name == "kep_svgp:2"
    assert parse_entry("stochastic_attention:16").nu == 16
    assert "epochs" in method_schema("director")["properties"]


def test_a_fixed_nu_needs_no_calibration(compute, spec) -> None:
    found = compute(spec("deterministic", "stochastic_attention:4", "stochastic_attention:32", calibrate=(), max_cases=30))
    assert found.attrs["cases"] == 30 and found.attrs["nu_rule"] == "as asked"
    apart = found["probability"].diff("entry")
    assert (np.abs(apart) > 1e-4).any(("case", "class")).all()


# ---- resumed and split -------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """A worker that dies."""


@pytest.mark.parametrize("after", [0.25, 0.7])
def test_stopped_and_resumed_the_numbers_are_the_same(compute, spec, after) -> None:
    asked = spec("deterministic", "director", "stochastic_attention", params={"director": {"epochs": 3}}, max_cases=50, nu=(2, 8))
    undisturbed = compute(asked, "undisturbed")

    def stop(done: int, total: int, message: str) -> None:
        if total and done > after * total:
            raise Stop

    with pytest.raises(Stop):
        compute(asked, "stopped", stop)
    same(compute(asked, "stopped"), undisturbed)


def test_progress_only_grows_and_comes_to_its_end(compute, spec) -> None:
    told = []
    compute(spec("deterministic", "director", "stochastic_attention"), "run", lambda done, total, message: told.append((done, total)))
    known = [t for t in told if t[1]]
    assert len({total for _, total in known}) == 1
    dones = [done for done, _ in known]
    assert dones == sorted(dones) and dones[-1] == known[0][1] and len(set(dones)) > 10


def test_a_killed_worker_is_followed_by_another(workers, spec, wait) -> None:
    """By the whole machinery: submitted as plain fields, killed, taken up by a second worker."""
    fields = spec(
        "deterministic", "director", "stochastic_attention", params={"director": {"epochs": 25}}, nu=(4,), max_cases=60
    ).model_dump(mode="json")
    key = jobs.submit(fields)
    wait(key, lambda p: p.status == "running" and p.total and p.share > 0.1)
    with store.table() as connection:
        pid = store.row(connection, key)["pid"]
    if jobs.progress(key).status == "running":
        os.kill(pid, signal.SIGKILL)
    wait(key, lambda p: p.status == "done")
    resumed = jobs.result(key)
    assert (store.folder(key) / "log.txt").read_text().count(": worker ") == 2
    assert (store.folder(key) / "states" / "director.safetensors").exists()
    jobs.remove(key)
    same(jobs.run(fields), resumed)


def test_a_classification_is_a_run_like_any_other(home, spec) -> None:
    key = jobs.run(spec("deterministic")).attrs["key"]
    state = jobs.progress(key)
    assert state.status == "done" and state.title == "vit: deterministic on verify.npz" and state.spec["task"] == "classification"
    path = store.folder(key) / "classification.nc"
    before = path.stat().st_mtime_ns
    assert jobs.run(spec("deterministic")).attrs["key"] == key and path.stat().st_mtime_ns == before
    path.unlink()
    with pytest.raises(RunError, match="no classification"):
        jobs.result(key)
    assert jobs.run(spec("deterministic")).attrs["key"] == key and path.exists()


def test_each_nu_that_was_looked_at_is_kept_while_one_is_chosen(compute, spec, tmp_path, monkeypatch) -> None:
    from engine.methods.stochastic_attention import StochasticAttention

    asked = spec("deterministic", "stochastic_attention", nu=(2, 4, 8))
    whole = compute(asked, "whole")

    def stop(done: int, total: int, message: str) -> None:
        if "ν = 8" in message:
            raise Stop

    with pytest.raises(Stop):
        compute(asked, "cut", stop)
    kept = sorted((tmp_path / "cut" / "shards" / "stochastic_attention").glob("choosing-*.npz"))
    assert [p.stem for p in kept] == ["choosing-2", "choosing-4"]
    first: list[int] = []
    real = StochasticAttention.classify
    monkeypatch.setattr(StochasticAttention, "classify", lambda self, *a, nu, **k: first.append(nu) or real(self, *a, nu=nu, **k))
    resumed = compute(asked, "cut")
    assert first[0] == 8, "the others were not made again"
    same(resumed, whole)


def test_numbers_do_not_depend_on_the_batch_split(compute, spec) -> None:
    entries = ("deterministic", "temperature_scaling", "mc_dropout", "stochastic_attention:4", "director", "kep_svgp")
    outside = {"noise": spec().data[0].with_name("outside.npz")}
    one, other = (
        compute(spec(*entries, outside=outside, corruptions=("gaussian_noise",), severities=(3,), shard_cases=n), f"by {n}")
        for n in (37, 90)
    )
    for name in ("probability", "path_probability", "outside_confidence", "accuracy_corrupted", "nll_corrupted", "auroc_ood_entropy"):
        np.testing.assert_allclose(one[name], other[name], atol=1e-5, err_msg=name)


# ---- states ------------------------------------------------------------------------------------------------------------------


def test_a_learned_state_is_used_again(compute, spec, tmp_path) -> None:
    learned = compute(spec("deterministic", "director"), "learned")
    path = tmp_path / "learned" / "states" / "director.safetensors"
    record = read_record(path)
    assert record["method"] == "director" and record["params"]["epochs"] == 2 and record["revision"] and record["seed"] == 0
    again = compute(spec("deterministic", "director", fit=(), params={}, states={"director": path}), "again")
    np.testing.assert_array_equal(again["probability"], learned["probability"])
    assert np.isnan(again["fit_seconds"].sel(entry="director")) and learned["fit_seconds"].sel(entry="director") > 0
    assert "learned before" in again.attrs["notes"]
    with pytest.raises(SpecError, match="epochs = 2"):
        compute(spec("director", params={"director": {"epochs": 5}}, states={"director": path}))
    with pytest.raises(SpecError, match="noise"):
        compute(spec("director:no_noise", params={}, states={"director:no_noise": path}))
    with pytest.raises(CheckpointError, match="method"):
        compute(spec("deep_ensemble", params={}, states={"deep_ensemble": path}))


def test_a_state_of_another_checkpoint_is_refused(compute, spec, tmp_path) -> None:
    compute(spec("deterministic", "temperature_scaling"), "learned")
    path = tmp_path / "learned" / "states" / "temperature_scaling.safetensors"
    other = tiny.write(tmp_path / "other", seed=1, epochs=1)
    with pytest.raises(CheckpointError, match="learned for classifier of revision") as refusal:
        compute(spec("temperature_scaling", checkpoint=other.checkpoint, states={"temperature_scaling": path}))
    assert "this checkpoint" in refusal.value.remedy
    with pytest.raises(CheckpointError, match="no learned state"):
        compute(spec("temperature_scaling", states={"temperature_scaling": spec().checkpoint}))


def test_half_a_state_is_read_as_float32(tmp_path) -> None:
    import torch

    state = {"weight": torch.linspace(0, 1, 7), "temperature": torch.tensor(1.2345678, dtype=torch.float64), "rank": torch.tensor(3)}
    about = {"method": "m", "revision": "r"}
    path = save_state(tmp_path / "s.safetensors", state, params={"a": 1}, seed=0, half=True, **about)
    found, record = load_state(path, **about)
    assert found["weight"].dtype == torch.float32 and torch.allclose(found["weight"], state["weight"], atol=1e-3)
    assert found["temperature"] == state["temperature"] and found["rank"] == 3 and record["params"] == {"a": 1}


# ---- rows --------------------------------------------------------------------------------------------------------------------


def test_rows_and_sentences_of_a_known_truth() -> None:
    run = _module("fake_classification").make()
    run.attrs["nu_rule"] = "as made"
    answer = rows.document(run)
    assert answer["task"] == "classification" and [r["entry"] for r in answer["rows"]] == list(run["entry"].values)
    for row in answer["rows"]:
        for name in ("accuracy", "ece", "nll", "brier_multiclass", "auroc_ood_max_softmax"):
            assert row[name].keys() == {"value", "low", "high"}
        assert {"title", "parameters", "milliseconds", "members", "fit_seconds"} <= row.keys()
    pair = answer["differences"]["director:no_noise"]["director"]["nll"]
    assert pair["value"] == pytest.approx(float(run["nll"].sel(entry="director") - run["nll"].sel(entry="director:no_noise")))
    by_pair = {s.partition(":")[0]: s for s in answer["sentences"]}
    told = by_pair["DIRECTOR against DIRECTOR, no noise"]
    for name in rows.SAID:
        low, high = (float(run[f"{name}_difference{end}"].sel(entry="director", against="director:no_noise")) for end in ("_low", "_high"))
        excludes = low > 0 or high < 0
        assert excludes == bool(re.search(rf"\b{rows.WORDS.get(name, name)} (better|worse) by", told)), told
    assert "against Frozen model" in " ".join(answer["sentences"])
    lines = rows.table(answer).splitlines()
    assert len({len(line) for line in lines[1:8]}) == 1, "columns are aligned"


# ---- the demo ----------------------------------------------------------------------------------------------------------------


def test_the_image_demo_uses_the_states_that_are_shipped(monkeypatch, tmp_path) -> None:
    from engine.runs.classify import demo

    monkeypatch.setattr(demo, "FASHION", tmp_path)
    (tmp_path / "states").mkdir()
    for name in ("director", "director-no_noise", "kep_svgp"):
        (tmp_path / "states" / f"{name}.safetensors").write_bytes(b"")
    spec = demo.classify_demo_spec()
    assert set(spec.states) == {"director", "director:no_noise", "kep_svgp"} and spec.entries == demo.ENTRIES
    assert spec.checkpoint == tmp_path / "vit.safetensors" and set(spec.outside) == {"handwritten digits"}
    few = demo.classify_demo_spec(entries=("deterministic", "director:s1"), members=3)
    assert set(few.states) == {"director"} and few.members == 3
    anew = demo.classify_demo_spec(entries=("kep_svgp", "director"), params={"director": {"epochs": 1}})
    assert set(anew.states) == {"kep_svgp"}, "other parameters are other states"


def test_one_content_in_two_roles_is_refused(tmp_path) -> None:
    from engine.errors import SpecError
    from engine.runs.classify.execute import refuse_shared_files
    from engine.runs.classify.spec import ClassifySpec

    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (tmp_path / n for n in "abc")
    refuse_shared_files(ClassifySpec(checkpoint=a, data=(a,), fit=(c,)))
    for fields in ({"fit": (b,)}, {"calibrate": (b,)}, {"outside": {"x": b}}, {"data": (a, b)}):
        with pytest.raises(SpecError, match="same content"):
            refuse_shared_files(ClassifySpec(**({"checkpoint": a, "data": (a,)} | fields)))


@pytest.mark.parametrize("name", ["director:no_noise:constant_noise", "director:s1:s5", "stochastic_attention:16:32", "kep_svgp:1:2"])
def test_an_entry_says_each_thing_once(name: str) -> None:
    from engine.runs.classify.entries import parse_entry

    with pytest.raises(ValueError, match="says again"):
        parse_entry(name)
    assert parse_entry("director:no_noise:s1").members == 1
    assert parse_entry("stochastic_attention:16:s5").nu == 16


@pytest.mark.parametrize("entry", ["director", "kep_svgp", "deep_ensemble"])
def test_a_state_with_other_tensors_or_without_finite_ones_is_refused_by_name(compute, spec, tmp_path, entry) -> None:
    import torch

    from engine.runs.classify.states import load_state

    compute(spec("deterministic", entry), "learned")
    path = tmp_path / "learned" / "states" / f"{entry}.safetensors"
    record = read_record(path)
    state, _ = load_state(path, method=record["method"], revision=record["revision"])
    first = next(n for n, t in state.items() if t.dim() > 1)
    about = {n: record[n] for n in ("method", "params", "seed", "revision")}
    broken = {
        "missing": {n: t for n, t in state.items() if n != first},
        "cut": state | {first: state[first][:-1].contiguous()},
        "nan": state | {first: torch.full_like(state[first], float("nan"))},
    }
    for name, tensors in broken.items():
        given = save_state(tmp_path / f"{name}.safetensors", tensors, **about)
        with pytest.raises(CheckpointError, match=f"state of {entry}"):
            compute(spec("deterministic", entry, fit=(), params={}, states={entry: given}), name)
    listed = save_state(tmp_path / "listed.safetensors", state, **about | {"params": {}})
    assert read_record(listed)["params"] == {}


@pytest.mark.parametrize(
    ("entry", "changes", "words"),
    [
        ("kep_svgp:99", {}, "parameter last: found 99"),
        ("no_such", {}, "no method of this name.*one of .*director"),
        ("director", {"params": {"director": {"epoch": 2}}}, "expected fields: .*epochs.*epoch: no such field"),
        ("deterministic", {"label": "kind"}, "option --label: found a model of images"),
        ("deterministic", {"label": "kind", "text": "words"}, "--text and --label"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_anything_is_computed(spec, entry, changes, words) -> None:
    with pytest.raises(SpecError, match=words):
        make_plan(spec("deterministic", entry, **changes).resolved())


def test_what_does_not_fit_together_is_said_in_words(clothes) -> None:
    with pytest.raises(SpecError) as refused:
        parse_spec(tiny.fields(clothes, "deterministic", params={"directr": {"epochs": 2}}))
    assert refused.value.found == "params of directr: the run has the entries deterministic"
    assert "Value error" not in str(refused.value) and "field(s)" not in str(refused.value)


def test_a_student_of_fields_and_a_state_of_classes_are_told_apart(compute, spec, tmp_path) -> None:
    from safetensors.numpy import save_file

    student = tmp_path / "student.safetensors"
    save_file({"x": np.zeros(1, np.float32)}, student, metadata={"nuscope": json.dumps({"method": "director"})})
    with pytest.raises(CheckpointError, match="named by --student"):
        make_plan(spec("deterministic", "director", states={"director": student}).resolved())


def test_a_classification_has_no_report_and_says_where_to_look(home, spec, tmp_path) -> None:
    from engine.errors import ExportError
    from engine.runs.report import write_report

    with pytest.raises(ExportError, match="page Classify"):
        write_report(jobs.run(spec("deterministic")), tmp_path / "report.html")
