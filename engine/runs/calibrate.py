"""Choosing ν on the calibration split: the paper's tuner, its audits, and the score-oriented point beside it.

Everything is read off the landscape's evaluations, which are stored: a calibration that is repeated, resumed or extended
makes only what is not there yet, and comes to the same numbers. Nothing here ever sees the verification split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import CalibrationError, SpecError
from engine.kernels.tuner import Tuned, tune
from engine.methods.stochastic_attention import free_sites
from engine.runs import pieces
from engine.runs.landscape import Landscape
from engine.runs.plan import Plan
from engine.runs.scales import Scales
from engine.runs.search import least
from engine.runs.tune import SCORED, Tune
from engine.types import Array

OnProgress = Callable[[int, int, str], None]
USUAL_PASSES = 220
"""Passes after which the tuner stops as a rule (2.3²/0.03 and its patience): the remaining time is told from it."""
FINE = 1.06
"""Ratio of neighbouring ν below which the direct search of the loss stops: finer than its noise."""
AUDIT = 2
"""Evaluations at a ν that a reading or a score chose."""


@dataclass(frozen=True, eq=False)
class Found:
    """What a calibration found: the tuner's answer, the ν of each reading, the least of each score that was searched."""

    scales: Scales
    tuned: Tuned
    readings: dict[str, int]
    scored: dict[str, int]
    per_layer: dict[str, Any] | None = None

    def chosen(self, objective: str) -> int:
        """ν of the objective that calibration-first means."""
        return self.readings[objective] if objective in self.readings else self.scored[objective]


def calibrate(plan: Plan, folder: Path, report: OnProgress, finished: Callable[[], None] = lambda: None) -> None:
    """Choose ν for `plan` and write `calibration.nc` into `folder`."""
    from engine.runs.fields import write
    from engine.runs.finish_calibration import dataset

    spec, asked = plan.spec, plan.spec.tune
    if asked is None:
        raise SpecError("calibration", found="a spec without tune", expected="a spec that says how to tune", remedy="Set tune.")
    _refuse_what_cannot_be_tuned(plan, asked)
    progress = _Progress(plan, asked, report, finished)
    landscape = Landscape(plan, progress, folder)
    scales = Scales(landscape, asked, spec.bootstrap)
    _refuse_no_target(scales)
    found = find(scales, asked, progress.say)
    report(progress.total, progress.total, "writing the calibration")
    result = dataset(found)
    result.attrs["key"] = folder.name
    with pieces.writing(folder):
        write(result, folder / "calibration.nc", {})


def find(scales: Scales, asked: Tune, say: Callable[[str], Any] = lambda text: None) -> Found:
    """The tuner, then the direct search of the loss, then the scores, then the layers where they are asked for."""
    spec = scales.landscape.plan.spec
    options = {n: getattr(asked, n) for n in ("initial", "draws", "per_round", "tolerance", "rounds", "nu_max")}

    def mean_scale(nu: int, k: int) -> Array:
        return scales.one_pass(nu, k).mean(keepdims=True)

    def every_scale(nu: int, k: int) -> Array:
        return scales.one_pass(nu, k)

    said = lambda number, score, nu: say(f"round {number}: ν ≈ {nu:.0f}")  # noqa: E731 (a name for the callback)
    target, each = float(scales.target.mean()), asked.objective == "per_example"
    tuned = tune(every_scale if each else mean_scale, target, seed=spec.seed, on_round=said, **options)
    readings = {"scale": tuned.nu, "per_example": tuned.nu}
    if each:
        readings["scale"] = _reread(scales, tuned, asked, lambda r: r.mean(keepdims=True))
    else:
        readings["per_example"] = _reread(scales, tuned, asked, lambda r: r)
    for nu in set(readings.values()):
        _look_again(scales, nu)
    readings["grid"] = _least_loss(scales, asked.nu_max)
    wanted = ["crps_fair", *([asked.objective] if asked.objective in SCORED else [])]
    wanted += [asked.per_layer_objective] if asked.per_layer else []
    scored: dict[str, int] = {}
    for key in dict.fromkeys(wanted):
        say(f"searching ν by {key}")

        def value(nu: int, key: str = str(key)) -> float:
            scales.at(nu)
            return float(scales.objective(nu, key))

        start = [nu for nu in scales.nus if nu <= asked.nu_max]
        least(value, start, nu_max=asked.nu_max, calls=asked.score_calls, seed=spec.seed)
        scored[key] = _least_score(scales, str(key))
    layers = None
    if asked.per_layer:
        from engine.runs.per_layer import search

        # from the best shared ν of the same objective: else the gain would be that of moving all layers together
        layers = search(scales, scored[asked.per_layer_objective], asked, say)
    return Found(scales, tuned, readings, scored, layers)


def _look_again(scales: Scales, nu: int) -> None:
    """Enough passes at a ν that something depends on."""
    for number in range(AUDIT):
        scales.at(nu, number)


