"""What a run computes, and what its numbers must not depend on."""

import subprocess
import sys

import numpy as np
import pytest

from engine.errors import EngineError
from engine.methods import stochastic_attention
from engine.runs import jobs, store
from engine.runs.verification import open_fields


def per_case(verification):
    """Statistics of single cases by name, on init_time."""
    named = [n for n in verification.data_vars if str(n).endswith("_case")]
    assert len(named) >= 3
    return verification[named].swap_dims(case="init_time")


def test_numbers_do_not_depend_on_shards_or_on_their_company(home, spec) -> None:
    """Bit by bit: other shard sizes, other ν beside, and other cases beside give a case at a ν the same numbers."""
    whole = jobs.run(spec(nu=(2, 8, 16), max_cases=None, shard_cases=3))
    fewer = jobs.run(spec(nu=(8,), max_cases=4, shard_cases=1))
    a, b = per_case(whole).sel(nu=8, init_time=fewer.init_time.values), per_case(fewer).sel(nu=8)
    for name in b.data_vars:
        np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=str(name))
    maps = open_fields(store.folder(whole.attrs["key"])), open_fields(store.folder(fewer.attrs["key"]))
    with maps[0], maps[1]:
        at = [maps[0].init_time.values.tolist().index(t) for t in maps[1].init_time.values]
        np.testing.assert_array_equal(maps[0]["quantiles"].sel(nu=8).isel(map_case=at).values, maps[1]["quantiles"].sel(nu=8).values)


def test_the_same_run_in_other_shards_is_the_same_run(home, spec) -> None:
    first = jobs.run(spec(shard_cases=4))
    key = first.attrs["key"]
    with store.table() as connection:
        connection.execute("UPDATE runs SET status = 'cancelled' WHERE key = ?", (key,))
    again = jobs.run(spec(shard_cases=2))
    assert again.attrs["key"] == key
    # gridpoint sums carry their rounding error: another split of the cases gives the same float32 maps
    for name in set(first.data_vars) - {"seconds"}:
        np.testing.assert_array_equal(first[name].values, again[name].values, err_msg=str(name))


def test_members_in_chunks_are_the_same_members(home, spec, monkeypatch) -> None:
    """A forward's last bits may change with its number of rows; its noise may not."""
    whole = jobs.run(spec(members=5))
    monkeypatch.setattr(stochastic_attention, "TOKENS_A_CALL", 64)  # 32 tokens a member: two members a call
    chunked = jobs.run(spec(members=5, title="again", bootstrap=101))  # another key, the same numbers
    # float32 forwards through two blocks agree to about 1e-6; other noise would move single cases by some per cent
    for name in ("crps_fair", "rmse", "width_95"):
        np.testing.assert_allclose(whole[f"{name}_case"], chunked[f"{name}_case"], rtol=1e-4)


def test_seeds_and_members_differ(home, spec) -> None:
    one, other = (jobs.run(spec(seed=s, calibrate=())) for s in (0, 1))
    assert (one["crps_fair_case"].values != other["crps_fair_case"].values).all()
    with open_fields(store.folder(one.attrs["key"])) as maps:
        assert (maps["quantiles"].isel(quantile=0) < maps["quantiles"].isel(quantile=-1)).mean() > 0.99


def test_several_lead_times_and_variables_share_their_initial_times(home, spec) -> None:
    """Each lead time alone has other evenly spaced cases; labels are shared, so the cases must be."""
    found = jobs.run(spec(lead_hours=(72.0, 24.0), variables=("temperature_850", "geopotential_height_500"), max_cases=4))
    assert found.sizes["lead_time"] == found.sizes["variable"] == 2
    assert found["lead_time"].values.tolist() == [72.0, 24.0]
    assert np.isfinite(found["crps_fair"]).all() and np.isfinite(found["crps_fair_case"]).all()
    day = lambda t: int(t[8:10]) + 30 * int(t[5:7])  # noqa: E731 -- one conversion of this test
    for lead, hours in enumerate(found["lead_time"].values):
        for start, end in zip(found["init_time"].values, found["valid_time"].isel(lead_time=lead).values, strict=True):
            assert day(end) - day(start) == hours / 24
    with open_fields(store.folder(found.attrs["key"])) as maps:
        assert maps["init_time"].dims == ("map_case",) and maps["valid_time"].dims == ("lead_time", "map_case")
        assert np.isfinite(maps["mean"]).all()
    assert found["unit"].values.tolist() == ["K", "m"]
    # a lead time beside it changes nothing for a case that both runs hold
    alone = jobs.run(spec(lead_hours=(24.0,), variables=("temperature_850",), max_cases=None))
    a = per_case(found).sel(lead_time=24.0, variable="temperature_850")
    b = per_case(alone).sel(lead_time=24.0, variable="temperature_850", init_time=found.init_time.values)
    np.testing.assert_array_equal(a["crps_fair_case"].values, b["crps_fair_case"].values)


def test_lead_times_without_a_common_start_are_refused(home, spec) -> None:
    with pytest.raises(EngineError, match="apart"):
        jobs.run(spec(lead_hours=(72.0, 24000.0)))


