"""GRIB as people bring it: several types of level, members, starts and steps, scanning modes, damaged files."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from engine.data import open_dataset, open_fields
from engine.data._join import open_path
from engine.errors import DatasetError, EngineError

ec = pytest.importorskip("eccodes", reason="GRIB needs the optional package eccodes")

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS = 7, 12
LAT, LON = np.linspace(90, -90, ROWS), np.arange(COLUMNS) * 30.0


def message(sink, values=0.0, short="z", kind="isobaricInhPa", level=500, *, sample="regular_ll_pl_grib2", **more):
    """Append one message. `more` are ecCodes keys, set in order; numbers of a perturbed forecast need their template first."""
    gid = ec.codes_grib_new_from_samples(sample)
    rows, columns = more.pop("shape", (ROWS, COLUMNS))
    grid = {"Ni": columns, "Nj": rows, "latitudeOfFirstGridPointInDegrees": 90.0, "latitudeOfLastGridPointInDegrees": -90.0}
    grid |= {"longitudeOfFirstGridPointInDegrees": 0.0, "longitudeOfLastGridPointInDegrees": 360 - 360 / columns}
    grid |= {"iDirectionIncrementInDegrees": 360 / columns, "jDirectionIncrementInDegrees": 180 / (rows - 1)}
    for key in [k for k in more if k in ("productDefinitionTemplateNumber", "discipline", "tablesVersion")]:
        ec.codes_set(gid, key, more.pop(key))
    for key, value in (grid | {"dataDate": 20200501, "dataTime": 0, "typeOfLevel": kind, "level": level} | more).items():
        ec.codes_set(gid, key, value)
    if short:
        ec.codes_set(gid, "shortName", short)
    ec.codes_set(gid, "bitsPerValue", more.get("bitsPerValue", 24))
    ec.codes_set_values(gid, np.broadcast_to(np.asarray(values, float), (rows, columns)).ravel())
    for key in ("step", "stepRange"):
        if key in more:
            ec.codes_set(gid, key, more[key])
    ec.codes_write(gid, sink)
    ec.codes_release(gid)


def member(number, control=False):
    """Keys of a member of an ensemble."""
    kinds = {"typeOfProcessedData": 3 if control else 4, "typeOfEnsembleForecast": 1 if control else 3}
    return {"productDefinitionTemplateNumber": 1} | kinds | {"perturbationNumber": number, "numberOfForecastsInEnsemble": 6}


def written(path, *messages):
    with path.open("wb") as sink:
        for values, keys in messages:
            message(sink, values, **keys)
    return path


def notes(data):
    return " | ".join(data.attrs["reader_notes"])


def raw(path, **options):
    return open_path(path, **options)[0]


def test_climetlab_33_control_and_perturbed(tmp_path):
    rng = np.random.default_rng(18)
    truth = 54000 + 1500 * rng.normal(size=(ROWS, COLUMNS))
    fields = truth + 200 * rng.normal(size=(6, ROWS, COLUMNS))
    path = written(tmp_path / "fc.grib", *((f, {"step": 72, **member(n, n == 0)}) for n, f in enumerate(fields)))
    coords = {"time": np.array(["2020-05-04"], "datetime64[ns]"), "latitude": LAT, "longitude": LON}
    observed = xr.DataArray(truth[None].astype("f4"), coords, ("time", "latitude", "longitude"), "z500", {"units": "m**2 s**-2"})
    observed.to_netcdf(tmp_path / "obs.nc")
    from engine.runs.score import score_files

    found = score_files(path, tmp_path / "obs.nc", ["crps_fair", "rmse"])
    expected = score_files_of(fields, truth)
    assert found["rmse"]["value"] == pytest.approx(expected, rel=1e-4)
    assert raw(path)["number"].values.tolist() == [0, 1, 2, 3, 4, 5]


def score_files_of(fields, truth):
    """Area-weighted root of the mean squared error of the mean."""
    from engine.kernels.area import cell_area

    weights = cell_area(LAT)[:, None] * np.ones(COLUMNS)
    return float(np.sqrt((weights * (fields.mean(0) - truth) ** 2).sum() / weights.sum()))


@pytest.fixture(scope="module")
def gfs(tmp_path_factory):
    """A forecast as NCEP writes it: 307 messages, three sets of pressure levels, eight types of level."""
    path, count = tmp_path_factory.mktemp("gfs") / "gfs.grib2", 0
    many = [1000, 975, 950, 925, 900, 850, 800, 750, 700, 650, 600, 550, 500, 450, 400, 350, 300, 250, 200, 150, 100, 70, 50, 40, 30, 20]
    with path.open("wb") as sink:

        def add(values, short, kind, level, **more):
            nonlocal count
            count += 1
            message(sink, values, short, kind, level, step=24, **({"centre": 7} | more))

        for level in many:
            add(44330 * (1 - (level / 1013.25) ** 0.1903) + 100, "gh", "isobaricInhPa", level)
            for short, value in (("t", 250.0 + level / 100), ("u", 10.0), ("v", 5.0), ("r", 50.0)):
                add(value, short, "isobaricInhPa", level)
        for level in many[:21]:
            for short in ("w", "absv", "clwmr"):
                add(0.1, short, "isobaricInhPa", level)
        for level in many[:11]:
            add(1e-6, "o3mr", "isobaricInhPa", level)
        add(2e-6, "o3mr", "isobaricInPa", 40)
        add(285.0, "2t", "heightAboveGround", 2)
        add(3.0, "10u", "heightAboveGround", 10)
        add(3.5, "100u", "heightAboveGround", 100, centre=98)
        for level in (80, 50):
            add(6.0 + level, "u", "heightAboveGround", level)
        add(288.0, "t", "surface", 0)
        add(210.0, "t", "tropopause", 0)
        add(101325.0, "prmsl", "meanSea", 0)
        add(0.5, "lsm", "surface", 0)
        for number in range(192, 192 + 307 - count):
            add(float(number), None, "surface", 0, discipline=3, parameterCategory=191, parameterNumber=number % 254)
    assert count == 307
    return path


def test_a_forecast_of_307_messages_opens_with_every_level_type_side_by_side(gfs):
    data = raw(gfs)
    assert len(data.data_vars) == 307
    fields, _ = open_fields(gfs, variables=["t500", "gh_850", "2m_temperature", "w_100", "u_heightAboveGround_80", "t_surface"])
    assert {"temperature_500", "geopotential_height_850", "2m_temperature", "w_100", "t_surface"} <= set(fields.data_vars)
    assert float(fields["temperature_500"].mean()) == pytest.approx(255.0, abs=1e-3)
    assert float(fields["t_surface"].mean()) == pytest.approx(288.0)
    assert float(fields["u_heightAboveGround_80"].mean()) == pytest.approx(86.0)
    assert fields["time"].values[0] == np.datetime64("2020-05-02")
    assert "unknown_3_191_193" in data and "called by their numbers: unknown_3_191_0" in notes(data)


def test_wind_at_100_m_is_never_wind_at_100_hpa(gfs):
    fields, _ = open_fields(gfs, select={"shortName": "100u/u", "level": "100"})
    assert float(fields["u_component_of_wind_100"].mean()) == pytest.approx(10.0)
    assert float(fields["u100_heightAboveGround"].mean()) == pytest.approx(3.5)


def test_levels_in_pascal_are_said_in_hectopascal(gfs):
    assert {"o3mr_0.4", "o3mr_1000", "o3mr_600"} <= set(raw(gfs).data_vars)


def test_narrowing_decodes_nothing_else(gfs, monkeypatch):
    from engine.data import _grib_lazy, _grib_process

    read = []
    plain = _grib_process.read_fields
    monkeypatch.setattr(_grib_process, "read_fields", lambda file, places, *rest: read.extend(places) or plain(file, places, *rest))
    assert _grib_lazy  # the module asks for it by name when it reads
    open_dataset(gfs, variables=["temperature_500"])
    assert len(set(read)) == 1


def test_messages_are_picked_by_their_keys(gfs):
    data = raw(gfs, select={"typeOfLevel": "isobaricInhPa", "shortName": "gh/t", "level": "500/850"})
    assert sorted(data.data_vars) == ["gh_500", "gh_850", "t_500", "t_850"]
    with pytest.raises(DatasetError, match="no message with level=501; there are"):
        raw(gfs, select={"level": "501"})
    with pytest.raises(DatasetError, match="typeOfLevel"):
        raw(gfs, select={"nonsense": "1"})


def test_only_grib_has_messages_to_pick(tmp_path):
    xr.Dataset({"z500": (("latitude", "longitude"), np.zeros((ROWS, COLUMNS)))}, {"latitude": LAT, "longitude": LON}).to_netcdf(
        tmp_path / "a.nc"
    )
    with pytest.raises(DatasetError, match="selection of messages"):
        open_fields(tmp_path / "a.nc", select={"level": "500"})


def test_a_choice_of_messages_is_part_of_the_fingerprint(gfs):
    picks = ({"shortName": "t"}, {"shortName": "t", "level": "500"})
    assert len({open_dataset(gfs, variables=["t500"], select=s).fingerprint for s in picks}) == 2


@pytest.mark.parametrize("flags", [(i, j, c, a) for i in (0, 1) for j in (0, 1) for c in (0, 1) for a in (0, 1)], ids=str)
def test_every_scanning_mode_gives_values_at_their_places(tmp_path, flags):
    """By ecCodes' own triples of latitude, longitude and value where it walks the grid that way, and by construction."""
    negative, positive, by_columns, alternate = flags
    field = 1000 + 20 * np.arange(ROWS)[:, None] + np.arange(COLUMNS)  # north to south, west to east
    lying = field[::-1] if positive else field
    lying = lying[:, ::-1] if negative else lying
    lying = lying.T.copy() if by_columns else lying.copy()
    if alternate:
        lying[1::2] = lying[1::2, ::-1]
    ends = (-90.0, 90.0) if positive else (90.0, -90.0)
    west, east = (330.0, 0.0) if negative else (0.0, 330.0)
    keys = {"iScansNegatively": negative, "jScansPositively": positive, "jPointsAreConsecutive": by_columns}
    keys |= {"alternativeRowScanning": alternate, "latitudeOfFirstGridPointInDegrees": ends[0], "latitudeOfLastGridPointInDegrees": ends[1]}
    keys |= {"longitudeOfFirstGridPointInDegrees": west, "longitudeOfLastGridPointInDegrees": east}
    path = written(tmp_path / "a.grib", (lying.reshape(ROWS, COLUMNS), {"short": "t", **keys}))
    found = raw(path)["t_500"].isel(time=0)
    np.testing.assert_allclose(found.sel(latitude=LAT, longitude=LON).values, field, atol=0.01)


