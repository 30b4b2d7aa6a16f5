"""Progress and place of one classification run, counted in forwards of single examples; a training step counts as three."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.runs.classify.plan import Contender, Plan

OnProgress = Callable[[int, int, str], None]
CHOOSE_ON = 500
"""Calibration examples, evenly spaced, on which ν is chosen (our choice): all ν see the same ones, so that few tell them apart."""


class Work:
    """What is done of a plan; `finished()` is told of each piece that a restart would find."""

    def __init__(self, plan: Plan, folder: Path, report: OnProgress, finished: Callable[[], None]) -> None:
        self.plan, self.folder, self.report, self.finished = plan, folder, report, finished
        self.total = sum(learning_units(plan, c) + choosing_units(plan, c) + c.members * plan.forwards for c in plan.computed)
        self.done = 0
        self.chosen: dict[str, dict[str, Any]] = {}
        """How ν was chosen, by entry: `nu`, and `table`, rows of `nu`, `nll`, `nll_error` on the calibration split."""

    def tell(self, message: str, fresh: float = 0) -> None:
        """`fresh` forwards beyond what is done."""
        self.report(min(self.total, int(self.done + fresh)), self.total, message)


def learning_units(plan: Plan, contender: Contender) -> int:
    """Forwards that learning is likely to cost; 0 where there is nothing to learn."""
    needs = contender.method.needs
    if contender.shipped is not None or not needs & {"training", "calibration"}:
        return 0
    if "training" not in needs:
        return len(plan.calibrate or ())
    nets = getattr(contender.params, "members", getattr(contender.params, "size", 1))
    return 3 * getattr(contender.params, "epochs", 1) * max(1, nets) * len(plan.fit or ())


def choosing_units(plan: Plan, contender: Contender) -> int:
    """Forwards on the calibration split, where ν is chosen there."""
    return contender.members * min(CHOOSE_ON, len(plan.calibrate or ())) * len(plan.spec.nu) if chooses_nu(plan, contender) else 0


def chooses_nu(plan: Plan, contender: Contender) -> bool:
    """ν is neither the entry's own nor the only one of the spec."""
    return contender.method.uses_nu and contender.entry.nu is None and len(plan.spec.nu) > 1
