"""Negative log likelihood of class probabilities."""

import numpy as np

from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore, mean
from engine.types import Array

FLOOR = float(np.finfo(np.float32).tiny)
"""Least probability that is counted, 2⁻¹²⁶ = 1.2e-38: a class given 0 costs 87.3 nats, not infinity."""


class Nll(WeightedScore):
    """Mean of −log p_y, where p is the mean of a sampled classifier's softmaxes (not the mean of its logs); [0, ∞), 0 is perfect.

    In nats. Probabilities below `FLOOR`, the smallest normal float32, count as `FLOOR` (our choice).
    """

    key = "nll"
    title = "Negative log likelihood"
    symbol = "NLL"
    unit = "nat"
    range = (0.0, float("inf"))
    reference = "Good (1952), doi:10.1111/j.2517-6161.1952.tb00104.x"
    estimator = "of the mean softmax, floor 2⁻¹²⁶"
    headline = True

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Weighted mean."""
        del outside_weights
        stated = view.probabilities[np.arange(len(view.labels)), view.labels].astype(np.float64)
        return {"nll": mean(weights, -np.log(np.clip(stated, FLOOR, 1.0)))}


ENTRIES = (Nll(),)
