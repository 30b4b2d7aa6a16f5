"""When a calibration is not to be trusted, in plain words: each warning says what was found and what it means for the user."""

import numpy as np

from engine.judging import SHIFTED
from engine.kernels.residual_scale import dispersion_of_literal_loss
from engine.runs.calibrate import Found
from engine.runs.tune import READINGS, SCORED

FEW_BLOCKS = 8
"""Independent calibration cases below which an interval of ν* is hardly one (our choice)."""
FEW_CASES = 15
"""Calibration cases below which their dependence cannot be judged either (our choice)."""
FEW_OUTPUTS = 25
"""Output dimensions below which the literal loss under-disperses by more than about 2 %."""
AGREE = 1.03
"""Loss at one reading's ν over the least: beyond it, more than one number apart, and surely so, the readings disagree."""


def warnings(found: Found) -> list[dict[str, str]]:
    """`code` and `text` of each."""
    scales, tuned = found.scales, found.tuned
    asked = scales.tune
    nu = found.chosen(asked.objective)
    said: list[dict[str, str]] = []

    def warn(code: str, text: str) -> None:
        said.append({"code": code, "text": text})

    if nu in (1, asked.nu_max):
        if nu == 1:
            warn(
                "edge",
                "ν* = 1 is the smallest there is: the members stray less than the model errs even there. Spread must come from elsewhere.",
            )
        else:
            warn("edge", f"ν* = {nu} is the largest that was allowed: the true one may be larger. Allow more with nu_max.")
    if tuned.rising:
        warn("rising", f"The members' departure does not fall with ν (slope {tuned.fit.slope:.2f}): the fit says nothing about ν here.")
    if tuned.dropped:
        warn("still", f"{tuned.dropped} pass(es) left the forecast exactly as it was and were dropped from the fit.")
    outputs = dimensions(found)
    if outputs < FEW_OUTPUTS and asked.objective in ("per_example", "grid"):
        ratio = dispersion_of_literal_loss(outputs)
        text = f"Only {outputs} output value(s) a case: minimising the loss as written gives {ratio:.0%} of the right spread. "
        warn("scalar_target", text + "Use the reading “scale”.")
    independent = scales.cases / scales.block
    if independent < FEW_BLOCKS or scales.cases < FEW_CASES:
        text = f"Only {scales.cases} calibration case(s), worth about {independent:.0f} independent ones: ν* is uncertain. "
        warn("few_cases", text + "Bring a longer calibration period, or raise calibrate_cases.")
    missing = 1 - float(np.mean([e.valid.mean() for e in scales.landscape.evaluate(nu).statistics.values()]))
    if missing > 0.05 or scales.cases < len(scales.seen):
        left = len(scales.seen) - scales.cases
        warn("missing", f"{missing:.0%} of the calibration data are missing; {left} case(s) without any value were left out.")
    if told := _shifted(found, nu):
        warn("shift", told)
    if told := _disagreement(found, asked.objective if asked.objective in READINGS else "scale"):
        warn("disagree", told)
    return said


def _shifted(found: Found, nu: int) -> str:
    """Words where the members' departure is largely one that they share: matching it leaves the spread too small."""
    scales = found.scales
    shift, spread = (float(part.mean()) for part in scales.parts(nu))
    share = shift / (shift + spread)
    if scales.tune.objective in SCORED or share < SHIFTED:
        return ""
    return (
        f"At ν = {nu} {share:.0%} of the members' squared departure is a shift that all of them share, which widens no interval: expect "
        "intervals that are too narrow. The objectives coverage_95 and w1_pit choose ν by what the ensemble covers instead."
    )


def _disagreement(found: Found, read: str) -> str:
    """Words where another reading's ν has a loss that is lower by more than the cases' own scatter; paired, so that it cancels."""
    scales = found.scales
    losses = {r: scales.loss(found.readings[r]) for r in READINGS}
    best = min(READINGS, key=lambda r: float(losses[r].mean()))
    ratio = (scales.resampled @ losses[read]) / np.maximum(scales.resampled @ losses[best], 1e-300)
    apart = abs(found.readings[read] - found.readings[best])
    if apart <= 1 or losses[read].mean() <= AGREE * losses[best].mean() or np.quantile(ratio, 0.025) <= 1:
        return ""
    listed = ", ".join(f"{r.replace('_', ' ')}: ν = {found.readings[r]}" for r in READINGS)
    return f"The readings of the loss disagree ({listed}): the scale is no straight line over ν here."


def dimensions(found: Found) -> int:
    """Output values that one case's norm is taken over."""
    plan = found.scales.landscape.plan
    return len(found.scales.variables) * plan.dataset.grid[0] * plan.dataset.grid[1]
