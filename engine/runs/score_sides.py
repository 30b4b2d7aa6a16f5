"""What the two sides of a score share: the variable, its quantity and unit, the climatology."""

from typing import TYPE_CHECKING

import numpy as np

from engine import lexicon
from engine.errors import ScoreError
from engine.runs.align import Say, meet
from engine.runs.one_unit import in_one_unit
from engine.runs.score_answer import Said

if TYPE_CHECKING:
    import xarray as xr


def _twin(name: str) -> str | None:
    """The other of geopotential and geopotential height at the same level."""
    swapped = (
        name.replace("geopotential_height", "geopotential") if "height" in name else name.replace("geopotential", "geopotential_height")
    )
    return swapped if swapped != name else None


def _as_twin(data: "xr.Dataset", name: str, side: str, said: Said) -> "xr.Dataset":
    """Geopotential as height, or height as geopotential, by g0."""
    other = _twin(name)
    factor, units = (lexicon.G0, "m2 s-2") if "height" in name else (1 / lexicon.G0, "m")
    converted = (data[name] * np.float32(factor)).assign_attrs({**data[name].attrs, "units": units})
    said.change(f"{side} {name} taken as {other}: {'times' if factor > 1 else 'divided by'} {lexicon.G0}")
    return data.drop_vars(name).assign({str(other): converted})


def as_asked(ours: "xr.Dataset", theirs: "xr.Dataset", variable: str | None, said: Said) -> "tuple[xr.Dataset, xr.Dataset]":
    """Both sides with geopotential as height, or height as geopotential, where that is what was asked for and neither holds it."""
    wanted = None if variable is None else (lexicon.canonical(variable) or variable)
    held = None if wanted is None else _twin(wanted)
    if held and wanted not in ours.data_vars and wanted not in theirs.data_vars and held in ours.data_vars and held in theirs.data_vars:
        return _as_twin(ours, held, "forecast", said), _as_twin(theirs, held, "observed", said)
    return ours, theirs


def as_forecast(ours: "xr.Dataset", theirs: "xr.Dataset", said: Said) -> "xr.Dataset":
    """The observed with geopotential as height, or height as geopotential, where the forecast holds the other of the two."""
    for name in map(str, list(theirs.data_vars)):
        if name not in ours.data_vars and _twin(name) in ours.data_vars:
            theirs = _as_twin(theirs, name, "observed", said)
    return theirs


def shared_variables(ours: "xr.Dataset", theirs: "xr.Dataset", variable: str | None, said: Said) -> tuple[str, str]:
    """The variable's name on both sides: as asked, the only one they share, or the only ones there are."""
    first, second = sorted(map(str, ours.data_vars)), sorted(map(str, theirs.data_vars))
    shared = [name for name in first if name in second]
    if variable is not None:
        wanted = next((n for n in (variable, lexicon.canonical(variable)) if n in shared), None)
        if wanted is None:
            raise ScoreError(
                "variable",
                found=f"forecast: {', '.join(first)}; observed: {', '.join(second)}",
                expected=f"{variable} in both",
                remedy="Name one that both have.",
            )
        return wanted, wanted
    if len(shared) == 1:
        return shared[0], shared[0]
    alone = len(first) == len(second) == 1
    if not shared and alone and not all(lexicon.identify(n) for n in (first[0], second[0])):
        said.change(f"forecast {first[0]} is scored against observed {second[0]}: each is the only variable of its file")
        return first[0], second[0]
    raise ScoreError(
        "variable",
        found=f"forecast: {', '.join(first)}; observed: {', '.join(second)}",
        expected="one variable in common" if not shared else "one of them named",
        remedy="Say what the names stand for with --rename (rename= in Python)."
        if not shared
        else "Name it with --variable (variable= in Python).",
    )


def beside(data: "xr.Dataset", variable: str, observed: "xr.DataArray", say: Say) -> "xr.DataArray":
    """The climatology on the observed grid; with several times it must hold every valid time."""
    if variable not in data.data_vars:
        raise ScoreError(
            "climatology", found=", ".join(map(str, data.data_vars)), expected=variable, remedy="Give a climatology of the scored variable."
        )
    field = data[variable].squeeze(drop=True)
    _, field = in_one_unit(observed, field, say, "climatology")
    target = observed if "time" in field.dims else observed.isel(time=0, drop=True)
    target, field = meet(target, field, lambda _: None)
    if any(target.sizes[d] != observed.sizes[d] for d in target.dims):
        raise ScoreError(
            "climatology",
            found=f"{dict(field.sizes)}",
            expected="every place and valid time that is scored",
            remedy="Give a longer or larger climatology, or one without time.",
        )
    return field.transpose(*target.dims)