def test_the_deterministic_method_is_refused_with_a_way_on(home, spec) -> None:
    with pytest.raises(EngineError, match=r"no ensemble.*rmse_deterministic"):
        jobs.run(spec(method="deterministic"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"variables": ("vorticity",)}, "geopotential_height_500"),
        ({"scores": ("crps_fiar",)}, "crps_fair"),
        ({"method": "stochastic"}, "stochastic_attention"),
        ({"params": {"sites": "layer.*"}}, "blocks"),
        ({"params": {"site": "*"}}, "sites"),
        ({"architecture": {"num_heads": 8}}, "4"),
        ({"lead_hours": (7.0,)}, "7 h apart"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(home, spec, changes, says) -> None:
    with pytest.raises(EngineError, match=says):
        jobs.run(spec(**changes))


def test_a_region_of_a_limited_area(home, make, tmp_path) -> None:
    """Default regions that the grid does not reach are left out; the user's own must hold a point."""
    limited = make.world(tmp_path / "limited", days=12, latitude=np.linspace(60, 46, 8), longitude=np.linspace(0, 30, 16))
    found = jobs.run(make.spec(limited, regions={"alps": (46, 49, 5, 16)}))
    assert found["region"].values.tolist() == ["globe", "northern extratropics", "europe", "alps"]
    assert np.isfinite(found["crps_fair"]).all()
    with pytest.raises(EngineError, match=r"'andes'.*latitudes 46 … 60"):
        jobs.run(make.spec(limited, regions={"andes": (-50, -10, -75, -65)}))


def test_missing_observations_lower_the_valid_share_and_nothing_else(home, make, world, tmp_path) -> None:
    """A missing input value is refused, so the gap stands in the last days, which are observed only."""
    data = make.fields("0004-01-01", 12, 1)
    values = data["geopotential_height_500"].values
    values[9:, 2, 3] = np.nan
    data.to_netcdf(tmp_path / "gap.nc", engine="h5netcdf")
    found = jobs.run(make.spec(world, data=(tmp_path / "gap.nc",), max_cases=None, scores=("crps_fair", "w1_pit")))
    share = found["valid_fraction"].sel(region="globe").item()
    assert 0.99 < share < 1.0
    assert np.isfinite(found["crps_fair"]).all()
    assert found["valid_map"].isel(latitude=2, longitude=3).item() == pytest.approx(6 / 9)  # 9 cases, 3 of them without it


PEAK = """
import sys
from pathlib import Path
from engine.runs import jobs
from engine.runs.spec import parse_spec
import json
spec = json.loads(sys.argv[1])
jobs.run(parse_spec(spec | {"max_cases": 12, "seed": 1}))  # libraries load, caches fill
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak starts anew from here
jobs.run(parse_spec(spec))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")][0])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_cases(home, working, tmp_path) -> None:
    """Peak resident memory over 4 × the cases, each in a process of its own, within 5 %: the issue's own bound."""
    peaks = []
    for cases in (60, 240):
        text = working(max_cases=cases, nu=(2, 8), scores=()).model_dump_json()
        done = subprocess.run([sys.executable, "-c", PEAK, text], capture_output=True, text=True, timeout=500, check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] <= 1.05 * peaks[0], peaks


def test_a_model_that_gives_nan_is_refused_not_taken_for_missing_members(home, spec, monkeypatch) -> None:
    from engine.backbones.climax import ClimaX

    real = ClimaX.physical

    def broken(self, output, batch):
        values = real(self, output, batch)
        values[-1, 0, 0, 0] = np.nan
        return values

    monkeypatch.setattr(ClimaX, "physical", broken)
    with pytest.raises(EngineError, match="not finite"):
        jobs.run(spec(seed=77))


def test_nan_members_on_the_calibration_split_are_refused_too(home, spec, monkeypatch) -> None:
    """The split on which ν is chosen has no looser rule; its shards come first, so nothing was written."""
    from engine.backbones.climax import ClimaX

    real = ClimaX.physical

    def broken(self, output, batch):
        values = real(self, output, batch)
        if len(output) > len(batch.cases):  # members only: the deterministic forecast stays whole
            values[-1, 0, 0, 0] = np.nan
        return values

    monkeypatch.setattr(ClimaX, "physical", broken)
    wanted = spec(seed=78)
    with pytest.raises(EngineError, match=r"model output.*not finite"):
        jobs.run(wanted)
    assert list((store.folder(wanted.resolved().key()) / "shards").glob("*.npz")) == []


def test_progress_never_goes_back(home, spec) -> None:
    """Also not while the operating points are chosen, which looks once more at calibration cases when all shards are there."""
    seen = []
    key = jobs.run(spec(), lambda done, total, message: seen.append((done, total))).attrs["key"]
    known = [done for done, total in seen if total]
    assert known == sorted(known) and known[-1] == seen[-1][1] > 0
    with store.table() as connection:
        row = store.row(connection, key)
    assert row["done"] == row["total"] == known[-1]