def test_missing_values_of_the_bitmap_are_missing(tmp_path):
    values = np.full((ROWS, COLUMNS), 280.0)
    values[2, 3] = 9999.0
    path = written(tmp_path / "a.grib", (values, {"short": "t", "bitmapPresent": 1, "missingValue": 9999.0}))
    found = raw(path)["t_500"].isel(time=0).values
    assert np.isnan(found[2, 3]) and np.isnan(found).sum() == 1
    assert found[0, 0] == pytest.approx(280.0)


def test_starts_and_steps_are_axes_and_valid_times_their_sum(tmp_path):
    both = [(day, step) for day in (1, 2) for step in (24, 48)]
    path = written(tmp_path / "a.grib", *((100.0 * d + s, {"short": "t", "dataDate": 20200500 + d, "step": s}) for d, s in both))
    data = raw(path)
    assert dict(data.sizes) == {"time": 2, "step": 2, "latitude": ROWS, "longitude": COLUMNS}
    assert data["valid_time"].values[1, 0] == np.datetime64("2020-05-03")
    assert float(data["t_500"][1, 0].mean()) == pytest.approx(224.0, abs=1e-3)


def test_one_step_of_several_starts_is_put_on_valid_times(tmp_path):
    path = written(
        tmp_path / "a.grib",
        *((280.0 + d, {"short": "2t", "kind": "heightAboveGround", "level": 2, "dataDate": 20200500 + d, "step": 72}) for d in (1, 2)),
    )
    fields, _ = open_fields(path)
    assert fields["time"].values.tolist() == np.array(["2020-05-04", "2020-05-05"], "datetime64[ns]").tolist()


