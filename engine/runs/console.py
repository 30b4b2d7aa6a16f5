"""What the verbs of the command line share: one JSON document on stdout, progress on stderr, exit codes, parsing of lists.

Exit 0: done. 2: refused, with a message. 1: a fault of ours.
"""

import json
import math
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from engine.errors import EngineError, ExportError, SpecError
from engine.runs.told import listening, told


def plain(value: Any) -> Any:
    """NumPy scalars and arrays to JSON's types; not-a-number becomes null, since JSON has no word for it."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def show(document: dict[str, Any], as_json: bool, text: str) -> None:
    """Print the answer: the document with `--json`, the text for people otherwise. What was told on the way is in its `notes`."""
    print(json.dumps(plain(with_notes(document)), indent=1, ensure_ascii=False) if as_json else text)


def with_notes(document: dict[str, Any]) -> dict[str, Any]:
    """The answer; where something was told that stands neither in its `changes` nor in its `notes`, with that among the notes."""
    changes, notes = (list(document.get(name) or ()) for name in ("changes", "notes"))
    fresh = [line for line in told() if line not in changes and line not in notes]
    return document | {"notes": [*notes, *fresh]} if fresh else document


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """Turn refusals and faults into exit codes and, with `--json`, into an error document; listen to what is told meanwhile."""
    with listening(), _ending(as_json):
        yield


@contextmanager
def _ending(as_json: bool) -> Iterator[None]:
    try:
        yield
    except typer.Exit:
        raise
    except EngineError as refusal:
        if as_json:
            print(json.dumps({"error": refusal.as_dict()} | _told(), indent=1, ensure_ascii=False))
        else:
            print(
                f"{refusal.what}\n  found:    {refusal.found}\n  expected: {refusal.expected}\n  remedy:   {refusal.remedy}",
                file=sys.stderr,
            )
        raise typer.Exit(2) from refusal
    except BrokenPipeError as gone:  # whoever read the answer has closed its end, like `head`
        sys.stderr.close()
        raise typer.Exit(0) from gone
    except KeyboardInterrupt as stop:
        error = {"what": "interrupted", "found": "a signal to stop", "expected": "time to finish"}
        error["remedy"] = "The same command goes on from the last finished shard."
        if as_json:
            print(json.dumps({"error": error}, ensure_ascii=False))
        print(f"\ninterrupted: {error['remedy']}", file=sys.stderr)
        raise typer.Exit(2) from stop
    except Exception as fault:
        traceback.print_exc()
        if as_json:
            error = {"what": "a fault inside the engine", "found": f"{type(fault).__name__}: {fault}", "expected": "no fault"}
            print(json.dumps({"error": error | {"remedy": "Please report it with the traceback on stderr."}}, ensure_ascii=False))
        raise typer.Exit(1) from fault


@contextmanager
def writable(place: Path) -> Iterator[None]:
    """Turn what the system says about a place that cannot be written into a refusal."""
    try:
        yield
    except OSError as fault:
        raise ExportError(
            f"folder {place}", found=str(fault), expected="a place that can be written", remedy="Name another one with --out."
        ) from fault


def _told() -> dict[str, list[str]]:
    """`notes` of an error document, where something was told before the refusal."""
    return {"notes": told()} if told() else {}


class Ticker:
    """Progress on stderr: one line that is written over on a terminal, a line every ten seconds elsewhere."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.last = -math.inf
        self.first: int | None = None
        self.line = ""

    def __call__(self, done: int, total: int, message: str) -> None:
        """Report; `total` 0: not known yet."""
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if total and self.first is None:
            self.first, self.began = done, now
        if now - self.last < (0.2 if terminal else 10) and (done < total or not total):
            return
        self.last = now
        fresh = done - (self.first or 0)
        left = f", {(now - self.began) / fresh * (total - done):.0f} s left" if fresh > 0 and done < total else ""
        line = f"{done}/{total} {message}{left}" if total else message
        if not line or line == self.line:
            return
        self.line = line
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
        if terminal and total and done >= total:
            print(file=sys.stderr)


def numbers(text: str, name: str, kind: type = int) -> tuple[Any, ...]:
    """`1,2,4` to numbers, or an error that names the part that is not one."""
    values = []
    for part in text.replace(" ", "").split(","):
        try:
            values.append(kind(part))
        except ValueError as fault:
            kinds = {int: "whole numbers", float: "numbers"}[kind]
            raise SpecError(
                f"--{name}", found=repr(part), expected=f"{kinds} with commas between, like 1,2,4", remedy="Mend that part."
            ) from fault
    return tuple(values)


def names(text: str | None) -> tuple[str, ...]:
    """`a,b` to names; nothing to none."""
    return tuple(p.strip() for p in text.split(",") if p.strip()) if text else ()


def mapping(text: str | None, name: str) -> dict[str, Any]:
    """A JSON object on the command line."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as fault:
        raise SpecError(f"--{name}", found=text[:80], expected="a JSON object in quotes", remedy=f"Mend it: {fault}.") from fault
    if not isinstance(value, dict):
        raise SpecError(f"--{name}", found=type(value).__name__, expected="a JSON object", remedy='Write it like {"num_heads": 16}.')
    return value


def box(text: str | None, name: str) -> tuple[float, ...]:
    """A region by its name among the default ones, or as a JSON box; the globe where nothing is said."""
    from engine.kernels.area import REGIONS

    if not text:
        return REGIONS["globe"]
    if text in REGIONS:
        return REGIONS[text]
    try:
        value = json.loads(text)
        south, north, west, east = (float(v) for v in value)
    except (ValueError, TypeError) as fault:
        raise SpecError(
            f"--{name}",
            found=text[:80],
            expected=f"[south, north, west, east] or one of {', '.join(REGIONS)}",
            remedy="Write it like '[35, 75, -12.5, 42.5]'.",
        ) from fault
    return south, north, west, east


def score_line(name: str, found: dict[str, Any]) -> str:
    """One score for people. A curve is told by its numbers, without an interval for each."""
    about = f"{found['cases']} cases, {found['valid_fraction']:.1%} valid"
    value = found["value"]
    if isinstance(value, (int, float)):
        return f"{name}: {value:.6g}  [{found['low']:.6g}, {found['high']:.6g}]  {about}"
    if isinstance(value, dict):
        parts = [f"  {part}: {_listed(numbers)}" for part, numbers in value.items()]
        return "\n".join([f"{name}:  {about}", *parts])
    return f"{name}: {_listed(value)}  {about}"


def score_text(found: dict[str, Any]) -> str:
    """The answer of `score` for people: a line for each score, then how many times met."""
    from engine.runs.score_answer import scores_in

    times = found["times"]
    met = f"times: {times['matched']} matched, of {times['forecast']} of the forecast and {times['observed']} of the observed"
    about = f"{found['variable']}, scores of a quantity in {found['units']}"
    return "\n".join([about, *(score_line(name, entry) for name, entry in scores_in(found).items()), met])


def _listed(value: Any) -> str:
    """Numbers of a curve, nested lists in brackets."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_listed(v) for v in value) + "]"
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
