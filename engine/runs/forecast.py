"""One batch's forecasts by a plan's method, held to be finite: the only road from a model to members."""

from typing import Any

import numpy as np

from engine.errors import RunError
from engine.registry import get
from engine.runs.plan import Plan
from engine.types import Array, Batch


def refuse_not_finite(output: Array, what: str) -> None:
    """A model's NaN must not pass for a missing member, which scores leave out."""
    if not np.isfinite(output).all():
        raise RunError(
            what,
            found=f"{1 - np.isfinite(output).mean():.2%} of the values not finite",
            expected="finite values",
            remedy="Check the weights, the normalisation and the inputs of this case.",
        )


def ensemble(
    plan: Plan, batch: Batch, nu: int, members: int, shared: dict[str, Any], *, params: Any = None, seed: int | None = None
) -> Array:
    """Members `(member, case, variable, H, W)` of the run's method; its own parameters and seed unless others are given."""
    drawn = plan.method.predict(
        plan.backbone,
        batch,
        state=plan.state,
        params=plan.params if params is None else params,
        nu=nu,
        members=members,
        seed=plan.spec.seed if seed is None else seed,
        shared=shared,
    ).members
    refuse_not_finite(drawn, f"model output, case {batch.cases[0].init_time}, ν = {nu}")
    return drawn


def deterministic(plan: Plan, batch: Batch) -> Array:
    """The frozen model's own forecast, `(case, variable, H, W)`."""
    method = get("methods", "deterministic")
    output = method.predict(plan.backbone, batch, state=None, params=None, nu=0, members=1, seed=0, shared={}).members[0]
    refuse_not_finite(output, f"deterministic forecast of {batch.cases[0].init_time}")
    return output
