"""The spec: what makes a key, what does not, and how faults are named."""

import json
import shlex
import shutil

import numpy as np
import pytest

from engine.errors import SpecError
from engine.runs.spec import RunSpec, parse_spec, read_spec


@pytest.fixture(autouse=True)
def _home(home) -> None:
    """Hashes of large files are remembered there."""


def key(spec: RunSpec) -> str:
    return spec.resolved().key()


def test_equal_contents_at_other_places_have_equal_keys(make, world, tmp_path) -> None:
    other = shutil.copytree(world.folder, tmp_path / "elsewhere")
    moved = make.spec(world, checkpoint=other / "model.safetensors", data=(other / "verify.nc",), calibrate=(other / "calibrate.nc",))
    assert key(moved) == key(make.spec(world))
    (other / "calibrate.nc").rename(other / "other-name.nc")
    assert key(moved.model_copy(update={"calibrate": (other / "other-name.nc",)})) == key(make.spec(world))


CHANGES = {
    "nu": (2, 4),
    "members": 5,
    "seed": 1,
    "max_cases": 6,
    "calibrate": (),
    "calibrate_cases": 5,
    "calibrate_members": 3,
    "lead_hours": (24.0,),
    "variables": ("temperature_850",),
    "regions": {"alps": (43, 49, 5, 16)},
    "thresholds": (0.5,),
    "scores": ("rmse",),
    "maps": False,
    "bootstrap": 101,
    "method": "deterministic",
    "params": {"sites": "blocks.*"},
    "architecture": {"num_heads": 4},
    "tune": {"nu_max": 64},
    "chosen": {"calibration_first": 8},
    "posthoc": "temperature_variance",
    "posthoc_params": {"rule": "nll"},
    "rename": {"z": "geopotential_500"},
    "read": ("geopotential_500",),
    "calendar": "noleap",
    "select": {"level": "500"},
    "step_hours": 6.0,
    "missing": -999.0,
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_a_number_changes_the_key(spec, name) -> None:
    assert key(spec(**{name: CHANGES[name]})) != key(spec())


def test_every_field_is_either_in_the_key_or_known_not_to_be() -> None:
    files = {"checkpoint", "data", "fit", "student", "normalisation", "climatology"}
    assert set(RunSpec.model_fields) == set(CHANGES) | files | {"title", "shard_cases"}


def test_what_concerns_verification_alone_is_not_part_of_a_calibration(spec) -> None:
    assert key(spec(tune={})) == key(spec(tune={}, nu=(2, 4), scores=("rmse",), maps=False))
    assert spec(tune={}, nu=(2, 4), scores=("rmse",)).scores == ()
    assert key(spec(tune={})) != key(spec(tune={}, calibrate_members=3)) != key(spec(tune={"nu_max": 9}, calibrate_members=3))
    for name, value in (("posthoc", "isotonic"), ("chosen", {"calibration_first": 3}), ("posthoc_params", {"kind": "split"})):
        with pytest.raises(SpecError, match="belongs to a sweep"):
            spec(**{"tune": {}, name: value})


def test_title_and_shard_size_change_no_number(spec) -> None:
    assert key(spec(title="mine", shard_cases=7)) == key(spec())


@pytest.mark.parametrize("role", ["checkpoint", "verify", "calibrate", "normalisation"])
def test_another_content_is_another_run(make, world, tmp_path, role) -> None:
    other = shutil.copytree(world.folder, tmp_path / "changed")
    spec = make.spec(world, checkpoint=other / "model.safetensors", data=(other / "verify.nc",), calibrate=(other / "calibrate.nc",))
    before = key(spec)
    file = next(other.glob("model*" if role == "checkpoint" else f"{role}*"))
    file.write_bytes(file.read_bytes() + b"\0")
    assert key(spec) != before


def test_both_files_of_an_upstream_normalisation_count(make, world, tmp_path) -> None:
    for name, value in (("mean", 1.0), ("std", 2.0)):
        np.savez(tmp_path / f"normalize_{name}.npz", temperature_850=np.array([value]))
    spec = make.spec(world, normalisation=tmp_path / "normalize_mean.npz")
    before = key(spec)
    np.savez(tmp_path / "normalize_std.npz", temperature_850=np.array([3.0]))
    assert key(spec) != before


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"nu": (0,)}, "nu", "greater than or equal to 1"),
        ({"nu": ()}, "nu", "at least 1"),
        ({"nu": (2_000_000,)}, "nu", "1000000"),
        ({"members": 1}, "members", "2"),
        ({"members": "many"}, "members", "integer"),
        ({"data": ()}, "data", "at least 1"),
        ({"seed": -1}, "seed", "0"),
        ({"lead_hours": (0,)}, "lead_hours", "greater than 0"),
        ({"lead_hours": (float("nan"),)}, "lead_hours", ""),
        ({"thresholds": (float("inf"),)}, "thresholds", "finite"),
        ({"regions": {"odd": (50, 40, 0, 10)}}, "regions", "south"),
        ({"regions": {"globe": (40, 50, 0, 10)}}, "regions", "default region"),
        ({"regions": {"": (40, 50, 0, 10)}}, "regions", "empty"),
        ({"architecture": {"normalisation": "n.nc"}}, "architecture", "a field of the spec itself"),
        ({"colour": "red"}, "colour", "not permitted"),
    ],
)
def test_a_fault_is_named_with_its_field(spec, changes, field, says) -> None:
    with pytest.raises(SpecError) as refusal:
        spec(**changes)
    assert refusal.value.what.startswith(f"spec field '{field}")
    assert says in refusal.value.remedy