def _reread(scales: Scales, tuned: Tuned, asked: Tune, read: Callable[[Array], Array]) -> int:
    """Another reading of the passes that the tuner looked at: the same regression on other scales."""
    from engine.kernels import surrogate

    points = [(e.nu, read(scales.one_pass(e.nu, e.k))) for e in tuned.evaluations]
    nu = np.concatenate([np.full(len(r), n) for n, r in points])
    values = np.concatenate([r for _, r in points])
    usable = values > 0
    fitted = surrogate.fit(nu[usable], values[usable])
    best = fitted.optimum(float(scales.target.mean()))
    if not np.isfinite(best):  # a scale that rises with ν has no optimum in closed form: the tuner's own answer stands
        return tuned.nu
    return int(np.clip(np.rint(best), 1, asked.nu_max))


def _least_loss(scales: Scales, nu_max: int) -> int:
    """Argmin of the loss itself over ν, refined between the neighbours of the least until they are close."""

    def loss(nu: int) -> float:
        return float(scales.loss(nu).mean())

    while True:
        known = [nu for nu in scales.nus if nu <= nu_max]
        at = int(np.argmin([loss(nu) for nu in known]))
        fresh = []
        for low, high in zip(known[max(0, at - 1) : at + 1], known[max(0, at - 1) + 1 : at + 2], strict=False):
            middle = int(np.rint(np.sqrt(low * high)))
            if low < middle < high and high / low > FINE:
                fresh.append(middle)
        if not fresh:
            best = known[at]
            if len(scales.all_at(best)) >= AUDIT:
                return best
            _look_again(scales, best)  # and then the least is taken once more
            continue
        for nu in fresh:
            scales.at(nu)


def _least_score(scales: Scales, key: str) -> int:
    """The least of a score over everything that was evaluated; a winner by luck loses it when it is looked at again."""
    while True:
        best = min(scales.nus, key=lambda nu: float(scales.objective(nu, key)))
        if len(scales.all_at(best)) >= AUDIT:
            return best
        _look_again(scales, best)


def _refuse_what_cannot_be_tuned(plan: Plan, asked: Tune) -> None:
    if not plan.method.uses_nu:
        raise SpecError(
            "calibrate", found=f"method {plan.method.key!r}, which has no ν", expected="a method with ν", remedy="Use stochastic_attention."
        )
    if hasattr(plan.params, "nu_of") and not free_sites(plan.backbone.sites(), plan.params):
        raise SpecError(
            "params.nu_of",
            found="a ν of its own for every attention call",
            expected="calls that the shared ν reaches",
            remedy="Leave out a pattern: with all of them pinned there is nothing to calibrate.",
        )
    unknown = [v for v in asked.norm_variables if v not in plan.variables]
    if unknown:
        raise SpecError(
            "norm_variables",
            found=", ".join(unknown),
            expected=f"of the verified variables: {', '.join(plan.variables)}",
            remedy="Choose among these, or verify the others too.",
        )
    units = {plan.backbone.out_units[plan.outputs[plan.variables.index(v)]] for v in asked.norm_variables or plan.variables}
    if asked.norm == "physical" and len(units) > 1:
        raise SpecError(
            "norm",
            found=f"physical units of several kinds: {', '.join(sorted(units))}",
            expected="one unit",
            remedy="Use the normalised norm, or choose variables of one unit with --norm-variables (norm_variables= in Python).",
        )


def _refuse_no_target(scales: Scales) -> None:
    error = scales.target.mean() if scales.cases else 0.0
    if scales.cases < 2 or not error > 0:
        raise CalibrationError(
            "calibration split",
            found=f"{scales.cases} case(s) with a valid point, mean error of the frozen forecast {error:g}",
            expected="at least 2 cases and an error above zero",
            remedy="Bring more calibration data, or check that the observations are not the forecasts themselves.",
        )


class _Progress:
    """Member forwards so far, and an estimate of all: the tuner itself decides how many it needs."""

    def __init__(self, plan: Plan, asked: Tune, report: OnProgress, finished: Callable[[], None]) -> None:
        a_pass, members = len(plan.calibrate), plan.spec.calibrate_members
        self.report, self.finished, self.done, self.told, self.text = report, finished, 0, 0, ""
        self.total = a_pass * (USUAL_PASSES + members * (asked.initial + asked.score_calls + 6))
        if asked.per_layer:
            self.total += a_pass * members * 4 * len(plan.backbone.sites())

    def __call__(self, members: int, message: str) -> None:
        self.done += members
        self.total = max(self.total, int(self.done * 1.02) + 1)
        self.report(self.done, self.total, f"{message}{', ' if self.text else ''}{self.text}")

    def say(self, text: str) -> None:
        """What the calibration is about now. Evaluations that were found on disk are no progress: nothing is finished by them."""
        self.text = text
        if self.done > self.told:
            self.told = self.done
            self.finished()
        self.report(self.done, self.total, text)
