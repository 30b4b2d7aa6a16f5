"""Brier score over all classes, and its decomposition by isotonic recalibration of each class (CORP)."""

import numpy as np

from engine.kernels.corp_classes import decompose_classes
from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore, mean
from engine.types import Array

CORP = "Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118"


class BrierMulticlass(WeightedScore):
    """Mean of Σ_k (p_k − 1[y = k])²; [0, 2], 0 is perfect. For two classes twice the Brier score of one of them."""

    key = "brier_multiclass"
    title = "Brier score, all classes"
    symbol = "BS"
    range = (0.0, 2.0)
    reference = "Brier (1950), doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2"
    estimator = "sum over classes"

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Weighted mean."""
        del outside_weights
        p = view.probabilities.astype(np.float64)
        stated = p[np.arange(len(p)), view.labels]
        return {"brier_multiclass": mean(weights, (p**2).sum(-1) - stated**2 + (1 - stated) ** 2)}


class BrierMiscalibration(WeightedScore):
    """What recalibrating each class by isotonic regression gains, one against the rest, summed over classes; [0, 2], 0 is perfect.

    `brier_multiclass` = MCB − DSC + UNC. Slightly positive in any sample, also of a calibrated forecast.
    """

    key = "brier_mcb"
    title = "Brier score: miscalibration"
    symbol = "MCB"
    range = (0.0, 2.0)
    reference = CORP
    estimator = "CORP (isotonic), each class against the rest, summed"

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """All three parts."""
        del outside_weights
        parts = decompose_classes(view.probabilities, view.labels, weights)
        return {f"brier_{name}": parts[name] for name in ("mcb", "dsc", "unc")}


class BrierDiscrimination(BrierMiscalibration):
    """What the recalibrated forecast gains over the base rates, summed over classes; [0, 1], higher is better.

    A perfect forecast reaches UNC, which is below 1 (at most 1 − 1/K).
    """

    key = "brier_dsc"
    title = "Brier score: discrimination"
    symbol = "DSC"
    range = (0.0, 1.0)
    perfect = 1.0
    better = "higher"


class BrierUncertainty(BrierMiscalibration):
    """Brier score of the base rates, 1 − Σ_k f_k²; [0, 1]. A property of the labels: no forecast changes it, no value is perfect."""

    key = "brier_unc"
    title = "Brier score: uncertainty"
    symbol = "UNC"
    range = (0.0, 1.0)
    perfect = float("nan")
    better = "nominal"


ENTRIES = (BrierMulticlass(), BrierMiscalibration(), BrierDiscrimination(), BrierUncertainty())
