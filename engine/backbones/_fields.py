"""Reading cases of gridded data for a model: names, units and grid are checked here, the model gets plain arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import lexicon
from engine.errors import DatasetError
from engine.kernels.sentinels import Tally, held
from engine.types import Dataset


def check_grid(dataset: Dataset, grid: tuple[int, int], latitude: NDArray | None = None, longitude: NDArray | None = None) -> None:
    """Refuse data on another grid than the model's: by size, and by coordinate where the model's are known."""
    found = dataset.grid
    if found != grid:
        hint = "Bring data on the model's grid (regrid it first)."
        if found == grid[::-1]:
            hint = "Rows and columns seem to be swapped: write the data with latitude before longitude."
        elif found[1] == grid[1] and abs(found[0] - grid[0]) == 1:
            hint = "One grid has both poles, the other has not (721 or 720 rows): select the model's latitudes by value, not by position."
        raise DatasetError(
            "grid", found=f"{found[0]}×{found[1]} (latitude × longitude)", expected=f"{grid[0]}×{grid[1]}, the model's", remedy=hint
        )
    for axis, wanted in (("latitude", latitude), ("longitude", longitude)):
        if wanted is None:
            continue
        values = dataset.fields[axis].values
        worst = int(np.argmax(np.abs(values - wanted)))
        spacing = float(np.abs(np.diff(wanted)).min())
        if abs(float(values[worst]) - float(wanted[worst])) > 0.05 * spacing:
            raise DatasetError(
                "grid",
                found=f"{axis} {values[worst]:.4f} at position {worst}",
                expected=f"{wanted[worst]:.4f}, as in training",
                remedy="Regrid the data to the model's coordinates.",
            )


def read_fields(dataset: Dataset, wanted: Mapping[str, str], positions: Sequence[int], *, complete: bool) -> NDArray[np.float32]:
    """Variables in the units that the model works in, `(case, variable, H, W)` float32.

    `wanted` maps name to units. `complete` refuses missing values and names the first. Raises DatasetError for a variable
    that is neither there nor can be had by a conversion.
    """
    available = dataset.units
    # each time is read once, in file order, however the cases overlap
    unique, back = np.unique(np.asarray(positions, np.int64), return_inverse=True)
    sources: dict[str, tuple[str, Any] | None] = {}
    for name, units in wanted.items():
        found = lexicon.obtain(name, units, available)
        if found is None and name != "lattitude":
            raise DatasetError(
                "variables",
                found=", ".join(f"{k} ({u})" for k, u in sorted(available.items())[:20]) or "none",
                expected=f"{name} in {units}",
                remedy="Bring a file with this variable, or say which of yours it is with --rename (rename= in Python).",
            )
        sources[name] = None if found is None else (found[0], found[2])
    columns = sorted({s[0] for s in sources.values() if s})
    # one thread: the libraries below are not thread-safe, and a batch is small
    part = dataset.fields[columns].isel(time=unique).compute(scheduler="synchronous")
    result = np.empty((len(positions), len(wanted), *dataset.grid), np.float32)
    for i, name in enumerate(wanted):
        source = sources[name]
        if source is None:  # latitude as a field follows from the grid
            result[:, i] = dataset.fields["latitude"].values.astype(np.float32)[:, None]
            continue
        variable = part[source[0]].transpose("time", "latitude", "longitude")
        result[:, i] = source[1](variable.values.astype(np.float32))[back]
    for i, (name, units) in enumerate(wanted.items()):
        _refuse_implausible(dataset, name, units, result[:, i], positions)
    bad = ~np.isfinite(result) if complete else np.zeros(0, bool)
    if bad.any():
        case, i, row, column = (int(n) for n in np.argwhere(bad)[0])
        name, share = list(wanted)[i], float(bad[:, i].mean())
        kind = "infinite" if np.isinf(result[case, i, row, column]) else "missing"
        where = _place(dataset, positions[case], row, column)
        raise DatasetError(
            f"input {name}",
            found=f"{share:.2%} of its values missing or infinite, the first ({kind}) at {where}",
            expected="finite values everywhere in a model's input",
            remedy="Fill or leave out these times; they are not replaced silently.",
        )
    return result


def _place(dataset: Dataset, time: int, row: int, column: int) -> str:
    row_column = f"latitude {float(dataset.fields['latitude'][row]):.2f}, longitude {float(dataset.fields['longitude'][column]):.2f}"
    return f"{dataset.fields['time'].values[time]!s:.16}, {row_column}"


def _refuse_implausible(dataset: Dataset, name: str, units: str, values: NDArray[np.float32], positions: Sequence[int]) -> None:
    """Refuse values outside the quantity's range, at every time that is used; what is missing is not judged here.

    Opening a file looks at a few of its times only; a fill value or a stretch in other units between them would
    otherwise go into the model, and come out as a number like any other.
    """
    judged = lexicon.outside(name, units, values)
    if judged is None and not dataset.fields.attrs.get("no_stand_ins"):
        _refuse_stand_ins(dataset, name, values, positions)
    if judged is not None and judged[0].any():
        case, row, column = (int(n) for n in np.argwhere(judged[0])[0])
        raise DatasetError(
            f"variable {name}",
            found=f"{float(values[case, row, column]):.6g} {units} at {_place(dataset, positions[case], row, column)}",
            expected=judged[1],
            remedy="Check fill values and units at that time; mark missing values as such (_FillValue).",
        )


def _refuse_stand_ins(dataset: Dataset, name: str, values: NDArray[np.float32], positions: Sequence[int]) -> None:
    """Refuse numbers that stand for missing ones, in variables whose range nobody knows here."""
    tally = Tally()
    tally.add(values, 0)
    for _, value, suspect in held([tally]):
        case, row, column = (int(n) for n in np.unravel_index(suspect.position, values.shape))
        raise DatasetError(
            f"variable {name}",
            found=f"{value:.6g}, {suspect.count} times, the first at {_place(dataset, positions[case], row, column)}",
            expected="numbers like the others, or NaN where missing",
            remedy=f"Mark missing values as such (_FillValue in the file; --missing {value:.9g}, missing= in Python); "
            "if it is a value like any other: --missing nan.",
        )


def share_of_year(times: NDArray) -> NDArray[np.float64]:
    """Times as a share of their calendar's year, 0 … 1: cftime in any calendar, or datetime64."""
    if np.issubdtype(times.dtype, np.datetime64):
        year = times.astype("datetime64[Y]")
        start, end = year.astype("datetime64[s]"), (year + 1).astype("datetime64[s]")
        return (times.astype("datetime64[s]") - start) / (end - start)
    result = []
    for t in times:
        start, end = (
            t.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0),
            t.replace(year=t.year + 1, month=1, day=1, hour=0, minute=0, second=0, microsecond=0),
        )
        result.append((t - start) / (end - start))
    return np.asarray(result, np.float64)
