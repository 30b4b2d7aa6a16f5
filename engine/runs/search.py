"""The least of a noisy score over whole numbers ν: Bayesian optimisation with a Gaussian process over ln ν (scikit-optimize)."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

WORST = 1e3
"""Stands for a value that is not finite: the process regresses ranks of size one, and infinity has none."""


def least(value: Callable[[int], float], start: Sequence[int], *, nu_max: int, calls: int, seed: int) -> int:
    """ν in 1 … `nu_max` at which `value` was least, after the values at `start` and at most `calls` others.

    The search stops early when its next proposal lies between neighbours that are both known. Values are standardised before
    the regression, as is usual; ν that were evaluated are not evaluated again, since their noise is keyed and would repeat.
    """
    known = {nu: value(nu) for nu in dict.fromkeys(start)}
    for k in range(calls):
        proposed = _fresh(_propose(known, nu_max, seed + k), set(known), nu_max)
        if proposed is None:
            break
        known[proposed] = value(proposed)
    finite = {nu: v for nu, v in known.items() if np.isfinite(v)}
    return min(finite or known, key=lambda nu: (finite or known)[nu])


def _propose(known: dict[int, float], nu_max: int, seed: int) -> int:
    """The point of largest expected improvement."""
    from skopt import Optimizer
    from skopt.space import Real

    space: Any = [Real(0.0, float(np.log(nu_max)), name="ln nu")]
    # no random starts: what is known is the design; a proposal that is known already is replaced by a neighbour, not by chance
    optimiser = Optimizer(space, base_estimator="GP", acq_func="EI", n_initial_points=0, random_state=seed % 2**32, avoid_duplicates=False)
    values = np.array(list(known.values()))
    finite = values[np.isfinite(values)]
    middle, spread = (finite.mean(), finite.std()) if finite.size else (0.0, 0.0)
    scaled = np.where(np.isfinite(values), (values - middle) / (spread or 1.0), WORST).clip(-WORST, 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of points that were evaluated before, and of the fit's bounds
        optimiser.tell([[float(np.log(nu))] for nu in known], scaled.tolist())
        asked: Any = optimiser.ask()
    return int(np.clip(np.rint(np.exp(asked[0])), 1, nu_max))


def _fresh(proposed: int, known: set[int], nu_max: int) -> int | None:
    """The proposal, or the nearest number beside it that is not known yet; None where both its neighbours are known too."""
    for candidate in (proposed, proposed + 1, proposed - 1):
        if candidate not in known and 1 <= candidate <= nu_max:
            return candidate
    return None
