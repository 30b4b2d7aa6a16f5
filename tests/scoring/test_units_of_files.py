"""Units and missing values of files as people bring them: the score of the canonical file, or a refusal that says what to do.

Tests named after what was reported once; beside each, its whole kind.
"""

import warnings

import numpy as np
import pytest
import xarray as xr

from engine.errors import EngineError
from engine.runs.score_files import score_files

RNG = np.random.default_rng(3)
LAT, LON = np.arange(60, -61, -30.0), np.arange(0, 360, 60.0)
TIME = np.arange("2020-01-01", "2020-01-09", dtype="datetime64[D]").astype("datetime64[ns]")
TRUTH = ("time", "latitude", "longitude")
DIMS = ("number", *TRUTH)
COORDS = {"time": TIME, "latitude": LAT, "longitude": LON}
SHAPE = (len(TIME), len(LAT), len(LON))
MEMBERS = 4


def field(values, name, units=None, **attrs):
    """A field, on as many of the dimensions as there are."""
    labels = attrs | ({} if units is None else {"units": units})
    return xr.DataArray(np.asarray(values), dims=DIMS[-np.ndim(values) :], coords=COORDS, name=name, attrs=labels)


def pair(centre, spread, error=0.2):
    """An ensemble and what was observed, float64."""
    truth = centre + spread * RNG.standard_normal(SHAPE)
    return truth + error * spread * RNG.standard_normal((MEMBERS, *SHAPE)), truth


@pytest.fixture
def scored(tmp_path):
    """Score two fields by way of files: the CRPS, and all that was said."""

    def run(forecast, observed, encoding=None, **options):
        said: list[str] = []
        folder = tmp_path / str(len(list(tmp_path.iterdir())))  # what a refusal still holds open cannot be written again
        folder.mkdir()
        for side, data in (("forecast", forecast), ("observed", observed)):
            data = data.to_dataset() if isinstance(data, xr.DataArray) else data
            data.to_netcdf(
                folder / f"{side}.nc", encoding=(encoding or {}).get(side, {str(v): {"_FillValue": None} for v in data.data_vars})
            )
        found = score_files(folder / "forecast.nc", folder / "observed.nc", ("crps_fair",), replicates=2, say=said.append, **options)
        return found["crps_fair"]["value"], found, " | ".join(said)

    return run


