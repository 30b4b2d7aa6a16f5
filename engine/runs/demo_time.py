"""How long the demo takes on this computer: by ensembles of its model that are timed once, in a process of their own, and remembered."""

import json
import threading
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.runs.cost import Cost, calibration_seconds, estimate
from engine.runs.preflight import preflight
from engine.runs.spec import RunSpec, content_hash, demo_spec
from engine.settings import settings

_measuring = threading.Lock()


def _note(spec: RunSpec) -> Path:
    return settings().home / "timed" / f"{content_hash(spec.checkpoint)[:16]}.json"


def measure_demo() -> None:
    """Time the demo's model where that was not done yet. What goes wrong is left to the run itself to say."""
    spec = demo_spec()
    if not spec.checkpoint.is_file() or not all(p.is_file() for p in (*spec.data, *spec.calibrate)):
        return
    note = _note(spec)
    with _measuring:
        if note.exists():
            return
        try:
            plan = preflight(spec.checkpoint, spec.data, calibrate=spec.calibrate).get("plan", {})
        except EngineError:
            return
        if "cost" in plan:
            note.parent.mkdir(parents=True, exist_ok=True)
            draft = note.with_suffix(".part")
            draft.write_text(json.dumps(plan))
            draft.replace(note)


def demo_seconds(**tune: Any) -> float | None:
    """Seconds of the demo's sweep, or of its calibration where `tune` says how; None before its model was timed here."""
    spec = demo_spec()
    if not spec.checkpoint.is_file():
        return None
    try:
        plan = json.loads(_note(spec).read_text())
    except (OSError, ValueError):
        return None
    fields = spec.model_dump()
    if not tune:
        return estimate(plan, fields)
    cost, nu_max = Cost.from_dict(plan["cost"]), int(tune.get("nu_max", 512))
    layers = bool(tune.get("per_layer"))
    return calibration_seconds(cost, cases=spec.calibrate_cases, members=spec.calibrate_members, nu_max=nu_max, per_layer=layers)