def test_nu_is_sorted_and_each_value_once(spec) -> None:
    assert spec(nu=(8, 2, 8)).nu == (2, 8)
    assert spec(lead_hours=(72.0, 24.0, 72.0)).lead_hours == (72.0, 24.0)


def test_a_file_that_is_not_there_is_named(spec, tmp_path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.nc"):
        key(spec(data=(tmp_path / "nowhere.nc",)))


def test_yaml_paths_are_relative_to_the_file(make, world, tmp_path) -> None:
    shutil.copytree(world.folder, tmp_path / "run")
    (tmp_path / "run" / "spec.yaml").write_text("checkpoint: model.safetensors\ndata: [verify.nc]\nnu: [2, 16]\nmembers: 4\n")
    found = read_spec(tmp_path / "run" / "spec.yaml")
    assert found.data == (tmp_path / "run" / "verify.nc",)
    assert key(found) == key(parse_spec({"checkpoint": world.checkpoint, "data": (world.verify,), "nu": (2, 16), "members": 4}))


def test_a_written_spec_reads_back(spec, tmp_path) -> None:
    (tmp_path / "spec.json").write_text(spec().resolved().model_dump_json(indent=1))
    assert key(read_spec(tmp_path / "spec.json")) == key(spec())


@pytest.mark.parametrize(
    ("text", "says"), [("members: [", "YAML"), ("- 1\n- 2\n", "fields and values"), ("members: 4\n", "checkpoint"), (None, "No such file")]
)
def test_a_bad_spec_file_is_named(tmp_path, text, says) -> None:
    if text is not None:
        (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(SpecError, match=says):
        read_spec(tmp_path / "spec.yaml")


def parsed(command: str, monkeypatch) -> RunSpec:
    """What the command line makes of a command."""
    import engine.__main__ as cli

    given = []
    monkeypatch.setattr(cli, "compute_here", lambda spec, out, as_json: given.append(spec))
    monkeypatch.setattr(cli, "calibrate_here", lambda spec, verify, out, as_json: given.append(spec))
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "engine"]
    assert not cli.app(words[3:], standalone_mode=False)
    return given[0]


def test_the_command_gives_the_same_key(spec, monkeypatch, tmp_path, world) -> None:
    odd = shutil.copytree(world.folder, tmp_path / "it's a folder, $HOME; with spaces")
    every_option = CHANGES | {"calibrate": (odd / "calibrate.nc",)}
    sweeps = {"chosen": {}, "posthoc": "", "posthoc_params": {}}
    tuned = spec(**(every_option | sweeps), checkpoint=odd / "model.safetensors", data=(odd / "verify.nc",))
    everything = spec(
        **(every_option | {"tune": None, "method": "stochastic_attention", "thresholds": (-1.5, 0.25), "lead_hours": (24.0, 72.5)}),
        normalisation=odd / "normalisation.nc",
        checkpoint=odd / "model.safetensors",
        data=(odd / "verify.nc", world.verify),
        climatology=odd / "verify.nc",
    )
    boring = {"nu_max": 64, "objective": "per_example", "norm": "physical", "area_weighted": False, "norm_variables": ("temperature_850",)}
    number = {"initial": 5, "draws": 50, "per_round": 3, "tolerance": 1.1, "rounds": 7, "score_calls": 2}
    layers = {"per_layer": True, "per_layer_objective": "w1_pit"}
    for one in (spec(), everything, tuned, spec(scores=(), maps=False), spec(tune={}), spec(tune=boring | number | layers)):
        assert key(parsed(one.resolved().command(), monkeypatch)) == key(one)


def test_the_command_is_one_line_that_names_what_differs_from_the_defaults(spec) -> None:
    command = spec().command()
    assert "\n" not in command and "--max-cases 5" in command and "--thresholds" not in command


def test_the_spec_is_the_schema_of_the_form() -> None:
    """Every field has words for people."""
    schema = RunSpec.model_json_schema()
    assert all(p.get("description") for p in schema["properties"].values())
    assert json.dumps(schema)