KELVIN, WIND, HUMID, HEIGHT = pair(285, 8), pair(5, 6), pair(0.006, 0.001), pair(5500, 100)
RELATIVE, RAIN, PRESSURE = pair(60, 8), tuple(np.abs(v) for v in pair(0, 8)), pair(1e5, 900)
MASK, FLUX, SALT = pair(0.5, 0.05), pair(240, 20), pair(35, 0.4)
SPELLINGS = [
    (("t2m", "K", KELVIN), [
        ("kelvin", 1, 0), ("Kelvin", 1, 0), ("degC", 1, -273.15), ("degrees C", 1, -273.15), ("degreesC", 1, -273.15),
        ("deg_C", 1, -273.15),
        ("Celsius", 1, -273.15), ("°C", 1, -273.15), ("degree_Celsius", 1, -273.15), ("C", 1, -273.15), ("degF", 1.8, -459.67),
        ("degrees F", 1.8, -459.67), ("Fahrenheit", 1.8, -459.67),
    ]),
    (("u10", "m s-1", WIND), [
        ("m s**-1", 1, 0), ("m/s", 1, 0), ("m s^-1", 1, 0), ("meters per second", 1, 0), ("knots", 3600 / 1852, 0),
        ("kt", 3600 / 1852, 0),
        ("km h-1", 3.6, 0), ("km/h", 3.6, 0), ("cm s-1", 100, 0), ("mph", 1 / 0.44704, 0),
    ]),
    (("q850", "kg kg-1", HUMID), [
        ("kg kg**-1", 1, 0), ("g/kg", 1e3, 0), ("g kg-1", 1e3, 0), ("g kg**-1", 1e3, 0), ("mg kg-1", 1e6, 0), ("1", 1, 0),
    ]),
    (("gh500", "m", HEIGHT), [
        ("gpm", 1, 0), ("dam", 0.1, 0), ("gpdm", 0.1, 0), ("km", 1e-3, 0), ("ft", 1 / 0.3048, 0), ("m2 s-2", 9.80665, 0),
        ("m**2 s**-2", 9.80665, 0), ("m^2/s^2", 9.80665, 0), ("J kg-1", 9.80665, 0),
    ]),
    (("r850", "%", RELATIVE), [("percent", 1, 0), ("1", 0.01, 0), ("(0 - 1)", 0.01, 0)]),
    (("tp", "mm", RAIN), [
        ("m", 1e-3, 0), ("cm", 0.1, 0), ("kg m-2", 1, 0), ("kg m**-2", 1, 0), ("kg/m^2", 1, 0), ("inches", 1 / 25.4, 0),
        ("m of water equivalent", 1e-3, 0),
    ]),
    (("pr", "kg m-2 s-1", tuple(v / 86400 for v in RAIN)), [
        ("kg m**-2 s**-1", 1, 0), ("mm day-1", 86400, 0), ("mm/day", 86400, 0), ("mm h-1", 3600, 0), ("m s-1", 1e-3, 0),
    ]),
    (("msl", "Pa", PRESSURE), [("hPa", 0.01, 0), ("millibars", 0.01, 0), ("mb", 0.01, 0), ("kPa", 1e-3, 0), ("N m-2", 1, 0)]),
    (("tcc", "(0 - 1)", MASK), [("%", 100, 0), ("1", 1, 0), ("oktas", 8, 0), ("fraction", 1, 0)]),
    (("rlut", "W m-2", FLUX), [("W m**-2", 1, 0), ("W/m^2", 1, 0), ("watts per meter^2", 1, 0), ("kW m-2", 1e-3, 0), ("J m-2 s-1", 1, 0)]),
    (("so", "psu", SALT), [("PSU", 1, 0), ("1e-3", 1, 0), ("0.001", 1, 0)]),
    (("sst", "degC", tuple(v - 268 for v in KELVIN)), [("K", 1, 273.15), ("deg_C", 1, 0), ("degF", 1.8, 32)]),
]  # fmt: skip
TABLE = [(*known, spelled) for known, others in SPELLINGS for spelled in others]


@pytest.mark.parametrize(("name", "units", "values", "spelled"), TABLE, ids=[f"{t[0]}-{t[3][0]}" for t in TABLE])
def test_every_spelling_gives_the_score_of_the_canonical_file(scored, name, units, values, spelled):
    members, truth = values
    label, scale, offset = spelled
    expected, *_ = scored(field(members, name, units), field(truth, name, units))
    found, _, said = scored(field(members, name, units), field(truth * scale + offset, name, label))
    turned, *_ = scored(field(members * scale + offset, name, label), field(truth, name, units))
    size = float(np.abs(truth * scale + offset).max()) / scale
    known = name in ("t2m", "u10", "q850", "gh500", "r850")
    kept = (9.80665 if abs(scale - 9.80665) < 1e-9 else 1) if known else scale  # the forecast's units are those of the score
    slack = 3e-7 * size  # single precision, of the larger numbers
    assert found == pytest.approx(expected, rel=1e-6, abs=slack)
    assert turned == pytest.approx(expected * kept, rel=1e-6, abs=slack * max(1, scale))
    assert not known or scale == 1 == 1 + offset or " to " in said or "taken as" in said


