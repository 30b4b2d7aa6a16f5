"""What the fields of GRIB messages are called: one variable for each parameter on each level.

Short names are ecCodes' for NetCDF (`t2m`, `u10`, `gh`); `gh` at 500 hPa is `gh_500`. What lies on no pressure level never gets a
name that reads like one: temperature of the surface is `t_surface`, wind at 100 m `u100_heightAboveGround`. Parameters that the
tables here do not know keep their numbers: `unknown_0_1_192` (discipline, category, number; in GRIB 1 table and number).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from engine import lexicon
from engine.errors import DatasetError

Message = dict[str, Any]
UNNAMED = (None, "", "~", "unknown")
_PRESSURE = {"isobaricInhPa": 1.0, "isobaricInPa": 0.01}
_DERIVED = {"em": "ensemble_mean", "es": "ensemble_spread"}
_CONTROL = (0, 1)
"""typeOfEnsembleForecast of unperturbed members (code table 4.6)."""


def pressure(message: Message) -> float | None:
    """hPa of a field on a pressure level, else None."""
    factor = _PRESSURE.get(message["typeOfLevel"])
    return None if factor is None or message["level"] is None else float(f"{message['level'] * factor:.6g}")


def parameter(message: Message) -> tuple[Any, ...]:
    """What tells parameters apart: ecCodes' number, or those of the tables where it knows none."""
    if message["paramId"]:
        return (message["paramId"],)
    if message["edition"] == 1:
        return ("table", message["table2Version"], message["indicatorOfParameter"])
    return ("unknown", message["discipline"], message["parameterCategory"], message["parameterNumber"])


def stem(message: Message) -> str:
    """The parameter's short name, or its numbers."""
    for key in ("cfVarName", "shortName"):
        if message[key] not in UNNAMED:
            return str(message[key])
    known = parameter(message)
    return f"param_{known[0]}" if len(known) == 1 else "unknown_" + "_".join(str(n) for n in known[1:])


def is_member(message: Message) -> bool:
    """A member of an ensemble: the control, or a perturbed forecast. A mean or a spread is none."""
    if derived(message):
        return False
    return message["dataType"] in ("cf", "pf") or (message["number"] is not None and bool(message["numberOfForecastsInEnsemble"]))


def member(message: Message) -> tuple[bool, bool, int]:
    """Order of members: control first, pairs of perturbations apart (−: type 2), then the number."""
    control = message["dataType"] == "cf" or (message["dataType"] != "pf" and message["typeOfEnsembleForecast"] in _CONTROL)
    return not control, not control and message["typeOfEnsembleForecast"] == 2, int(message["number"] or 0)


def derived(message: Message) -> str:
    """What was computed from an ensemble, "" for a forecast or an analysis itself."""
    if message["derivedForecast"] is not None:
        return _DERIVED.get(message["dataType"], f"derived_{message['derivedForecast']}")
    return _DERIVED.get(message["dataType"], "")


def level_of(message: Message) -> tuple[Any, ...]:
    """Type of level and its heights."""
    if (hpa := pressure(message)) is not None:
        return ("isobaric", hpa)
    layered = message["typeOfSecondFixedSurface"] not in (None, 255) or str(message["typeOfLevel"]).endswith("Layer")
    ends = (message["topLevel"], message["bottomLevel"]) if layered else (message["level"],)
    return (message["typeOfLevel"], *(0.0 if end is None else float(end) for end in ends))


def named(messages: Sequence[Message]) -> dict[tuple[Any, ...], str]:
    """The name of each variable of a file, by `identity`; decided from all messages, so that a choice of some renames nothing."""
    found: dict[tuple[Any, ...], Message] = {}
    for message in messages:
        found.setdefault(identity(message), message)
    levels: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    kinds: dict[tuple[Any, ...], set[str]] = {}
    members = {(parameter(m), level_of(m)) for m in found.values() if is_member(m)}
    for m in found.values():
        levels.setdefault(parameter(m), set()).add(level_of(m))
        kinds.setdefault((parameter(m), level_of(m)), set()).add(m["stepType"])
    names: dict[tuple[Any, ...], str] = {}
    for key, m in found.items():
        name = stem(m) + _level(m, levels[parameter(m)])
        if len(kinds[parameter(m), level_of(m)]) > 1 and m["stepType"] != "instant":
            name += f"_{m['stepType']}"
        if derived(m):
            name += f"_{derived(m)}"
        elif (parameter(m), level_of(m)) in members and not is_member(m):
            name += "_deterministic"
        names[key] = name
    double = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {key: f"{n}_{'_'.join(map(str, parameter(found[key])))}" if n in double else n for key, n in names.items()}


def identity(message: Message) -> tuple[Any, ...]:
    """What two messages of one variable have in common."""
    return parameter(message), level_of(message), message["stepType"], derived(message), is_member(message)


def _level(message: Message, levels: set[tuple[Any, ...]]) -> str:
    kind, *heights = level_of(message)
    if kind == "isobaric":
        return f"_{heights[0]:g}"
    known = lexicon.identify(stem(message))
    plain = (known is None or (known[0].surface and known[1] is None)) and len(levels) == 1
    if plain:
        return ""
    several = sum(other[0] == kind for other in levels) > 1
    return f"_{kind}" + ("".join(f"_{h:g}" for h in heights) if several or (any(heights) and known is None) else "")


def picked(messages: Sequence[Message], select: Mapping[str, str], what: str) -> list[Message]:
    """The messages that have all the values asked for: `{"typeOfLevel": "isobaricInhPa", "level": "500/850"}`.

    Keys are ecCodes' names as `grib_ls` prints them; several values with / between. Raises DatasetError for a key that is not
    known, and where nothing is left, with the values that there are.
    """
    left = list(messages)
    for key, text in select.items():
        if left and key not in left[0]:
            raise DatasetError(
                what,
                found=f"{key} among what is to be selected",
                expected=f"keys of GRIB messages: {', '.join(SELECTABLE)}",
                remedy="Choose among these keys (select= in Python, --select on the command line).",
            )
        asked = [part.strip() for part in str(text).split("/")]
        kept = [m for m in left if any(_same(m[key], part) for part in asked)]
        if not kept:
            there = ", ".join(sorted({str(m[key]) for m in left}, key=lambda v: (len(v), v))[:20])
            raise DatasetError(
                what,
                found=f"no message with {key}={text}; there are {there}",
                expected="at least one message that is selected",
                remedy="Choose among these values (select= in Python, --select on the command line).",
            )
        left = kept
    return left


SELECTABLE = (
    "shortName", "name", "paramId", "typeOfLevel", "level", "dataDate", "dataTime", "step", "stepRange", "stepType", "number", "dataType",
    "gridType", "units", "discipline", "parameterCategory", "parameterNumber", "centre", "stream", "experimentVersionNumber", "edition",
)  # fmt: skip


def _same(value: Any, asked: str) -> bool:
    if value is None:
        return False
    try:
        return float(value) == float(asked)
    except ValueError:
        return str(value).lower() == asked.lower()
