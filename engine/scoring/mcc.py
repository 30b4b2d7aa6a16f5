"""Matthews correlation coefficient for any number of classes."""

import numpy as np

from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore
from engine.types import Array


class Mcc(WeightedScore):
    """Gorodkin's R_K = (c·s − Σ p_k t_k) / √((s² − Σ p_k²)(s² − Σ t_k²)) over the full set, never averaged over batches.

    c: weight of correct cases, s: of all, t_k: of class k, p_k: of cases predicted as k. [−1, 1], 1 is perfect. NaN where only one
    class is observed, or only one predicted: a correlation with a constant (scikit-learn says 0 there).
    """

    key = "mcc"
    title = "Matthews correlation coefficient"
    symbol = "MCC"
    range = (-1.0, 1.0)
    perfect = 1.0
    better = "higher"
    reference = "Gorodkin (2004), doi:10.1016/j.compbiolchem.2004.09.006"
    estimator = "R_K over the full set"

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """R_K from the margins of the confusion matrix: the matrix itself is not needed."""
        del outside_weights
        classes = view.probabilities.shape[-1]
        observed, predicted = (
            np.stack([np.bincount(of, weights=w, minlength=classes) for w in weights]) for of in (view.labels, view.predicted)
        )
        whole = weights.sum(-1)
        joint = (weights @ view.correct) * whole - (observed * predicted).sum(-1)
        spread = [whole**2 - (margin**2).sum(-1) for margin in (observed, predicted)]
        defined = np.minimum(*spread) > 1e-12 * whole**2
        return {"mcc": np.where(defined, joint / np.sqrt(np.where(defined, spread[0] * spread[1], 1.0)), np.nan)}


ENTRIES = (Mcc(),)