REFUSED = [
    ("t2m", KELVIN, "foo", "no unit that is known"), ("t2m", KELVIN, "m s-1", "do not convert"), ("t2m", KELVIN, "K m", "do not convert"),
    ("t2m", KELVIN, "degC", "usual in K"), ("10m_u_component_of_wind", WIND, "K", "do not convert"), ("u10", WIND, "speed", "no unit"),
    ("q850", tuple(v * 1e3 for v in HUMID), "kg kg-1", "usual in g kg-1"), ("gh500", HEIGHT, "hPa", "do not convert|hPa"),
    ("r850", RELATIVE, "1", "usual in %"), ("tp", RAIN, "foo", "no unit that is known"), ("tp", RAIN, "mm day-1", "units"),
    ("rlut", FLUX, "J m-2", "units"), ("so", SALT, "g kg-1", "units"), ("so", SALT, "1", "units"), ("tp", RAIN, "mm month-1", "units"),
    ("tcc", tuple(v * 100 for v in MASK), "(0 - 1)", "two labels"), ("o3", tuple(v * 1e-6 for v in RAIN), "ppmv", "units"),
]  # fmt: skip
CANONICAL = {
    "t2m": "K",
    "10m_u_component_of_wind": "m s-1",
    "u10": "m s-1",
    "q850": "kg kg-1",
    "gh500": "m",
    "r850": "%",
    "tp": "mm",
    "rlut": "W m-2",
}
CANONICAL |= {"so": "psu", "tcc": "%", "o3": "kg kg-1"}


@pytest.mark.parametrize(("name", "values", "label", "says"), REFUSED, ids=[f"{r[0]}-{r[2]}" for r in REFUSED])
def test_labels_that_are_refused(scored, name, values, label, says):
    members, truth = values
    with pytest.raises(EngineError, match=says) as refusal:
        scored(field(members, name, label), field(truth, name, CANONICAL[name]))
    assert refusal.value.remedy


def test_units_overridden(scored):
    """degF over a winter continent: every value is also plausible as degC, and the label decides all the same."""
    members, truth = pair(272, 4)
    expected, *_ = scored(field(members, "t2m", "K"), field(truth, "t2m", "K"))
    found, *_ = scored(field(members * 1.8 - 459.67, "t2m", "degF"), field(truth, "t2m", "K"))
    assert found == pytest.approx(expected, rel=1e-4)


def test_q_units_spelling(scored):
    members, truth = pair(0.003, 0.0003)
    expected, *_ = scored(field(members, "q50", "g kg-1"), field(truth, "q50", "g kg-1"))
    for label in ("g/kg", "g kg**-1"):
        assert scored(field(members, "q50", label), field(truth, "q50", label))[0] == expected > 0


@pytest.mark.parametrize("units", ["days", "seconds", "hours", "d", "s", "minutes"])
def test_xr_2085_units_days(scored, units):
    """Fields in a unit of time stay numbers, and what is missing stays missing."""
    members, truth = RAIN
    holes = truth.copy()
    holes[:, 2, 2:4] = np.nan
    expected, wanted, _ = scored(field(members, "wet", "mm"), field(holes, "wet", "mm"))
    found, answer, _ = scored(field(members, "wet", units), field(holes, "wet", units))
    assert found == expected
    assert answer["valid"]["fraction"] == wanted["valid"]["fraction"] < 1


def geopotential(levels=(1000, 500, 50)):
    base = np.array([{1000: 250.0, 500: 51000.0, 50: 199000.0}[level] for level in levels])[:, None, None]
    truth = base + RNG.normal(0, 150, (len(TIME), len(levels), *SHAPE[1:]))
    return truth + RNG.normal(0, 60, (MEMBERS, *truth.shape)), truth


def stacked(values, name, units, levels=(1000, 500, 50), **attrs):
    coords = {"time": TIME, "level": ("level", list(levels), {"units": "hPa"}), "latitude": LAT, "longitude": LON}
    dims = ("number", "time", "level", "latitude", "longitude")[-values.ndim :]
    return xr.DataArray(values, dims=dims, coords=coords, name=name, attrs={"units": units, **attrs})