def test_steps_in_months_are_refused_as_no_fixed_length(tmp_path):
    path = written(tmp_path / "a.grib", (280.0, {"short": "t"}))
    gid = ec.codes_new_from_message(path.read_bytes())
    ec.codes_set(gid, "indicatorOfUnitOfTimeRange", 3)
    ec.codes_set(gid, "forecastTime", 1)
    path.write_bytes(ec.codes_get_message(gid))
    ec.codes_release(gid)
    with pytest.raises(DatasetError, match="months or years"):
        raw(path)


def test_dates_before_1678_are_kept(tmp_path):
    assert str(raw(written(tmp_path / "a.grib", (280.0, {"short": "t", "dataDate": 10101})))["time"].values[0])[:10] == "0001-01-01"


def test_what_is_no_value_of_the_parameter_is_refused_in_words(tmp_path):
    for template in (5, 6, 9, 10):
        with pytest.raises(DatasetError, match=r"probabilities|percentiles"):
            raw(written(tmp_path / f"{template}.grib", (50.0, {"short": "t", "productDefinitionTemplateNumber": template})))


def test_accumulations_end_at_their_valid_time_and_that_is_said(tmp_path):
    keys = {"short": "tp", "kind": "surface", "level": 0, "productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    path = written(tmp_path / "a.grib", (1.0, keys | {"stepRange": "0-6"}), (2.0, keys | {"stepRange": "6-12"}))
    data = raw(path)
    assert data["step"].values.tolist() == [6 * 3600 * 10**9, 12 * 3600 * 10**9]
    assert "tp is a field of type accum over 6 h: its valid time is the end" in notes(data)


def test_accumulations_since_the_start_and_of_the_last_hours_are_two_variables(tmp_path):
    keys = {"short": "tp", "kind": "surface", "level": 0, "productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    ranges = (("0-6", 1.0), ("0-6", 1.0), ("6-12", 2.0), ("0-12", 3.0))
    data = raw(written(tmp_path / "a.grib", *((v, keys | {"stepRange": r}) for r, v in ranges)))
    assert sorted(data.data_vars) == ["tp_6h", "tp_since_start"]
    np.testing.assert_allclose(data["tp_6h"][0, :, 0, 0], [1, 2])
    np.testing.assert_allclose(data["tp_since_start"][0, :, 0, 0], [1, 3])
    assert "twice" in notes(data)


def test_what_no_message_fills_is_missing_and_said(tmp_path):
    tp = {"short": "tp", "kind": "surface", "level": 0, "productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    steps = [(280.0, {"short": "2t", "kind": "heightAboveGround", "level": 2, "step": s}) for s in (0, 6)]
    data = raw(written(tmp_path / "a.grib", *steps, (1.0, tp | {"stepRange": "0-6"})))
    assert np.isnan(data["tp"].values[0, 0]).all() and not np.isnan(data["tp"].values[0, 1]).any()
    assert "tp: no message for 1 of 2" in notes(data)


def test_analyses_beside_accumulations_of_another_start_share_their_valid_times(tmp_path):
    tp = {"short": "tp", "kind": "surface", "level": 0, "productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 1}
    analyses = [(280.0 + h, {"short": "2t", "kind": "heightAboveGround", "level": 2, "dataTime": 100 * h}) for h in (7, 8, 9)]
    rain = [(h, tp | {"dataTime": 600, "stepRange": f"{h - 1}-{h}"}) for h in (1, 2, 3)]
    data = raw(written(tmp_path / "a.grib", *analyses, *rain))
    assert [str(t)[11:13] for t in data["time"].values] == ["07", "08", "09"]
    np.testing.assert_allclose(data["tp"][:, 0, 0], [1, 2, 3])
    assert "put on their 3 valid times" in notes(data)


def test_a_land_sea_mask_of_one_time_serves_all(tmp_path):
    times = [(54000.0 + d, {"dataDate": 20200500 + d}) for d in (1, 2, 3)]
    path = written(tmp_path / "a.grib", *times, (0.5, {"short": "lsm", "kind": "surface", "level": 0}))
    fields = open_dataset(path).fields
    assert fields["land_sea_mask"].sizes["time"] == 3 and not np.isnan(fields["land_sea_mask"].values).any()


def test_equal_messages_count_once_and_others_of_one_place_are_refused(tmp_path):
    path = written(tmp_path / "a.grib", (280.0, {"short": "t"}), (280.0, {"short": "t"}))
    assert "twice, equal in every byte" in notes(raw(path))
    path = written(tmp_path / "b.grib", (280.0, {"short": "t"}), (281.0, {"short": "t"}), (5.0, {"short": "u"}))
    assert "left out: t_500" in notes(raw(path)) and list(raw(path).data_vars) == ["u_500"]
    with pytest.raises(DatasetError, match="several messages"):
        raw(path, variables=["t500"])


def test_a_mean_and_a_deterministic_forecast_are_no_members(tmp_path):
    members = [(54000.0 + n, member(n, n == 0)) for n in range(3)]
    mean = (54001.0, {"productDefinitionTemplateNumber": 2, "derivedForecast": 0, "numberOfForecastsInEnsemble": 3})
    data = raw(written(tmp_path / "a.grib", *members, mean, (54009.0, {})))
    assert data["z_500"].sizes["number"] == 3
    assert sorted(data.data_vars) == ["z_500", "z_500_derived_0", "z_500_deterministic"]


def test_pairs_of_perturbations_with_one_number_are_two_members(tmp_path):
    pairs = [(54000.0, member(0, True))]
    pairs += [(54000.0 + 10 * n + kind, member(n) | {"typeOfEnsembleForecast": kind}) for kind in (2, 3) for n in (1, 2)]
    data = raw(written(tmp_path / "a.grib", *pairs))
    assert data["number"].values.tolist() == [0, 1, 2, 3, 4]
    assert "numbered anew" in notes(data)
    assert len(set(data["z_500"].mean(("latitude", "longitude")).values.ravel().tolist())) == 5


def test_grids_that_are_not_regular_are_refused_in_words(tmp_path):
    def write(name, sample, **keys):
        gid = ec.codes_grib_new_from_samples(sample)
        for key, value in keys.items():
            ec.codes_set(gid, key, value)
        with (tmp_path / name).open("wb") as sink:
            ec.codes_write(gid, sink)
        ec.codes_release(gid)
        return tmp_path / name

    for sample, kind in (("reduced_gg_pl_32_grib2", "reduced_gg"), ("sh_ml_grib2", "sh"), ("GRIB2", None)):
        path = write(f"{sample}.grib", sample)
        if kind is None:
            path = write("lambert.grib", sample, gridType="lambert")
            kind = "lambert"
        with pytest.raises(DatasetError, match=f"grid of type {kind}"):
            raw(path)


def test_a_message_on_another_grid_is_skipped_and_listed(tmp_path):
    path = written(
        tmp_path / "a.grib", (280.0, {"short": "t"}), (281.0, {"short": "t", "level": 850}), (5.0, {"short": "u", "shape": (13, 24)})
    )
    assert sorted(raw(path).data_vars) == ["t_500", "t_850"]
    assert "skipped by the GRIB reader: u, on another grid than the most (7×12)" in notes(raw(path))
    assert raw(path, variables=["u500"]).sizes["latitude"] == 13


def test_gaussian_grids_have_their_own_latitudes(tmp_path):
    gid = ec.codes_grib_new_from_samples("regular_gg_pl_grib2")
    shape = (ec.codes_get(gid, "Nj", int), ec.codes_get(gid, "Ni", int))
    ec.codes_set_values(gid, np.repeat(np.arange(float(shape[0])), shape[1]))
    with (tmp_path / "a.grib").open("wb") as sink:
        ec.codes_write(gid, sink)
    expected = np.sort(np.unique(ec.codes_get_array(gid, "latitudes")))[::-1]
    ec.codes_release(gid)
    data = raw(tmp_path / "a.grib")
    np.testing.assert_allclose(data["latitude"].values, expected)
    field = next(iter(data.data_vars.values())).isel(time=0).values
    np.testing.assert_allclose(field[:, 0], np.arange(shape[0]), atol=0.1)


def test_bytes_between_messages_are_said_and_a_broken_message_is_refused(tmp_path):
    one, two = (written(tmp_path / f"{d}.grib", (280.0 + d, {"short": "t", "dataDate": 20200500 + d})).read_bytes() for d in (1, 2))
    (tmp_path / "a.grib").write_bytes(one + b"\x01\r\r\n001\r\r\nHTXX01 KWBC 010000\r\r\n" + two + b"\0" * 40)
    data = raw(tmp_path / "a.grib")
    assert data.sizes["time"] == 2 and "belong to no GRIB message" in notes(data)
    (tmp_path / "b.grib").write_bytes(one + b"GRAB" + two[4:])
    with pytest.raises(DatasetError, match="end like a message"):
        raw(tmp_path / "b.grib")
    (tmp_path / "c.grib").write_bytes(one[:-20] + two)
    with pytest.raises(DatasetError, match="does not end"):
        raw(tmp_path / "c.grib")


def test_a_bulletin_heading_before_the_first_message_is_passed_over(tmp_path):
    one = written(tmp_path / "a.grib", (280.0, {"short": "t"})).read_bytes()
    (tmp_path / "b.grib").write_bytes(b"\x01\r\r\n001\r\r\nHTXX01 KWBC 010000\r\r\n" + one)
    assert list(raw(tmp_path / "b.grib").data_vars) == ["t_500"]


def test_editions_1_and_2_in_one_file(tmp_path):
    path = written(
        tmp_path / "a.grib", (280.0, {"short": "t"}), (281.0, {"short": "t", "dataDate": 20200502, "sample": "regular_ll_pl_grib1"})
    )
    data = raw(path)
    assert list(data.data_vars) == ["t_500"] and data.sizes["time"] == 2


def test_a_reader_that_dies_is_a_refusal_and_the_next_file_is_read(tmp_path, monkeypatch):
    from engine.data import _grib_process

    good = written(tmp_path / "a.grib", (280.0, {"short": "t"}))
    killed = tmp_path / "worker.py"
    killed.write_text("import os, sys\nsys.stdin.readline()\nos.abort()\n")
    monkeypatch.setattr(_grib_process, "_WORKER", killed)
    _grib_process._PROCESS.close()
    with pytest.raises(DatasetError, match="SIGABRT"):
        raw(good)
    monkeypatch.undo()
    assert list(raw(good).data_vars) == ["t_500"]


def test_a_reader_that_does_not_come_back_is_a_refusal(tmp_path, monkeypatch):
    from engine.data import _grib_process

    stuck = tmp_path / "worker.py"
    stuck.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(_grib_process, "_WORKER", stuck)
    monkeypatch.setattr(_grib_process, "SECONDS", -4.5)
    _grib_process._PROCESS.close()
    with pytest.raises(DatasetError, match="too long"):
        raw(written(tmp_path / "a.grib", (280.0, {"short": "t"})))


def test_a_reader_that_died_between_requests_is_started_anew(tmp_path):
    from engine.data import _grib_process

    data = raw(written(tmp_path / "a.grib", (280.0, {"short": "t"})))
    _grib_process._PROCESS.child.kill()
    assert float(data["t_500"].mean()) == pytest.approx(280.0)


def test_ecCodes_stays_out_of_this_process(tmp_path):
    """Its libraries bring a second libproj, which corrupts the heap beside pyproj's."""
    path = written(tmp_path / "a.grib", (280.0, {"short": "t"}))
    code = f"import sys; from engine.data import open_fields; open_fields({str(path)!r})[0].load(); "
    code += "print([m for m in sys.modules if m in ('eccodes', 'gribapi', 'cfgrib')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_is_written_beside_the_file(tmp_path):
    raw(written(tmp_path / "a.grib", (280.0, {"short": "t"}))).load()
    assert [p.name for p in tmp_path.iterdir()] == ["a.grib"]


def test_damaged_files_end_in_a_result_or_a_refusal(tmp_path):
    """Bytes changed anywhere, by a fixed seed: the reader's process may die, this one may not."""
    whole = written(tmp_path / "a.grib", *((280.0 + n, {"short": "t", "level": level}) for n, level in enumerate((500, 850)))).read_bytes()
    rng = np.random.default_rng(7)
    for trial in range(40):
        changed = bytearray(whole)
        for at in rng.integers(0, 200, 3):
            changed[at] = rng.integers(256)
        path = tmp_path / f"{trial}.grib"
        path.write_bytes(b"GRIB" + bytes(changed[4:]))
        try:
            raw(path).load()
        except EngineError as refusal:
            assert refusal.found and refusal.expected and refusal.remedy


MUTATED = ROOT.parent / "shared" / "cases" / "mutated"


@pytest.mark.parametrize("name", ["grib_0/g1.grib", "grib_2/g2.grib", "grib_4/g1.grib", "grib_6/g1.grib"])
def test_mutated(name):
    if not (MUTATED / name).exists():
        pytest.skip("the mutated files are not here")
    file = str(MUTATED / name)
    done = subprocess.run(
        [sys.executable, "-m", "engine", "score", "--forecast", file, "--observed", file, "--json"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode in (0, 2), done.stderr[-500:]
    assert isinstance(json.loads(done.stdout), dict)
