"""A ν for each block of layers, searched from the shared ν: what the papers name as their limit (arXiv 2604.19530).

The start is the shared ν that is best by the same objective, so that a gain is one of differing layers. Coordinate search in
ln ν by halving and doubling, block after block, on the calibration split. A block keeps a new ν only where the objective's
improvement is larger than its standard error over the cases (block bootstrap, paired: the same cases on both sides); what
that is worth is told by verification alone, with its uncertainty.
"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.errors import SpecError
from engine.methods.stochastic_attention import free_sites
from engine.runs.scales import Scales, score
from engine.runs.tune import Tune
from engine.types import Array

EVALUATIONS = 2
"""Ensembles at each candidate, averaged."""
SWEEPS = 2
"""Times that every block has its turn, at most; the second only where the first moved something."""


def groups(names: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns that gather attention calls by block: `blocks.3.*` for `blocks.3.attn`, the module's own name where none is numbered."""
    found = []
    for name in names:
        numbered = re.match(r"(.*?\.\d+|\d+)\.", name)
        found.append(f"{numbered[1]}.*" if numbered else name)
    return tuple(dict.fromkeys(found))


def search(scales: Scales, shared: int, asked: Tune, say: Callable[[str], Any]) -> dict[str, Any]:
    """ν by group, and the objective on the calibration split with it and with the shared ν."""
    plan = scales.landscape.plan
    if not hasattr(plan.params, "nu_of"):
        raise SpecError(
            "per_layer", found=f"method {plan.method.key!r}", expected="a method with a ν for each layer", remedy="Leave per_layer out."
        )
    names = groups(_active(scales))
    nus = dict.fromkeys(names, shared)
    value, replicates = _objective(scales, shared, nus, asked.per_layer_objective)
    first = value
    for sweep in range(SWEEPS):
        moved = False
        for name in names:
            for factor in (0.5, 2.0):
                tried = nus | {name: int(np.clip(np.rint(nus[name] * factor), 1, asked.nu_max))}
                if tried == nus:
                    continue
                say(f"layers, turn {sweep + 1}: {name} at ν = {tried[name]}")
                other, again = _objective(scales, shared, tried, asked.per_layer_objective)
                if value - other > float(np.std(replicates - again)):
                    nus, value, replicates, moved = tried, other, again, True
                    break
        if not moved:
            break
    return {"groups": nus, "shared": shared, "objective": asked.per_layer_objective, "value": value, "value_shared": first}


def _active(scales: Scales) -> tuple[str, ...]:
    """Names of the attention calls that the run samples at the shared ν; what the run itself pins to a ν stays there."""
    plan = scales.landscape.plan
    return free_sites(plan.backbone.sites(), plan.params)


def _objective(scales: Scales, shared: int, nus: dict[str, int], key: str) -> tuple[float, Array]:
    """The objective with these ν, and one value a bootstrap replicate."""
    own = {name: nu for name, nu in nus.items() if nu != shared}
    name = scales.landscape.plan.variables[0]
    parts = [scales.landscape.evaluate(shared, number, own).statistics[name] for number in range(EVALUATIONS)]
    values = [float(score(p, key)) for p in parts]
    drawn = np.zeros((len(scales.resampled), len(scales.seen)))
    drawn[:, scales.seen] = scales.resampled
    return float(np.mean(values)), np.mean([score(p, key, drawn) for p in parts], axis=0)