@pytest.mark.parametrize("variable", ["geopotential_1000", "geopotential_height_1000"])
def test_pangu_61_geopotential_m(scored, variable):
    """One variable has one unit at all levels: what cannot be metres at 500 hPa is no metre at 1000 hPa."""
    members, truth = geopotential()
    observed = stacked(truth, "z", "m**2 s**-2")
    expected, *_ = scored(stacked(members, "geopotential", "m**2 s**-2"), observed, variable=variable)
    found, _, said = scored(stacked(members, "geopotential", "m"), observed, variable=variable)
    assert found == pytest.approx(expected, rel=1e-6)
    assert "at all levels" in said


def test_one_level_that_could_be_either_is_refused_and_a_height_is_not(scored):
    members, truth = geopotential((1000,))
    with pytest.raises(EngineError, match="could be m or m2 s-2"):
        scored(stacked(members, "geopotential", "m", (1000,)), stacked(truth, "z", "m**2 s**-2", (1000,)))
    height = stacked(members / 9.80665, "zg", "m", (1000,), standard_name="geopotential_height")
    found, *_ = scored(height, stacked(truth, "z", "m**2 s**-2", (1000,)))
    assert found == pytest.approx(
        scored(stacked(members, "z", "m2 s-2", (1000,)), stacked(truth, "z", "m2 s-2", (1000,)))[0] / 9.80665, rel=1e-4
    )


def test_a_dry_stratosphere_keeps_its_percent(scored):
    members, truth = pair(0.9, 0.05)
    expected, *_ = scored(field(members, "rh_like", "%"), field(truth, "rh_like", "%"))
    assert scored(field(members, "r50", "%"), field(truth, "r50", "%"))[0] == pytest.approx(expected, rel=1e-6)
    assert scored(field(members * 40, "r50", "%"), field(truth, "r50", "%"))[0] > 10  # one side small: no factor of 100 on one side only


@pytest.mark.parametrize("label", ["K", "degC", "degF"])
@pytest.mark.parametrize("named", [{}, {"long_name": "2 m temperature anomaly"}])
def test_anomalies_stay_anomalies(scored, label, named):
    members, truth = pair(0, 2)
    scale = 1.8 if label == "degF" else 1
    expected, *_ = scored(field(members, "x", "K"), field(truth, "x", "K"))
    found, _, said = scored(field(members * scale, "t2m", label, **named), field(truth, "t2m", "K"))
    assert found == pytest.approx(expected, rel=1e-4)
    assert "offset" in said
    assert scored(field(members, "t2m", "K"), field(truth * scale, "t2m", label, **named))[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["t2m", "sst"])
def test_anomalies_against_temperatures_are_refused(scored, name):
    members, _ = pair(0, 2)
    for label, shift in (("K", 0), ("degC", -273.15)):
        with pytest.raises(EngineError, match="anomalies"):
            scored(field(members, name, "K"), field(KELVIN[1] + shift, name, label))


def test_a_missing_label_is_taken_on_trust_and_said(scored):
    members, truth = RAIN
    assert "without units" not in scored(field(members, "tp"), field(truth, "tp"))[2]
    assert "no units recorded" in scored(field(members, "tp"), field(truth, "tp"))[2]


FILLS = [-999, -9999, -99.9, 1e20, 9.969209968386869e36, -32767, 32767, 3.4028234663852886e38, -1e30, np.inf]


@pytest.mark.parametrize("side", ["forecast", "observed"])
@pytest.mark.parametrize("value", FILLS)
@pytest.mark.parametrize(("name", "values"), [("tp", RAIN), ("t2m", KELVIN), ("sst", KELVIN)])
def test_undeclared_fill(scored, name, values, value, side):
    """A stand-in that nobody declared is refused, with the side, the value and the place, and a way out."""
    members, truth = (v.copy() for v in values)
    for at, time in ((members, 6), (truth, 5)):
        if (at is members) == (side == "forecast"):
            at[..., time, 1, 2:4] = value
    units = "mm" if name == "tp" else "K"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # to single precision
        files = [field(v.astype("f4"), name, units) for v in (members, truth)]
    encoding = {side: {name: {"_FillValue": np.float32(-1)}} for side in ("forecast", "observed")}  # a declared one, which does not occur
    with pytest.raises(EngineError) as refusal:
        scored(*files, encoding=encoding)
    error = refusal.value
    assert side in error.what
    assert f"time {TIME[6 if side == 'forecast' else 5]}"[:20] in error.found
    assert "latitude 30, longitude 120" in error.found
    assert "--missing" in error.remedy
    if np.isfinite(value):
        found, answer, _ = scored(*files, encoding=encoding, missing=value)
        assert np.isfinite(found)
        assert answer["valid"]["fraction"] < 1


