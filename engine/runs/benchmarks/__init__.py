"""Benchmarks, one file each: `run() -> dict`. Ratios of interleaved runs in one process, medians; never absolute times alone."""

import importlib
import inspect
import pkgutil
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import SpecError


def measure(what: str, data: Path | None = None) -> dict[str, Any]:
    """Run one benchmark by its file's name."""
    known = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    if what not in known:
        raise SpecError("benchmark", found=repr(what), expected=f"one of {', '.join(known)}", remedy="Use one of these names.")
    run = importlib.import_module(f"{__name__}.{what}").run
    return run(data=data) if "data" in inspect.signature(run).parameters else run()


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


def measured_text(found: dict[str, Any], indent: str = "") -> str:
    """Nested results as indented lines."""
    lines = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", measured_text(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{indent}{name}", *(f"{indent}  " + "  ".join(f"{k} {_short(v)}" for k, v in row.items()) for row in value)]
        else:
            lines.append(f"{indent}{name}: {_short(value)}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
