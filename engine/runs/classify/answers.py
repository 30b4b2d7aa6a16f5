"""What an entry says of every set of examples: shard by shard, each shard a file that appears whole or not at all."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.labelled import Examples
from engine.runs import pieces
from engine.runs.classify.entries import file_name
from engine.runs.classify.plan import Contender, on_device
from engine.runs.classify.work import Work
from engine.types import Array

STEPS_OF = 256
"""Examples, the first ones, on which the transitions of a DIRECTOR are looked at one by one (our choice)."""


@dataclass
class Answer:
    """Probabilities are means of the members' softmaxes, `(case, class)` float32."""

    probabilities: Array
    spread: Array
    """`(case,)`: see `spread_of`."""
    outside: dict[str, Array]
    corrupted: dict[tuple[str, int], Array]
    milliseconds: float
    members: int
    parameters: int
    fit_seconds: float
    paths: Array | None = None
    """`(path, example, class)`: the members' probabilities of the examples that are shown."""
    steps: dict[str, Array] = field(default_factory=dict)


def answer(work: Work, contender: Contender, state: Mapping[str, Any], nu: int, fit_seconds: float) -> Answer:
    """Every set of the plan; what lies in the run's folder is used."""
    sets = _Sets(work, contender, state, nu)
    verify = sets.of("verify", work.plan.examples)
    return Answer(
        verify["probabilities"],
        verify["spread"],
        {name: sets.of(f"outside-{name}", examples)["probabilities"] for name, examples in work.plan.outside.items()},
        {(c, s): sets.of(f"{c}-{s}", work.plan.examples, (c, s))["probabilities"] for c, s in work.plan.corrupted},
        milliseconds=float(np.median(verify["milliseconds"])),
        members=int(verify["members"][0]),
        parameters=int(contender.method.parameters(work.plan.classifier, state)),
        fit_seconds=fit_seconds,
    )


def look_closer(work: Work, contender: Contender, state: Mapping[str, Any], nu: int, found: Answer, shown: NDArray[np.int64]) -> None:
    """Add the single members of the examples that are shown, and the steps of a method that has them."""
    sets = _Sets(work, contender, state, nu)
    if len(shown):
        part = work.plan.examples.rows(shown.tolist())
        found.paths = sets.kept("examples", part, lambda: {"paths": sets.forward(part)})["paths"]
    look = getattr(contender.method, "paths", None)
    if look is not None:
        part, spec = work.plan.examples.rows(slice(0, STEPS_OF)), work.plan.spec
        work.tell(f"{contender.title}: looking at its steps")
        asked: dict[str, Any] = {"state": state, "params": contender.params, "members": max(2, contender.members), "seed": spec.seed}
        steps = sets.kept("steps", part, lambda: dict(look(work.plan.classifier, part, **asked)))
        found.steps = {name: value for name, value in steps.items() if name != "cases"}


class _Sets:
    """One entry's pieces."""

    def __init__(self, work: Work, contender: Contender, state: Mapping[str, Any], nu: int) -> None:
        self.work, self.contender, self.state, self.nu = work, contender, state, nu
        self.place = pieces.make_place(work.folder / "shards" / file_name(contender.name))
        self.warm = False

    def kept(self, name: str, part: Examples, make: Any) -> dict[str, NDArray]:
        """The piece of this name where it is whole and of these examples; else made and kept."""
        path = self.place / f"{_safe(name)}.npz"
        arrays = pieces.load(path, list(part.ids))
        if arrays is None:
            arrays = {n: np.asarray(v) for n, v in make().items()} | {"cases": np.asarray(part.ids)}
            pieces.save(path, arrays)
            self.work.finished()
        return arrays

    def of(self, name: str, examples: Examples, corruption: tuple[str, int] | None = None) -> dict[str, NDArray]:
        """One set of examples, its shards put together."""
        size, found = self.work.plan.spec.shard_cases, []
        for start in range(0, len(examples), size):
            which = slice(start, start + size)
            part = examples.rows(which)
            shard = f"{name}-{start:07d}-{len(part)}"
            found.append(self.kept(shard, part, lambda part=part, which=which: self._shard(part, which, corruption)))
            self.work.done += self.contender.members * len(part)
            self.work.tell(f"{self.contender.title}: {name}, {start + len(part)} of {len(examples)} examples")
        return {n: np.concatenate([a[n] for a in found]) for n in found[0]}

    def _shard(self, part: Examples, which: slice, corruption: tuple[str, int] | None) -> dict[str, Any]:
        part = part if corruption is None else self._corrupted(part, which, *corruption)
        if not self.warm:  # the first call pays for libraries that start up
            self.forward(part.rows(slice(0, 2)))
            self.warm = True
        began = time.perf_counter()
        members = self.forward(part)
        seconds = time.perf_counter() - began
        mean = members.mean(0, dtype=np.float64).astype(np.float32)
        cost = {"milliseconds": [1000 * seconds / len(part)], "members": [len(members)]}
        return {"probabilities": mean, "spread": spread_of(members), **cost}

    def _corrupted(self, clean: Examples, which: slice, name: str, severity: int) -> Examples:
        """The same examples with their inputs corrupted; ids stay, so that a method draws the same noise for them."""
        from engine.kernels.corruptions import corrupt, corrupt_texts

        plan = self.work.plan
        labelled = plan.verify.rows(which)
        act = corrupt if labelled.kind == "images" else corrupt_texts
        inputs = act(labelled.inputs, name, severity, seed=plan.spec.seed, cases=clean.ids)
        return on_device(plan.classifier.prepare(replace(labelled, inputs=inputs), clean.ids[0]), plan.classifier)

    def forward(self, examples: Examples) -> Array:
        """`(member, case, class)`."""
        c, plan = self.contender, self.work.plan
        asked: dict[str, Any] = {"params": c.params, "nu": self.nu, "members": c.members, "seed": plan.spec.seed}
        return c.method.classify(plan.classifier, examples, state=self.state, **asked)


def spread_of(members: Array) -> Array:
    """How far members `(member, case, class)` lie apart, `(case,)`: root of the summed variance (n − 1); NaN for a single one."""
    if len(members) < 2:
        return np.full(members.shape[1], np.nan, np.float32)
    return np.sqrt(members.var(0, ddof=1, dtype=np.float64).sum(-1)).astype(np.float32)


def _safe(name: str) -> str:
    """A name that may hold anything, as part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_" else f"~{ord(c):x}" for c in name)