@pytest.mark.parametrize("member", range(MEMBERS))
@pytest.mark.parametrize("time", range(len(TIME)))
def test_a_fill_value_is_found_at_every_time_and_member(scored, member, time):
    members = KELVIN[0].copy()
    members[member, time, 3, 4] = -9999
    with pytest.raises(EngineError) as refusal:
        scored(field(members, "t2m", "K"), field(KELVIN[1], "t2m", "K"))
    assert f"{member}, time {str(TIME[time])[:13]}" in refusal.value.found


def test_a_whole_member_of_fill_values_is_refused_for_unknown_variables_too(scored):
    members = RAIN[0].copy()
    members[2] = -999
    with pytest.raises(EngineError, match="member 2, time 2020-01-01"):
        scored(field(members, "tp", "mm"), field(RAIN[1], "tp", "mm"))


def test_celsius_with_a_fill_value_that_is_a_plausible_temperature(scored):
    """−99 degC is 174.15 K, which is no impossible temperature: the number of the file tells."""
    truth = KELVIN[1] - 273.15
    truth[3, 1, 1:3] = -99
    with pytest.raises(EngineError, match=r"174\.15 K \(-99 in the file\)"):
        scored(field(KELVIN[0], "t2m", "K"), field(truth, "t2m", "degC"))


def test_honest_values_are_scored(scored):
    dry = [np.where(v < 6, 0, v) for v in RAIN]
    assert np.isfinite(scored(field(dry[0], "tp", "mm"), field(dry[1], "tp", "mm"))[0])
    pressure = [np.round(v / 100) for v in PRESSURE]
    pressure[1][:, 0, 0] = 999
    assert np.isfinite(scored(field(pressure[0], "msl", "hPa"), field(pressure[1], "msl", "hPa"))[0])
    odd = RAIN[1].copy()
    odd[4, 1, 1:3] = 999
    assert scored(field(RAIN[0], "tp", "mm"), field(odd, "tp", "mm"), missing=float("nan"))[0] > 1


def test_the_climatology_is_judged(tmp_path, scored):
    normal = KELVIN[1].mean(0)
    normal[1, 1] = -9999
    clim = xr.DataArray(normal, dims=TRUTH[1:], coords={k: COORDS[k] for k in TRUTH[1:]}, name="t2m", attrs={"units": "K"})
    clim.to_netcdf(tmp_path / "clim.nc")
    with pytest.raises(EngineError, match="climatology 2m_temperature: found -9999 K"):
        scored(field(KELVIN[0], "t2m", "K"), field(KELVIN[1], "t2m", "K"), climatology=tmp_path / "clim.nc")


@pytest.mark.parametrize(
    "attrs",
    [{"valid_range": np.float32([0, 200])}, {"valid_max": np.float32(200)}, {"valid_min": np.float32(0), "valid_max": np.float32(200)}],
    ids=lambda a: "+".join(a),
)
def test_declared_ranges_are_applied(scored, attrs):
    members, truth = RAIN
    spoiled = truth.copy()
    spoiled[2, 1, 1:4] = 555
    holes = np.where(spoiled == 555, np.nan, spoiled)
    expected, wanted, _ = scored(field(members, "tp", "mm"), field(holes, "tp", "mm"))
    found, answer, said = scored(field(members, "tp", "mm"), field(spoiled, "tp", "mm", **attrs))
    assert found == expected
    assert answer["valid"]["fraction"] == wanted["valid"]["fraction"] < 1
    assert "valid range" in said


