"""The Verification: the only thing that pages and figures read. Choosing another ν is a selection, never a computation.

`verification.nc` of a run (kilobytes to a few megabytes):

    coordinates   nu (int), region (str), lead_time (float, hours), variable (str), case (int; init_time as ISO text on case,
                  valid_time too, or on (lead_time, case) where there are several lead times), rank (0…M), level (50, 80, 90,
                  95), threshold (int; threshold_value on (variable, threshold)), probability (0…M: k members of M exceed),
                  latitude, longitude; dimensions without coordinates: spread_bin, rank_bin
    per score     <score>, <score>_low, <score>_high  (nu, region, lead_time, variable)   value and 95 % interval (engine.kernels.long_run)
                  attrs: title, symbol, units, better, perfect, estimator, reference
    per case      <score>_case (nu, region, lead_time, variable, case) for the headline scores
    deterministic rmse_deterministic, acc_deterministic (+ _low, _high)  (region, lead_time, variable)
                  mean_shift_rmse (nu, …): RMSE between ensemble mean and deterministic forecast
    PIT           rank_counts (nu, region, lead_time, variable, rank): area-weighted shares, ties shared, sum 1
                  pit_band (nu, region, lead_time, variable): half-width of the simultaneous 95 % band of F_PIT(u) − u
                  rank_low, rank_high (… rank): 95 % interval of each share
                  n_effective (nu, region, lead_time, variable): independent points that would give the same noise; w1_pit_floor (same):
                  what w1_pit of a perfect ensemble is on average with as many cases that hang together as these
    independent_cases (nu, region, lead_time, variable): how many independent cases these are worth (least over the headline scores)
    reliability   exceedance_weight, exceedance_event (nu, region, lead_time, variable, threshold, probability): weight, and
                  weight × event; corp_event (same): recalibrated frequency by isotonic regression (CORP), NaN where no weight;
                  corp_low, corp_high: 95 % consistency band under calibration
    spread-skill  spread_weight, spread_variance, spread_error2 (nu, region, lead_time, variable, spread_bin): sums per bin
                  of the local ensemble variance (M+1)/M and of the squared error of the ensemble mean
    maps          coverage_map (nu, lead_time, variable, level, latitude, longitude), width_map, bias_map, rmse_map,
                  spread_map (nu, lead_time, variable, latitude, longitude), rank_map (nu, lead_time, variable, rank_bin,
                  latitude, longitude: shares), valid_map (lead_time, variable, latitude, longitude: share of valid cases)
    cost          seconds (nu)
    valid         valid_fraction (region, lead_time, variable)
    attrs         key, command, spec (JSON), members, seed, cases, method, method_title, uses_nu (0: the one value on `nu` means
                  nothing), estimator, version, checkpoint_revision, dataset_fingerprint,
                  nominal_95 (what a perfect Gaussian ensemble of this M covers by linear quantiles),
                  operating_points (JSON: {"calibration_first": {"nu", "chosen_on", "variable", "region", "lead_hours", "rule",
                  "edge", "remark"}, "score_oriented": …}): of the first variable, region and lead time;
                  operating_points_elsewhere (JSON): a list of the same, of others for which points were chosen anew,
                  block_length (cases) and bootstrap (replicates) of the reliability bands, independent_cases
                  (over the ν, the middle), regions (JSON: name → [south, north, west, east]), title
    units         attrs["units"] of every variable-valued array is "" where it depends on `variable`; `unit` (variable) holds it

`fields.nc` beside it, read a slice at a time: observed, deterministic (lead_time, variable, map_case, latitude, longitude);
mean (nu, lead_time, variable, map_case, latitude, longitude); quantiles (nu, lead_time, variable, map_case, quantile, latitude,
longitude) with quantile = .025, .1, .25, .5, .75, .9, .975; map_case carries init_time and valid_time (the latter by lead_time
too where there are several). `map_case` is all cases
where the file stays below 64 MB (then a cell's series with its fan can be drawn), else evenly spaced cases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import RunError

if TYPE_CHECKING:
    import xarray as xr

LEVELS = (50, 80, 90, 95)
FAN = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)


@contextmanager
def readable(path: Path) -> "Iterator[None]":
    """Turn a damaged result into a refusal: its pieces are kept, so it is made again at little cost."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as fault:
        raise RunError(
            f"{path.name} of run {path.parent.name}",
            found=f"a file that cannot be read: {str(fault)[:120]}",
            expected="the result as the run wrote it",
            remedy="Resume the run, or start it again: what was computed is kept, and the file is written anew.",
        ) from fault


def is_readable(path: Path) -> bool:
    """Whether a result is there and opens."""
    import xarray as xr

    try:
        with readable(path), xr.open_dataset(path, engine="h5netcdf"):
            return True
    except RunError:
        return False


def open_verification(folder: Path) -> "xr.Dataset":
    """`verification.nc` of a run's folder, in memory."""
    return open_result(folder, "verification")


def open_result(folder: Path, kind: str) -> "xr.Dataset":
    """A run's result, a verification or a calibration, in memory."""
    import xarray as xr

    path = folder / f"{kind}.nc"
    if not path.exists():
        raise RunError(
            f"run {folder.name}", found=f"no {kind} yet", expected="a finished run", remedy="Wait until it is done, or resume it."
        )
    with readable(path), xr.open_dataset(path, engine="h5netcdf") as file:
        return file.load()


def open_fields(folder: Path) -> "xr.Dataset":
    """`fields.nc` of a run's folder, opened lazily; the caller closes it."""
    import xarray as xr

    path = folder / "fields.nc"
    if not path.exists():
        raise RunError(
            f"run {folder.name}",
            found="no maps stored",
            expected="fields.nc in the run's folder",
            remedy="Run it again with maps switched on.",
        )
    with readable(path):
        return xr.open_dataset(path, engine="h5netcdf")
