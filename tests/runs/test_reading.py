"""How files are to be read, said by the user: one schema, and the same answer in Python, in a spec and on the command line."""

import json
import shlex
import sys

import numpy as np
import pytest
import xarray as xr

import engine
import engine.__main__ as cli
from engine.errors import DatasetError, SpecError
from engine.runs.reading import LabelledReading, Reading, pairs_of, parse_reading
from engine.runs.spec import RunSpec, parse_spec


@pytest.fixture
def files(tmp_path):
    """A forecast and what was observed, under names that nobody knows; and a second variable that means temperature at 2 m too."""
    rng = np.random.default_rng(0)
    coords = {"time": np.datetime64("2020-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D")}
    coords |= {"latitude": np.linspace(80, -80, 9), "longitude": np.arange(18) * 20.0}
    truth = rng.normal(280, 5, (12, 9, 18)).astype("f4")
    dims, units = ("time", "latitude", "longitude"), {"units": "K"}
    observed = xr.Dataset({"foo": (dims, truth, units), "t2m": (dims, truth + 3, units)}, coords)
    members = (truth + rng.normal(0, 1, (5, *truth.shape))).astype("f4")
    xr.Dataset({"bar": (("number", *dims), members, units)}, coords | {"number": range(5)}).to_netcdf(tmp_path / "forecast.nc")
    observed.to_netcdf(tmp_path / "observed.nc")
    xr.Dataset({"t2m": (dims, truth, units), "2t": (dims, truth + 1, units)}, coords).to_netcdf(tmp_path / "twice.nc")
    return tmp_path


@pytest.fixture
def call(home, capsys, monkeypatch):
    def run(*words) -> tuple[int, dict]:
        monkeypatch.setattr(sys, "argv", ["engine", *map(str, words), "--json"])
        code = cli.main()
        return code, json.loads(capsys.readouterr().out)

    return run


def score(files, *more) -> tuple:
    names = ("--forecast", files / "forecast.nc", "--observed", files / "observed.nc", "--scores", "rmse")
    return ("score", *names, *more)


@pytest.mark.parametrize("rename", ["bar=air,foo=air", " bar = air , foo = air ", '{"bar": "air", "foo": "air"}'])
def test_names_that_nobody_knows_are_scored_once_they_are_named(call, files, rename) -> None:
    code, found = call(*score(files, "--rename", rename))
    assert code == 0 and found["rmse"]["value"] < 0.6
    assert any("bar renamed to air" in line for line in found["changes"])


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ("bra=air,foo=air", "bra"),  # misspelt
        ("bar", "is no pair"),
        ("bar=air,bar=sea", "stands twice"),
        ("=air", "is no pair"),
        ("bar=time", "called time already"),
        ("foo=t2m,bar=t2m", "called t2m already"),
        ("{bar}", "Expecting property name"),
        ("bar=air,number=air", "both to be renamed"),
    ],
)
def test_a_rename_that_cannot_be_meant_is_refused_in_words(call, files, rename, said) -> None:
    code, found = call(*score(files, "--rename", rename))
    assert code == 2 and said in " ".join(found["error"].values())


def test_variables_that_mean_the_same_are_told_apart_by_the_files_own_names(files) -> None:
    with pytest.raises(DatasetError) as refused:
        engine.open_dataset(files / "twice.nc")
    assert "--read" in refused.value.remedy and "variables=" in refused.value.remedy
    for name, shift in (("t2m", 0), ("2t", 1)):
        field = engine.open_dataset(files / "twice.nc", variables=[name]).fields["2m_temperature"]
        with xr.open_dataset(files / "twice.nc") as raw:
            assert float(field.mean()) == pytest.approx(float(raw["t2m"].mean()) + shift, abs=1e-3)


def test_a_name_that_no_file_has_is_refused_in_python_too(files) -> None:
    with pytest.raises(DatasetError, match="zz"):
        engine.open_dataset(files / "observed.nc", rename={"zz": "t2m"})


@pytest.mark.parametrize("calendar", ["gregorain", "julian", "NOLEAP"])
def test_an_unknown_calendar_is_refused(call, files, calendar) -> None:
    with pytest.raises(DatasetError, match="noleap"):
        engine.open_dataset(files / "observed.nc", calendar=calendar)
    code, found = call(*score(files, "--calendar", calendar))
    assert code == 2 and "noleap" in found["error"]["expected"]


def test_a_calendar_is_converted_to(files) -> None:
    found = engine.open_dataset(files / "observed.nc", calendar="noleap", variables=["t2m"])
    assert any("calendar standard to noleap" in line for line in found.changes)


def test_fields_of_reading_are_fields_of_the_spec_and_of_its_command(tmp_path) -> None:
    plain = parse_spec({"checkpoint": "c.ckpt", "data": ["d.nc"]})
    asked = {"rename": "z=geopotential_500", "read": ["z"], "calendar": "noleap", "select": "level=500/850", "step_hours": 6}
    spec = parse_spec({"checkpoint": "c.ckpt", "data": ["d.nc"], **asked})
    assert spec.rename == {"z": "geopotential_500"} and spec.select == {"level": "500/850"}
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    words = shlex.split(spec.command())
    for option in ("--rename", "--read", "--calendar", "--select", "--step-hours"):
        assert option in words and option not in plain.command()
    assert pairs_of(words[words.index("--rename") + 1]) == spec.rename
    assert not plain.roles() and set(spec.roles()) == {"rename", "variables", "calendar", "select", "step_hours"}


def test_a_spec_that_says_nothing_of_reading_keeps_its_key(tmp_path) -> None:
    for name in ("c.ckpt", "d.nc"):
        (tmp_path / name).write_bytes(name.encode())
    fields = {"checkpoint": tmp_path / "c.ckpt", "data": [tmp_path / "d.nc"]}
    assert parse_spec(fields).key() == parse_spec(fields | {"rename": {}, "read": (), "calendar": None}).key()
    assert parse_spec(fields).key() != parse_spec(fields | {"calendar": "noleap"}).key()


def test_a_calibration_reads_its_files_as_the_sweep_does() -> None:
    sweep = parse_spec({"checkpoint": "c", "data": ["d"], "calibrate": ["e"], "rename": "z=geopotential_500", "calendar": "noleap"})
    found = engine.calibration_spec(sweep)
    assert found.rename == sweep.rename and found.calendar == "noleap"


@pytest.mark.parametrize(
    ("said", "meant"), [("28", (28, 28)), ("28x", (28, 28)), ("28x32", (28, 32)), ("28 × 32", (28, 32)), ("28,32", (28, 32)), ("", None)]
)
def test_a_size_in_words(said, meant) -> None:
    assert parse_reading(LabelledReading, {"size": said}).size == meant


@pytest.mark.parametrize("size", ["big", "0", "1x2x3", "9999"])
def test_a_size_that_is_none(size) -> None:
    with pytest.raises(SpecError, match="size"):
        parse_reading(LabelledReading, {"size": size})


def test_inspect_refuses_what_says_nothing_about_this_kind_of_model() -> None:
    from engine.runs.inspect import _refuse_idle

    with pytest.raises(SpecError, match="--encoding"):
        _refuse_idle(object(), "fields.ckpt", Reading(), LabelledReading(encoding="latin-1"))
    _refuse_idle(object(), "fields.ckpt", Reading(calendar="noleap"), LabelledReading())


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(SpecError, match="step_hours"):
        parse_reading(Reading, {"step_hours": -6})