@pytest.mark.parametrize("bounds", [np.int16([0, 20000]), np.float32([0, 200])], ids=["packed", "unpacked"])
def test_declared_ranges_of_packed_data(scored, bounds):
    packed = np.round(RAIN[1] / 0.01).astype("i2")
    packed[2, 1, 1:4] = 32000
    packed[0, 0, 0] = 20000  # the bound itself is valid
    observed = field(packed, "tp", "mm", scale_factor=0.01, add_offset=0.0, valid_range=bounds)
    *_, answer, said = scored(field(RAIN[0], "tp", "mm"), observed)
    holes = RAIN[1].copy()
    holes[2, 1, 1:4] = np.nan
    assert answer["valid"]["fraction"] == scored(field(RAIN[0], "tp", "mm"), field(holes, "tp", "mm"))[1]["valid"]["fraction"]
    assert "(0 … 200)" in said


def test_unsigned_bytes(scored):
    packed = np.clip(np.round(RAIN[1] * 8), 0, 250).astype("u1")
    packed[2, 1, 1:4] = 255
    attrs = {"scale_factor": 0.125, "_Unsigned": "true", "valid_range": np.array([0, -2], "i1")}
    observed = field(packed.view("i1"), "tp", "mm", **attrs)
    _, answer, said = scored(field(RAIN[0], "tp", "mm"), observed)
    assert "(0 … 31.75)" in said
    assert answer["valid"]["fraction"] < 1


@pytest.mark.parametrize(
    ("kind", "fill"), [("f4", 9.969209968386869e36), ("f8", 9.969209968386869e36), ("i2", -32767), ("i4", -2147483647)]
)
def test_what_netcdf_never_wrote_is_missing(scored, kind, fill):
    """A file that names no fill value has that of its type where nothing was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        truth = np.round(RAIN[1]).astype(kind)
        truth[3, 2, 1:3] = np.asarray(fill).astype(kind)
    holes = np.round(RAIN[1])
    holes[3, 2, 1:3] = np.nan
    expected, wanted, _ = scored(field(RAIN[0], "tp", "mm"), field(holes, "tp", "mm"))
    found, answer, _ = scored(field(RAIN[0], "tp", "mm"), field(truth, "tp", "mm"))
    assert found == expected
    assert answer["valid"] == wanted["valid"]


@pytest.mark.parametrize("form", [2, 3])
def test_xr_5475_zarr_fill(tmp_path, form):
    """A store's fill_value 0 is what was never written; zeros are dry places."""
    import zarr

    dry = [np.where(v < 6, 0, v).astype("f4") for v in RAIN]
    axes = {"time": np.arange(len(TIME)), "latitude": LAT, "longitude": LON, "member": np.arange(MEMBERS)}
    labels = {"time": "days since 2020-01-01", "latitude": "degrees_north", "longitude": "degrees_east", "member": "1", "tp": "mm"}
    for side, values, dims in (("forecast", dry[0], ("member", *TRUTH)), ("observed", dry[1], TRUTH)):
        group = zarr.open_group(tmp_path / f"{side}.zarr", mode="w", zarr_format=form)
        for name, array, on in (*((d, axes[d], (d,)) for d in dims), ("tp", values, dims)):
            extra = {"dimension_names": on} if form == 3 else {}
            stored = group.create_array(name, shape=array.shape, dtype=array.dtype, chunks=array.shape, fill_value=0, **extra)
            stored[...] = array
            stored.attrs.update({"units": labels[name]} | ({"_ARRAY_DIMENSIONS": list(on)} if form == 2 else {}))
    found = score_files(tmp_path / "forecast.zarr", tmp_path / "observed.zarr", ("crps_fair",), replicates=2)
    from engine.runs.score import score

    assert found["valid"]["fraction"] == 1
    assert found["crps_fair"]["value"] == pytest.approx(
        score("crps_fair", field(dry[0], "tp").rename(number="member"), field(dry[1], "tp")), rel=1e-9
    )


