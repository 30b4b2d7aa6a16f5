"""Brier score of exceedance probabilities, and its decomposition by recalibration (CORP)."""

from collections.abc import Mapping

import numpy as np

from engine.kernels.area import case_means
from engine.kernels.corp import decompose
from engine.kernels.exceedance import exceedance, exceedance_sums, probabilities
from engine.types import Array, EnsembleView, Score


class Brier(Score):
    """Mean of (p − o)², p the share of members with x − climatology above the threshold and o the outcome; [0, 1], 0 is perfect.

    With several thresholds, the mean over them.
    """

    key = "brier"
    title = "Brier score of exceedance"
    symbol = "BS"
    unit = "1"
    range = (0.0, 1.0)
    reference = "Brier (1950), doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2"
    estimator = "share of members"
    needs = frozenset({"thresholds"})

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Mean squared difference at each threshold."""
        scores = []
        for threshold in view.thresholds:
            probability, outcome = exceedance(view, threshold)
            scores.append(case_means(view, (probability - outcome) ** 2, weights))
        return {"brier": np.stack(scores, axis=-1)}

    def combine(self, means: Mapping[str, Array]) -> Array:
        """Mean over thresholds."""
        return means["brier"].mean(-1)


class BrierDecomposition(Score):
    """Brier = MCB − DSC + UNC by isotonic recalibration: miscalibration, discrimination, uncertainty; means over thresholds.

    `mcb` and `dsc` are ≥ 0; a calibrated forecast has MCB near 0 (it is slightly positive in any sample).
    """

    key = "brier_decomposition"
    title = "Brier score decomposition (CORP)"
    symbol = "MCB − DSC + UNC"
    unit = "1"
    range = (0.0, 1.0)
    reference = "Dimitriadis, Gneiting and Jordan (2021), doi:10.1073/pnas.2016191118"
    estimator = "CORP (isotonic)"
    needs = frozenset({"thresholds"})

    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Weight, and weight × event, at each of the M + 1 probabilities."""
        return exceedance_sums(view, weights)

    def combine(self, means: Mapping[str, Array]) -> dict[str, Array]:
        """`brier`, `mcb`, `dsc`, `unc`."""
        weight, event = means["exceedance_weight"], means["exceedance_event"]
        parts = decompose(weight, event, probabilities(weight.shape[-1] - 1))
        return {name: part.mean(-1) for name, part in parts.items()}


ENTRIES = (Brier(), BrierDecomposition())
