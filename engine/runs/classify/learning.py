"""What an entry needs before it can classify: its state, learned or brought, and its ν."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import CheckpointError
from engine.runs import pieces
from engine.runs.classify.entries import file_name
from engine.runs.classify.plan import Contender
from engine.runs.classify.states import load_state, save_state
from engine.runs.classify.work import CHOOSE_ON, Work, chooses_nu, choosing_units, learning_units

State = Mapping[str, Any]
KEEP = 5.0
"""Seconds between two notes of how long a training has lasted."""


def settle_state(work: Work, contender: Contender) -> tuple[State, float]:
    """The entry's state, and the seconds that learning took over all attempts (NaN where it was brought).

    Learned states are kept in `states/`, and found again by entries that share one ("director" and "director:s1").
    """
    if contender.shipped is not None:
        _try(work, contender)
        return contender.shipped, float("nan")
    plan, method, name = work.plan, contender.method, file_name(contender.entry.state_name)
    units = learning_units(plan, contender)
    path = work.folder / "states" / f"{name}.safetensors"
    about: dict[str, Any] = {"method": method.key, "revision": plan.classifier.revision}
    if path.exists():
        state, record = load_state(path, **about)
        work.done += units
        where = next(plan.classifier.module.parameters()).device
        return {n: t.to(where) for n, t in state.items()}, float(record.get("fit_seconds", np.nan))
    place = pieces.make_place(work.folder / "training" / name) if units else None
    clock = _Clock(place)

    def told(done: int, total: int, message: str) -> None:
        clock.tick()
        work.tell(f"{contender.title}: {message}", units * done / total if total else 0)

    arguments: dict[str, Any] = {"params": contender.params, "seed": plan.spec.seed, "report": told, "folder": place}
    state = method.learn(plan.classifier, plan.fit, plan.calibrate, **arguments)
    work.done += units
    if state:
        dumped = contender.params.model_dump(mode="json")
        save_state(path, state, params=dumped, seed=plan.spec.seed, fit_seconds=clock.read(), **about)
        work.finished()
    return state, clock.read() if units else 0.0


def _try(work: Work, contender: Contender) -> None:
    """One example by the state that was brought: a file with the right record may still hold other tensors. Raises CheckpointError."""
    asked: dict[str, Any] = {"params": contender.params, "nu": 1, "members": 1, "seed": 0}
    try:
        p = contender.method.classify(work.plan.classifier, work.plan.examples.rows(slice(0, 1)), state=contender.shipped, **asked)
        found = "" if np.isfinite(p).all() else "weights that give no finite probabilities"
    except (ValueError, KeyError, RuntimeError, TypeError, IndexError) as fault:
        found = f"tensors that do not fit: {str(fault)[:160]}"
    if found:
        raise CheckpointError(
            f"state of {contender.name} ({contender.path.name if contender.path else 'as brought'})",
            found=found,
            expected=f"the tensors that {contender.method.title} learned for this checkpoint",
            remedy="Bring the file as a run wrote it, or leave it out: the state is then learned from the fit split.",
        )


def settle_nu(work: Work, contender: Contender) -> int:
    """The entry's ν: its own, the only one of the spec, or the one that calibration NLL chooses; 1 where the method has none."""
    spec, plan = work.plan.spec, work.plan
    if not contender.method.uses_nu:
        return 1
    if not chooses_nu(plan, contender):
        return contender.entry.nu or spec.nu[0]
    path = work.folder / f"nu-{file_name(contender.name)}.json"
    found = _read(path)
    if found is None:
        from engine.methods.stochastic_attention import choose_nu

        def told(done: int, total: int, message: str) -> None:
            work.tell(f"{contender.title}: {message}", choosing_units(plan, contender) * done / max(1, total))

        assert plan.calibrate is not None
        count = len(plan.calibrate)
        some = plan.calibrate.rows((np.arange(CHOOSE_ON) * count // CHOOSE_ON).tolist()) if count > CHOOSE_ON else plan.calibrate
        place = pieces.make_place(work.folder / "shards" / file_name(contender.name))

        def keep(nu: int, make: Callable[[], Any]) -> Any:
            shard = place / f"choosing-{nu}.npz"
            arrays = pieces.load(shard, list(some.ids))
            if arrays is None:
                arrays = {"nll": make(), "cases": np.asarray(some.ids)}
                pieces.save(shard, arrays)
                work.finished()
            return arrays["nll"]

        nu, table = choose_nu(plan.classifier, some, spec.nu, contender.members, spec.seed, contender.params, told, keep)
        found = {"nu": int(nu), "table": [{n: float(v) for n, v in row.items()} for row in table]}
        part = path.with_suffix(".part")
        with pieces.writing(path.parent):
            part.write_text(json.dumps(found))
            part.replace(path)
        work.finished()
    work.chosen[contender.name] = found
    work.done += choosing_units(plan, contender)
    return int(found["nu"])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) and {"nu", "table"} <= found.keys() else None
    except (OSError, ValueError):
        return None


class _Clock:
    """Seconds of work at something, over all attempts; kept in a file of its folder while it lasts."""

    def __init__(self, place: Path | None) -> None:
        self.path = place / "seconds.txt" if place else None
        try:
            self.before = float(self.path.read_text()) if self.path else 0.0
        except (OSError, ValueError):
            self.before = 0.0
        self.began = self.written = time.perf_counter()

    def read(self) -> float:
        """So far."""
        return self.before + time.perf_counter() - self.began

    def tick(self) -> None:
        """Keep it, every few seconds."""
        if self.path is not None and time.perf_counter() - self.written > KEEP:
            self.written = time.perf_counter()
            with pieces.writing(self.path.parent):
                self.path.write_text(f"{self.read():.3f}")
