"""The report, the doctor, and the inspection of files before anything runs."""

import json
import re
import shutil

import numpy as np
import pytest

from engine.errors import EngineError, ExportError
from engine.runs import doctor, jobs
from engine.runs.inspect import inspect_files, inspection_text
from engine.runs.picture import describe, export
from engine.runs.report import write_report

HOSTILE = '<script>alert("x")</script> & <img src=http://evil.example/x>'


@pytest.fixture
def verification(finished_run):
    return jobs.result(finished_run)


def test_the_report_is_one_file_that_asks_nobody(verification, tmp_path) -> None:
    write_report(verification, tmp_path / "deep" / "report.html")
    page = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?(?!data:)[^\"'>\s]+", page) == []
    assert not re.search(r"<(script|link|iframe|object)", page)
    assert "default-src 'none'" in page
    assert page.count("<img ") == 8 and all(alt.strip() for alt in re.findall(r'alt="([^"]*)"', page))
    assert "python -m engine sweep" in page
    assert not list((tmp_path / "deep").glob("*.part"))


def test_the_report_escapes_what_users_wrote(verification, tmp_path) -> None:
    hostile = verification.assign_attrs(title=HOSTILE, command=f"python -m engine sweep --title '{HOSTILE}'")
    write_report(hostile, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "<img src=http" not in page and "&lt;script&gt;" in page


def test_the_report_of_a_run_with_few_scores_says_what_is_not_drawn(home, spec, tmp_path) -> None:
    write_report(jobs.run(spec(calibrate=(), scores=("rmse",), title="few")), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "few" in page and "not drawn" in page and "<table>" in page


def test_the_report_of_two_lead_times(home, spec, tmp_path) -> None:
    found = jobs.run(spec(lead_hours=(72.0, 24.0), scores=()))
    write_report(found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<img ") == 8 and "not drawn" not in page
    # single cases carry the valid time of the lead time that is looked at
    for lead, valid in ((72.0, "0004-01-04"), (24.0, "0004-01-02")):
        for figure, more in (("cell_series", {}), ("field_map", {"which": "error", "case": 0})):
            words = describe(figure, found, lead_time=lead, **more)
            table = export(figure, found, "nc", lead_time=lead, **more)[0]
            assert words and table
        assert valid in describe("field_map", found, lead_time=lead, which="error", case=0)


def test_a_report_that_cannot_be_written_is_refused(verification, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="--out"):
        write_report(verification, tmp_path / "file" / "report.html")


def test_the_doctor_finds_a_healthy_home(home) -> None:
    found = doctor.examine()
    checks = {c["name"]: c for c in found["checks"]}
    assert found["device"] and found["versions"]["torch"]
    assert checks["kernel"]["ok"] and checks["runs folder"]["ok"] and str(home) in checks["runs folder"]["found"]


def test_the_doctor_reports_every_fault_and_goes_on(home, monkeypatch, tmp_path) -> None:
    shutil.rmtree(home)
    home.write_text("a file where the home should be")
    monkeypatch.setattr(doctor, "DEMO", tmp_path / "nowhere")
    monkeypatch.setattr(doctor, "_sample", lambda where: 7.0)
    monkeypatch.setattr(doctor, "PACKAGES", ("numpy", "no-such-package"))
    found = doctor.examine()
    assert not found["ok"] and found["versions"]["no-such-package"] is None
    bad = {c["name"]: c["found"] for c in found["checks"] if not c["ok"]}
    assert bad.keys() == {"kernel", "runs folder", "uploads folder", "demo"}
    assert "7.0, not 8" in bad["kernel"] and "climax.safetensors" in bad["demo"]


@pytest.fixture(autouse=True)
def _home(home) -> None:
    """Of the test's own."""


def test_inspection_document(world) -> None:
    found = inspect_files(world.checkpoint, (world.verify,), calibrate=(world.calibrate,), members=7)
    assert {"format", "backbone", "parameters", "keys", "sites", "replay_error", "refusal", "data", "plan"} <= found.keys()
    assert {"matched", "missing", "unexpected"} <= found["keys"].keys()
    assert found["backbone"] == "climax" and found["refusal"] is None
    assert found["sites"] == ["var_agg", "blocks.0.attn", "blocks.1.attn"]
    assert found["replay_error"] < 1e-5  # the issue's own bound, float32
    assert found["data"]["grid"] == [8, 16] and found["data"]["cases"] == 37 and found["data"]["problems"] == 0
    assert found["plan"]["members"] == 7 and found["plan"]["sweep_seconds"] > 0
    assert json.loads(json.dumps(found))["sites"] == found["sites"]
    assert "ready to run" in inspection_text(found)


def bare(world, make, tmp_path, **change):
    """The same weights as an upstream file records them: without a word about heads, variables or grid."""
    import torch

    state = make.net().state_dict()
    for name in change.get("without", ()):
        del state[name]
    torch.save(state, tmp_path / "bare.ckpt")
    shutil.copy(world.folder / "normalisation.nc", tmp_path / "normalisation.nc")
    return tmp_path / "bare.ckpt"


def test_unknown_heads_are_asked_for_with_their_candidates(world, make, tmp_path) -> None:
    path = bare(world, make, tmp_path)
    found = inspect_files(path, (world.verify,), architecture={"variables": list(make.variables)})
    assert "num_heads" in found["unknown"] and 4 in found["unknown"]["num_heads"]
    assert "num_heads" in found["refusal"] and "REFUSED" in inspection_text(found)
    named = inspect_files(
        path,
        (world.verify,),
        architecture={"variables": list(make.variables), "num_heads": 4, "grid": [8, 16], "out_variables": list(make.variables)},
    )
    assert named["refusal"] is None


def test_missing_keys_block_and_are_named(world, make, tmp_path) -> None:
    path = bare(world, make, tmp_path, without=("head.0.weight",))
    found = inspect_files(path, architecture={"variables": list(make.variables), "num_heads": 4, "grid": [8, 16]})
    assert "head.0.weight" in found["keys"]["missing"] and found["refusal"]


def test_another_head_count_than_the_recorded_one_is_refused(world) -> None:
    found = inspect_files(world.checkpoint, architecture={"num_heads": 8})
    assert "8" in found["refusal"] and "4" in found["refusal"]


def test_another_grid_is_refused_with_both(world, make, tmp_path) -> None:
    make.fields("0004-01-01", 6, 1, latitude=np.linspace(80, -80, 16), longitude=np.arange(32) * 11.25).to_netcdf(
        tmp_path / "fine.nc", engine="h5netcdf"
    )
    found = inspect_files(world.checkpoint, (tmp_path / "fine.nc",))
    assert re.search(r"16\D+32", found["refusal"]) and re.search(r"8\D+16", found["refusal"])


def test_a_missing_variable_is_refused_by_name(world, make, tmp_path) -> None:
    make.fields("0004-01-01", 6, 1).drop_vars("temperature_850").to_netcdf(tmp_path / "few.nc", engine="h5netcdf")
    assert "temperature_850" in inspect_files(world.checkpoint, (tmp_path / "few.nc",))["refusal"]


def test_geopotential_for_height_is_converted_and_said(world, make, tmp_path) -> None:
    data = make.fields("0004-01-01", 6, 1)
    z = (data["geopotential_height_500"] * np.float32(9.80665)).assign_attrs(units="m2 s-2")
    data.drop_vars("geopotential_height_500").assign(geopotential_500=z).isel(latitude=slice(None, None, -1)).to_netcdf(
        tmp_path / "other.nc", engine="h5netcdf"
    )
    found = inspect_files(world.checkpoint, (tmp_path / "other.nc",))
    assert found["refusal"] is None
    assert any("south" in line for line in found["data"]["changes"])


@pytest.mark.parametrize("which", ["checkpoint", "data"])
def test_a_file_that_is_cut_off_is_refused(world, tmp_path, which) -> None:
    source = world.checkpoint if which == "checkpoint" else world.verify
    cut = tmp_path / source.name
    cut.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    shutil.copy(world.folder / "normalisation.nc", tmp_path / "normalisation.nc")
    with pytest.raises(EngineError) as refusal:
        inspect_files(cut if which == "checkpoint" else world.checkpoint, (world.verify if which == "checkpoint" else cut,))
    assert cut.name in refusal.value.what
