"""Scores of an ensemble in files against observations in files, streamed by time, with block-bootstrap intervals."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.data._valid import hours_of_leads
from engine.kernels import long_run
from engine.kernels.area import region_weights
from engine.runs.accumulate import Accumulator, chosen, finalise, require
from engine.runs.align import Say, meet, meet_times, member_dimension
from engine.runs.judged import Judged
from engine.runs.one_unit import in_one_unit
from engine.runs.score_answer import Said, answers
from engine.runs.score_open import Paths, Roles, open_climatology, open_sides
from engine.runs.score_sides import as_asked, as_forecast, beside, shared_variables
from engine.types import EnsembleView

if TYPE_CHECKING:
    import xarray as xr

    from engine.runs.score_open import Opener

BLOCK = 16_000_000
"""Member values read at a time (64 MB in float32)."""


def score_files(
    forecast: Paths,
    observed: Paths,
    scores: Sequence[str],
    *,
    member_dim: str | None = None,
    variable: str | None = None,
    rename: Mapping[str, str] | None = None,
    variables: Sequence[str] | None = None,
    calendar: str | None = None,
    select: Mapping[str, str] | None = None,
    missing: float | None = None,
    climatology: str | Path | None = None,
    thresholds: Sequence[float] = (),
    spread_edges: Sequence[float] = (),
    lead_time: float | None = None,
    region: Sequence[float] = (-90, 90, -180, 180),
    replicates: int = 500,
    seed: int = 0,
    say: Say = lambda _: None,
    opener: "Opener | None" = None,
) -> dict[str, Any]:
    """`{score: {"value", "low", "high", "cases", "valid_fraction"}}`; a decomposition gives one entry a part, a histogram lists.

    Beside the scores stand `variable` and `units` (the forecast's, in which the scores are), `valid`
    (the share of valid area: `fraction`, `by_member`, `by_time`),
    `changes` (texts: what was changed or assumed on the way in), `notes` (what else was said, as
    times that were left out) and `times` (how many there are, how many met, within what tolerance).

    Several paths are joined along what differs between them: times, starts, lead times, members; forecasts that differ in
    nothing are members, one to a file. Both sides are brought to canonical names, units and orientation and meet by
    coordinate value, in time by valid time; what was changed or left out also goes to `say`. Where a forecast holds several
    starts and lead times, `lead_time` (hours) chooses one. `rename` maps the files' names to canonical ones, `variables` are
    those of the files that are read, `calendar` is the one to convert to where the sides differ, `select` picks messages of
    GRIB files, `missing` is a value that stands for missing ones though no attribute says so, in the files' units (NaN: none
    does). `region` [south, north, west, east]. NaN marks what is missing: it lowers `valid_fraction`. Every value that is used
    is judged. Raises an `EngineError` where members, units, grids or times do not fit.
    """
    entries, said = chosen(scores), Said(say)
    roles = Roles(rename or {}, variables, select, missing)
    ours, theirs = open_sides(
        forecast,
        observed,
        said,
        member_dim=member_dim,
        variable=variable,
        roles=roles,
        calendar=calendar,
        lead_time=lead_time,
        opener=opener,
    )
    ours, theirs = as_asked(ours, as_forecast(ours, theirs, said), variable, said)
    first, second = shared_variables(ours, theirs, variable, said)
    ensemble, truth = ours[first], theirs[second]
    member = member_dimension(ensemble, None if "member" in ensemble.dims else member_dim)
    ensemble, truth = in_one_unit(ensemble, truth, said.change)
    leads = hours_of_leads(ours)
    ensemble, truth, met = meet_times(ensemble, truth, said.note)
    ensemble, truth = meet(ensemble, truth, said.note)
    if "time" not in ensemble.dims:
        ensemble, truth = ensemble.expand_dims("time", 1), truth.expand_dims("time")
    ensemble, truth = ensemble.transpose(member, "time", "latitude", "longitude"), truth.transpose("time", "latitude", "longitude")
    normal = None if climatology is None else beside(open_climatology(climatology, roles, said, opener), second, truth, said.change)
    weights = region_weights(truth["latitude"].values, truth["longitude"].values, {"region": tuple(region)})
    members = ensemble.sizes[member]
    sums = Accumulator(entries, weights, members, thresholds=thresholds, spread_edges=spread_edges, grid=False)
    judged = Judged(first, (ensemble, truth, normal), weights[0], missing=missing)
    for part, view in _pieces(ensemble, truth, normal, tuple(thresholds)):
        judged.look(view, part.start)
        for score in entries:
            require(score, view)
        sums.add(view, part)
    judged.settle()
    for line in judged.remarks():
        said.note(line)
    found = sums.result()
    scored = int((found.valid[:, 0] > 0).sum())  # a time at which nothing can be scored is no case
    numbers = finalise(found, entries, members=members, replicates=replicates, seed=seed)
    for line in long_run.said_few(scored, float(numbers["independent_cases"][0])):
        said.note(line)
    values = answers(numbers, scores, scored, second)
    valid = judged.valid(found.valid[:, 0], truth["time"].values if "time" in truth.coords else np.arange(truth.sizes["time"]))
    about = {"variable": first, "units": str(ensemble.attrs.get("units", "1")), "valid": valid}
    return values | about | {"changes": said.changes, "notes": said.notes, "times": met | {"lead_hours": leads.tolist()}}


def _pieces(
    ensemble: "xr.DataArray", truth: "xr.DataArray", normal: "xr.DataArray | None", thresholds: tuple[float, ...]
) -> Iterator[tuple[range, EnsembleView]]:
    """All values, each read once: the numbers of some times, and these times' members, observed and climatology."""
    times = truth.sizes["time"]
    step = max(1, BLOCK // max(1, ensemble.size // times))
    for start in range(0, times, step):
        part = slice(start, start + step)
        values = None if normal is None else (normal.isel(time=part) if "time" in normal.dims else normal).values
        view = EnsembleView(ensemble.isel(time=part).values, truth.isel(time=part).values, values, thresholds=thresholds)
        yield range(start, min(start + step, times)), view
