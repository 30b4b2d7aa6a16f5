"""DIRECTOR on a model of fields: distilled in a run, from a student's file, and refused where it cannot be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from engine.backbones import open_checkpoint
from engine.errors import CheckpointError, SpecError
from engine.kernels.spectrum import zonal_spectrum
from engine.methods import _fields
from engine.methods.director import Director
from engine.runs import jobs, store
from engine.runs.plan import make_plan
from engine.runs.verification import open_fields
from tests.runs.conftest import build_net, fields

FEW = {"epochs": 2, "batch": 4, "paths": 2, "rank": 2}


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "fit.nc"
    fields("0001-01-01", 60, 5).to_netcdf(path, engine="h5netcdf")
    return path


def test_a_distilled_student_is_an_ensemble_like_any_other(home, spec, fit) -> None:
    found = jobs.run(spec(method="director", params=FEW, fit=(fit,), members=5))
    first = found.isel(region=0, lead_time=0, variable=0)
    assert found.sizes["nu"] == 1
    assert found.attrs["method"] == "director"
    assert float(first["crps_fair"].squeeze()) > 0
    assert float(first["width_95"].squeeze()) > 0, "the paths differ"
    again = jobs.run(spec(method="director", params=FEW, fit=(fit,), members=5))
    xr.testing.assert_identical(found, again)


def test_the_same_numbers_after_the_run_was_made_anew_and_from_batches_of_one(home, spec, fit, monkeypatch) -> None:
    one = jobs.run(spec(method="director", params=FEW, fit=(fit,)))
    jobs.remove(one.attrs["key"])
    monkeypatch.setattr(_fields, "ROWS", 1)
    two = jobs.run(spec(method="director", params=FEW, fit=(fit,)))
    for name in ("crps_fair", "rmse", "width_95"):
        np.testing.assert_allclose(one[name], two[name], rtol=2e-5)


def test_a_students_file_gives_what_was_distilled_and_belongs_to_its_model(home, spec, world, fit, tmp_path) -> None:
    backbone = open_checkpoint(world.checkpoint)
    params = Director.Params(**FEW)
    student = _fields.build(backbone, params, 0)
    torch.manual_seed(0)
    for p in student.transition.parameters():
        torch.nn.init.normal_(p, std=0.1)
    path = _fields.write_student(tmp_path / "student.safetensors", student, backbone, params)
    found = jobs.run(spec(method="director", student=path))
    assert float(found["width_95"].isel(region=0, lead_time=0, variable=0).squeeze()) > 0
    assert "--student" in found.attrs["command"]
    other = world.folder / "other.safetensors"
    from engine.backbones import write_checkpoint

    net = build_net()
    with torch.no_grad():
        net.norm.bias.add_(0.1)
    write_checkpoint(net, other, out_variables=list(net.variables), lead_hours=[72.0])
    with pytest.raises(CheckpointError, match="student of another model"):
        jobs.run(spec(method="director", student=path, checkpoint=other))
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match=r"broken\.safetensors"):
        jobs.run(spec(method="director", student=broken))
    with pytest.raises(CheckpointError, match="another kind"):
        jobs.run(spec(method="director", student=world.checkpoint))


def test_members_are_keyed_by_seed_member_and_case(world, spec, tmp_path) -> None:
    backbone = open_checkpoint(world.checkpoint)
    params = Director.Params(**FEW)
    student = _fields.build(backbone, params, 0)
    plan = make_plan(spec())
    cases = plan.cases[0][:3]
    whole = _fields.members_of(student, backbone, backbone.prepare(plan.dataset, cases), 4, 0, {})
    alone = [_fields.members_of(student, backbone, backbone.prepare(plan.dataset, [c]), 4, 0, {})[:, 0] for c in cases]
    np.testing.assert_allclose(whole, np.stack(alone, 1), rtol=1e-5)
    assert not np.allclose(whole, _fields.members_of(student, backbone, backbone.prepare(plan.dataset, cases), 4, 1, {}), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "no_such"}, "no method of this name.*director"),
        ({}, "no fit data and no student"),
        ({"params": {"rank": 0}}, "params of director"),
        ({"method": "stochastic_attention", "params": {}, "student": "model"}, "learns nothing"),
    ],
)
def test_what_cannot_be_learned_is_refused_in_words(home, spec, world, fit, change, words) -> None:
    fields_ = {"method": "director", "params": FEW} | change
    if fields_.get("student"):
        fields_["student"] = world.checkpoint
    if "params" in change and fields_["method"] == "director":
        fields_["fit"] = (fit,)
    with pytest.raises(SpecError, match=words):
        make_plan(spec(**fields_))


def test_too_short_a_period_is_refused(home, spec, tmp_path) -> None:
    path = tmp_path / "short.nc"
    fields("0001-01-01", 8, 5).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(SpecError, match="longer period"):
        jobs.run(spec(method="director", params=FEW, fit=(path,)))


def test_spectra_are_stored_beside_the_members(home, spec) -> None:
    found = jobs.run(spec())
    variable = str(found["variable"].values[0])
    with open_fields(store.folder(found.attrs["key"])) as maps:
        observed = maps["observed"].sel(variable=variable).isel(lead_time=0).values
    expected = zonal_spectrum(observed, found["latitude"].values).mean(0)
    np.testing.assert_allclose(found["spectrum_observed"].isel(lead_time=0, variable=0), expected, rtol=1e-5)
    low, middle, high = (found[f"spectrum_members{end}"].isel(lead_time=0, variable=0) for end in ("_low", "", "_high"))
    assert (low <= middle).all() and (middle <= high).all()
    assert found.attrs["patch"] == 2
    assert json.loads(found.attrs["spec"])["members"] == 4


def test_a_pattern_that_repeats_from_patch_to_patch_is_seen_and_noise_of_single_patches_is_not() -> None:
    """A jitter of .1 sd at every fourth column: hardly a change of the fair CRPS, many sds of the pattern."""
    from engine.kernels.fair_losses import fair_crps

    g = torch.Generator().manual_seed(0)
    smooth = torch.nn.functional.interpolate(torch.randn(40, 1, 4, 8, generator=g), size=(16, 32), mode="bicubic")
    observed, members = smooth[:8], smooth[8:].reshape(4, 8, 1, 16, 32)
    jitter = torch.zeros(16, 32)
    jitter[:, ::4] = 1.0
    moved = members + jitter * torch.randn(4, 1, 1, 1, 1, generator=g) * 0.3
    plain, seen = (float(_fields.of_patches(m, observed, 4).mean()) for m in (members, moved))
    assert seen > 1.3 * plain
    assert abs(float(fair_crps(moved, observed).mean() / fair_crps(members, observed).mean()) - 1) < 0.05


def test_the_field_loss_leaves_the_task_out_where_it_matches_alone(world) -> None:
    backbone = open_checkpoint(world.checkpoint)
    params = Director.Params(**FEW)
    student = _fields.build(backbone, params, 0)
    teacher = _fields.Teacher(backbone.stack())
    loss = _fields.loss_function(student, teacher, params, (0.5, 0.0, 0.5), torch.ones(8, 1), torch.full((3,), 1 / 3))
    x, lead, y = torch.randn(2, 3, 8, 16), torch.full((2,), 0.72), torch.randn(2, 3, 8, 16)
    assert float(loss(x, lead, y, alone=True).detach()) == float(loss(x, lead, y + 1, alone=True).detach())
    torch.manual_seed(0)
    one = float(loss(x, lead, y).detach())
    torch.manual_seed(0)
    assert one != float(loss(x, lead, y + 1).detach())


@pytest.mark.parametrize("weights", [(0.5, 0.0, 0.5), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.2, 0.3, 0.5)])
def test_the_field_loss_is_matching_and_task_by_their_weights(world, weights) -> None:
    backbone = open_checkpoint(world.checkpoint)
    params = Director.Params(**FEW)
    student = _fields.build(backbone, params, 0)
    teacher = _fields.Teacher(backbone.stack())
    torch.manual_seed(4)
    x, lead, y = torch.randn(2, 3, 8, 16), torch.full((2,), 0.72), torch.randn(2, 3, 8, 16)

    def loss(mean: float, var: float, task: float, alone: bool = False) -> float:
        made = _fields.loss_function(student, teacher, params, (mean, var, task), torch.ones(8, 1), torch.full((3,), 1 / 3))
        torch.manual_seed(0)
        return float(made(x, lead, y, alone=alone).detach())

    parts = [loss(1.0, 0.0, 0.0), loss(0.0, 1.0, 0.0), loss(0.0, 0.0, 1.0)]
    assert min(parts) > 0
    assert loss(*weights) == pytest.approx(sum(w * p for w, p in zip(weights, parts, strict=True)), rel=1e-5)
    if weights[0] + weights[1] > 0:
        assert loss(*weights, alone=True) == pytest.approx(weights[0] * parts[0] + weights[1] * parts[1], rel=1e-5)
    inputs = {"x": x, "lead_times": lead}
    assert parts[0] == pytest.approx(float(_fields.matching(student, teacher.path(inputs), params.matched_by, 1.0, 0.0).detach()), rel=1e-5)


def test_a_classifier_is_no_model_of_fields(home, spec, tmp_path) -> None:
    from engine.backbones import new_vit

    vit = new_vit(("a", "b"), (8, 8, 1), 4, 8, 1, 2, 8, 0.0, [0.5], [0.2], 0)
    path = vit.write(tmp_path / "vit.safetensors")
    with pytest.raises(SpecError, match="a classifier"):
        make_plan(spec(checkpoint=path))


def test_a_method_without_nu_is_told_by_its_name(home, spec, fit) -> None:
    from engine.runs.rows import document, table

    answer = document(jobs.run(spec(method="director", params=FEW, fit=(fit,), calibrate=())))
    assert answer["operating_points"] == {} and answer["method"] == "director"
    assert "DIRECTOR" in table(answer).splitlines()[2] and "ν" not in table(answer)