@pytest.mark.parametrize("form", [2, 3])
def test_a_fill_value_that_xarray_wrote_counts_in_both_formats(tmp_path, form):
    holes = RAIN[1].astype("f4")
    holes[:, 1, 1] = np.nan
    for side, values in (("forecast", RAIN[0].astype("f4")), ("observed", holes)):
        field(values, "tp", "mm").to_dataset().to_zarr(
            tmp_path / f"{side}.zarr", zarr_format=form, consolidated=False, encoding={"tp": {"_FillValue": np.float32(-9999)}}
        )
    found = score_files(tmp_path / "forecast.zarr", tmp_path / "observed.zarr", ("crps_fair",), replicates=2)
    assert 0.9 < found["valid"]["fraction"] < 1


def test_valid_shares_are_in_the_answer_and_empty_members_are_named(scored):
    members = KELVIN[0].copy()
    members[1], members[3] = np.nan, np.nan
    members[0, 5] = np.nan
    truth = KELVIN[1].copy()
    truth[2, 0] = np.nan
    _, answer, said = scored(field(members, "t2m", "K"), field(truth, "t2m", "K"))
    valid = answer["valid"]
    assert valid["by_member"] == [pytest.approx(7 / 8), 0, 1, 0]
    assert valid["by_time"]["least"] == 0
    assert valid["by_time"]["at"] == "2020-01-06T00:00"
    assert len(valid["by_time"]["all"]) == len(TIME)
    assert valid["by_time"]["all"][0] == 1
    assert 0 < valid["by_time"]["all"][2] < 1
    assert valid["fraction"] == pytest.approx(answer["crps_fair"]["valid_fraction"])
    assert "2 of 4 members hold no value at all (1, 3)" in said


def test_fields_of_two_heights_are_two_variables(scored):
    members, truth = WIND
    pairs = [field(members, "wind", "m s-1").assign_coords(height=100.0), field(truth, "wind", "m s-1").assign_coords(height=10.0)]
    for data in pairs:
        data["height"].attrs["units"] = "m"
    with pytest.raises(EngineError, match="100 m, observed at 10 m"):
        scored(*pairs)


@pytest.mark.parametrize(
    ("name", "values", "attrs"),
    [
        ("lev", [10, 50, 100], {"units": "m"}), ("lev", [300, 315, 330], {"units": "K"}), ("lev", [1, 2, 3], {}),
        ("level", [0.9, 0.5, 0.1], {}),
        ("lev", [1, 2, 3], {"standard_name": "atmosphere_hybrid_sigma_pressure_coordinate"}),
        ("lev", [5, 15, 25], {"units": "m", "positive": "down"}),
        ("level", [1, 2, 3], {"units": "layer"}), ("depth", [5, 15, 25], {"units": "m"}), ("theta", [300, 315, 330], {"units": "K"}),
    ],
)  # fmt: skip
def test_other_vertical_axes_are_no_pressures(scored, name, values, attrs):
    def on_levels(data):
        return xr.concat([data] * 3, xr.DataArray(values, dims=name, name=name, attrs=attrs)).transpose(
            *[*data.dims[:-2], name, *TRUTH[1:]]
        )

    members, truth = KELVIN
    with pytest.raises(EngineError, match=r"not pressure|select along it first"):
        scored(on_levels(field(members, "t", "K")), on_levels(field(truth, "t", "K")))


@pytest.mark.parametrize(
    ("values", "units"), [([85000.0], "Pa"), ([850.0], "hPa"), ([850.0], "millibars"), ([0.85], "bar"), ([850.0], None), ([85.0], "kPa")]
)
def test_pressures_in_any_unit(scored, values, units):
    attrs = {} if units is None else {"units": units}
    data = [field(v, "t", "K").expand_dims(plev=values, axis=-3) for v in KELVIN]
    for part in data:
        part["plev"].attrs.update(attrs)
    observed = field(KELVIN[1], "t850", "K")
    assert np.isfinite(scored(data[0], observed)[0])
