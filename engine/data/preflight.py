"""Before anything runs: what was found in the data, what was converted, and what stands in a model's way. Rows, not prose.

Everything is listed at once; `problem` rows would stop a run, `note` rows say what was assumed or changed.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine import lexicon
from engine.data._coordinates import calendar_of, iso, seconds_of
from engine.safety import human, memory_limit
from engine.types import Backbone, Dataset

if TYPE_CHECKING:
    import xarray as xr

ENTRIES: tuple[Any, ...] = ()
"""No reader: looks at what readers give."""

_EXACT = 2 * 2**30
"""Bytes up to which missing values are counted in full; beyond, at evenly spaced times, and that is said."""


@dataclass(frozen=True)
class Finding:
    """One row of the preflight table."""

    level: Literal["ok", "note", "problem"]
    what: str
    found: str
    expected: str = ""
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """As the command line prints it."""
        return asdict(self)


def preflight(dataset: Dataset, backbone: Backbone | None = None, *, seconds_per_forward: float | None = None) -> list[Finding]:
    """Findings on a dataset, and on a model with it. Reads the data once to count missing values.

    `seconds_per_forward` (one case) turns the count of cases into an estimate of time.
    """
    fields = dataset.fields
    rows = [_grid(fields), *_times(dataset), *_changes(dataset), *_units(dataset), *_missing(fields), _bytes(fields)]
    if backbone is not None:
        rows += [*_model_variables(dataset, backbone), _model_grid(dataset, backbone), *_cases(dataset, backbone, seconds_per_forward)]
    return rows


def _grid(fields: "xr.Dataset") -> Finding:
    lat, lon = fields["latitude"].values, fields["longitude"].values
    steps = np.abs(np.diff(lat))
    kind = "evenly spaced" if len(steps) and np.ptp(steps) < 1e-3 * steps.mean() else "Gaussian or uneven"
    whole = len(lon) > 1 and abs(lon[-1] - lon[0] + np.median(np.diff(lon)) - 360) < 1e-3 * np.median(np.diff(lon)) * len(lon)
    region = "global" if whole else "regional"
    rows, columns = f"latitudes {lat[0]:.4g} … {lat[-1]:.4g} ({kind})", f"longitudes {lon[0]:.4g} … {lon[-1]:.4g}"
    return Finding(
        "ok",
        "grid",
        f"{len(lat)}×{len(lon)}, {rows}, {columns}, {region}",
    )


def _times(dataset: Dataset) -> list[Finding]:
    times = dataset.fields["time"].values
    rows = [Finding("ok", "calendar", calendar_of(times))]
    for split, positions in dataset.splits.items():
        part = times[positions]
        steps, counts = np.unique(np.diff(seconds_of(part)) / 3600, return_counts=True)
        text = f"{len(part)} times, {iso(part[0])} … {iso(part[-1])}"
        if len(steps) == 0:
            rows.append(Finding("note", f"times ({split})", text, "at least two times", "Bring a longer period."))
        elif len(steps) == 1:
            rows.append(Finding("ok", f"times ({split})", f"{text}, every {steps[0]:g} h"))
        else:
            usual = steps[np.argmax(counts)]
            rows.append(
                Finding(
                    "note",
                    f"times ({split})",
                    f"{text}, mostly every {usual:g} h, with {int(counts.sum() - counts.max())} gaps up to {steps.max():g} h",
                    f"every {usual:g} h",
                    "Cases across a gap are left out; nothing is interpolated.",
                )
            )
    return rows


def _changes(dataset: Dataset) -> list[Finding]:
    return [Finding("note", "changed on the way in", line) for line in dataset.changes]


def _units(dataset: Dataset) -> list[Finding]:
    return [Finding("ok", f"units of {name}", units, lexicon.units_of(name) or "") for name, units in dataset.units.items()]


def _missing(fields: "xr.Dataset") -> list[Finding]:
    total = fields.sizes["time"]
    thinned = fields.nbytes > _EXACT
    picks = (
        np.unique(np.linspace(0, total - 1, max(8, int(total * _EXACT / max(1, fields.nbytes)))).astype(int))
        if thinned
        else np.arange(total)
    )
    rows = []
    for name in fields.data_vars:
        field = fields[name].isel(time=picks) if thinned else fields[name]
        absent = field.isnull()
        # one thread: the libraries that read the files are not thread-safe
        count = int(absent.sum().compute(scheduler="synchronous"))
        scope = f" in {len(picks)} of {total} times" if thinned else ""
        if count == 0:
            rows.append(Finding("ok", f"missing values of {name}", f"none{scope}"))
            continue
        any_at = absent.any(("latitude", "longitude")).compute(scheduler="synchronous").values
        t = int(np.argmax(any_at))
        row, column = (int(i) for i in np.argwhere(absent.isel(time=t).compute(scheduler="synchronous").values)[0])
        place = f"latitude {float(field['latitude'][row]):.2f}, longitude {float(field['longitude'][column]):.2f}"
        where = f"{iso(field['time'].values[t])}, {place}"
        rows.append(
            Finding(
                "note",
                f"missing values of {name}",
                f"{count} ({count / field.size:.2%}){scope}, the first at {where}",
                "none in a model's input",
                "An input with missing values stops a run; missing observations are left out of scores.",
            )
        )
    return rows


def _bytes(fields: "xr.Dataset") -> Finding:
    once = fields.nbytes // max(1, fields.sizes["time"])
    limit = memory_limit()
    fits = fields.nbytes <= limit
    return Finding(
        "ok" if fits else "note",
        "size",
        f"{human(fields.nbytes)} in memory, {human(once)} a time",
        f"limit {human(limit)}",
        "" if fits else "It is read in pieces along time, so that it need not fit.",
    )


def _model_variables(dataset: Dataset, backbone: Backbone) -> list[Finding]:
    available = dataset.units
    recorded = dict(zip(backbone.out_variables, backbone.out_units, strict=True))
    units = getattr(backbone, "units", recorded)
    rows, lacking = [], []
    for name in dict.fromkeys((*backbone.in_variables, *backbone.out_variables)):
        found = lexicon.obtain(name, units.get(name), available)
        if found is None and name == "lattitude":
            rows.append(Finding("note", f"model's {name}", "taken from the grid's latitudes"))
        elif found is None:
            lacking.append(f"{name} ({units.get(name) or lexicon.units_of(name) or 'unknown units'})")
        elif found[1]:
            rows.append(Finding("note", f"model's {name}", f"{found[0]} in {available[found[0]]}, {found[1]}"))
    if lacking:
        there = ", ".join(sorted(available)[:20])
        rows.insert(
            0,
            Finding(
                "problem",
                "variables",
                f"{len(lacking)} missing: {', '.join(lacking[:12])}{', …' if len(lacking) > 12 else ''}; there are {there}",
                "every input and output variable of the model",
                "Bring files with these variables, or say which of yours they are with --rename (rename= in Python).",
            ),
        )
    else:
        rows.insert(
            0, Finding("ok", "variables", f"all {len(backbone.in_variables)} inputs and {len(backbone.out_variables)} outputs found")
        )
    return rows


def _model_grid(dataset: Dataset, backbone: Backbone) -> Finding:
    found, wanted = dataset.grid, tuple(backbone.grid)
    text, expected = f"{found[0]}×{found[1]}", f"{wanted[0]}×{wanted[1]}"
    if found == wanted:
        return Finding("ok", "model's grid", text, expected)
    if found == wanted[::-1]:
        return Finding(
            "problem", "model's grid", f"{text}, rows and columns swapped", expected, "Write the data with latitude before longitude."
        )
    if found[1] == wanted[1] and abs(found[0] - wanted[0]) == 1:
        return Finding(
            "problem",
            "model's grid",
            f"{text}: one has both poles, the other has not",
            expected,
            "Select the model's latitudes by value; a row is never dropped silently.",
        )
    return Finding("problem", "model's grid", text, expected, "Regrid the data to the model's grid.")


def _cases(dataset: Dataset, backbone: Backbone, seconds: float | None) -> list[Finding]:
    from engine.data.dataset import cases
    from engine.errors import DatasetError

    rows = []
    for lead in backbone.lead_hours:
        for split in dataset.splits:
            try:
                count = len(cases(dataset, lead, split))
            except DatasetError as error:
                rows.append(Finding("problem", f"cases ({split}, {lead:g} h)", error.found, error.expected, error.remedy))
                continue
            estimate = f", about {count * seconds / 60:.1f} min for each member and ν" if seconds else ""
            rows.append(Finding("ok", f"cases ({split}, {lead:g} h)", f"{count}{estimate}"))
    cell = dataset.grid[0] * dataset.grid[1] * 4
    need = cell * (len(backbone.in_variables) + len(backbone.out_variables) * 52)
    rows.append(
        Finding(
            "ok" if need < memory_limit() else "problem",
            "memory a case",
            f"about {human(need)} for the fields of 50 members",
            f"limit {human(memory_limit())}",
            "" if need < memory_limit() else "Choose fewer output variables.",
        )
    )
    return rows
