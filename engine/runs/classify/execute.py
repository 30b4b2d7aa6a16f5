"""Computing a classification run: each entry learns or takes its state, then classifies shard by shard; each result is a file.

A worker may die at any moment: what it left is used, and the numbers are those of an undisturbed run, since noise is keyed by
(seed, member, case, site) and a training goes on from its last epoch.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import SpecError
from engine.runs import pieces
from engine.runs.classify.answers import Answer, answer, look_closer
from engine.runs.classify.finish import finish
from engine.runs.classify.learning import settle_nu, settle_state
from engine.runs.classify.plan import make_plan
from engine.runs.classify.spec import ClassifySpec
from engine.runs.classify.work import OnProgress, Work
from engine.runs.spec import content_hash
from engine.types import Array

SHARES = (1 / 2, 1 / 3)
"""Of the examples that are shown: confident mistakes, uncertain ones; the rest are right ones (our choice)."""


def execute_classification(spec: ClassifySpec, folder: Path, report: OnProgress, finished: Callable[[], None] = lambda: None) -> None:
    """Compute what is not there yet of `spec` in `folder`, and write `classification.nc`.

    `report(done, total, message)` counts forwards of single examples, with a total of 0 until it is known; `finished()` is told of
    each piece.
    """
    report(0, 0, "opening the model and the data")
    refuse_shared_files(spec)
    plan = make_plan(spec)
    work = Work(plan, folder, report, finished)
    work.tell("started")
    answers: dict[str, Answer] = {}
    shown: NDArray[np.int64] = np.zeros(0, np.int64)
    for contender in plan.computed:
        state, seconds = settle_state(work, contender)
        nu = settle_nu(work, contender)
        found = answer(work, contender, state, nu, seconds)
        if contender is plan.teacher:  # the first
            shown = examples_to_show(found.probabilities, plan.observed, spec.examples)
        if contender in plan.contenders:
            look_closer(work, contender, state, nu, found, shown)
            answers[contender.name] = found
    report(work.total, work.total, "scoring")
    with pieces.writing(folder):
        finish(plan, answers, shown, work.chosen, folder)


def refuse_shared_files(spec: ClassifySpec) -> None:
    """One content in two roles, or twice in one: what was learned from would be verified on, or count double. Raises SpecError."""
    seen: dict[str, str] = {}
    roles = {"data": spec.data, "fit": spec.fit, "calibrate": spec.calibrate}
    roles |= {f"outside {name}": (path,) for name, path in spec.outside.items()}
    for role, paths in roles.items():
        for path in paths:
            content = content_hash(path)
            if content in seen:
                raise SpecError(
                    f"file {path.name} ({role})",
                    found=f"the same content as {seen[content]}",
                    expected="examples of their own in each role, each file once",
                    remedy="Split the examples: what is learned from, or chosen on, is never verified on.",
                )
            seen[content] = f"{path.name} ({role})"


def examples_to_show(probabilities: Array, labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Positions of the most confident mistakes, then of the least certain answers, then right ones of every confidence."""
    confidence, wrong = probabilities.max(-1), probabilities.argmax(-1) != labels
    count = min(count, len(labels))
    mistakes = [int(i) for i in np.argsort(-confidence, kind="stable") if wrong[i]][: round(count * SHARES[0])]
    uncertain = [int(i) for i in np.argsort(confidence, kind="stable") if i not in mistakes][: round(count * SHARES[1])]
    taken = {*mistakes, *uncertain}
    right = [int(i) for i in np.argsort(-confidence, kind="stable") if not wrong[i] and i not in taken]
    spaced = np.linspace(0, max(0, len(right) - 1), min(len(right), count - len(taken))).round().astype(int)
    return np.asarray([*mistakes, *uncertain, *(right[i] for i in spaced)], np.int64)
