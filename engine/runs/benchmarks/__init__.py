"""Benchmarks, one file each: `run(…) -> dict`, its keyword arguments being the options of the command line; `text(found)` where nested
lines would not do. Ratios of interleaved runs in one process, medians; never absolute times alone.
"""

import importlib
import inspect
import pkgutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.errors import SpecError


def measure(what: str, data: Path | None = None, words: Sequence[str] = ()) -> dict[str, Any]:
    """Run one benchmark by its file's name. `words`: further options as the command line has them, `--name value …`."""
    run = _module(what).run
    known = inspect.signature(run, eval_str=True).parameters
    given = options_of(what, {name: p for name, p in known.items() if name != "data"}, words)
    if "data" in known:
        return run(data=data, **given)
    if data is not None:
        raise SpecError(f"benchmark {what}", found="--data", expected="no data: it makes its own", remedy="Leave --data out.")
    return run(**given)


def options_of(what: str, known: Mapping[str, inspect.Parameter], words: Sequence[str]) -> dict[str, Any]:
    """`--name value` pairs as the annotations of `known` want them: `a,b` becomes a tuple."""
    given: dict[str, Any] = {}
    names = ", ".join(f"--{n.replace('_', '-')}" for n in known) or "none"
    left = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while left:
        word = left.pop(0)
        name = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--") or name not in known or not left:
            found = f"{word} without a value" if name in known and not left else word
            raise SpecError(
                f"benchmark {what}",
                found=found,
                expected=f"options {names}",
                remedy="Write the option's name with two dashes, then its value.",
            )
        value, kind = left.pop(0), known[name].annotation
        parts = tuple(v for v in value.split(",") if v) if "tuple" in str(kind) else value
        try:
            given[name] = TypeAdapter(kind).validate_python(parts)
        except ValidationError as fault:
            raise SpecError(
                f"benchmark {what}", found=f"{word} {value}", expected=f"{kind}", remedy=f"{fault.errors()[0]['msg']}."
            ) from fault
    return given


def _module(what: str) -> ModuleType:
    known = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    if what not in known:
        raise SpecError("benchmark", found=repr(what), expected=f"one of {', '.join(known)}", remedy="Use one of these names.")
    return importlib.import_module(f"{__name__}.{what}")


def interleaved(parts: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median seconds of each part, taken in turns after one turn to warm up: a slow spell of the machine falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(turns + 1):
        for name, act in parts.items():
            began = time.perf_counter()
            act()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measured_text(found: dict[str, Any], what: str = "", indent: str = "") -> str:
    """What a benchmark says of itself for people, or nested results as indented lines."""
    own = getattr(_module(what), "text", None) if what else None
    if own is not None:
        return own(found)
    lines = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", measured_text(value, indent=indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{indent}{name}", *(f"{indent}  " + "  ".join(f"{k} {_short(v)}" for k, v in row.items()) for row in value)]
        else:
            lines.append(f"{indent}{name}: {_short(value)}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
