"""Expected calibration error of the confidence, in two rules for its bins."""

import numpy as np

from engine.kernels.binning import bins, equal_count_gaps, equal_width
from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore
from engine.types import Array

BINS = 15


class Ece(WeightedScore):
    """Σ_b (n_b/n) |accuracy_b − mean confidence_b| over 15 equal-width bins (lo, hi] of the greatest probability; [0, 1], 0 is perfect.

    p = 0 lies in the first bin, p = 1 in the last. Biased upwards in any sample, the more so the fewer cases a bin holds.
    """

    key = "ece"
    title = "Expected calibration error"
    symbol = "ECE"
    reference = "Guo et al. (2017), arXiv:1706.04599"
    estimator = "15 equal-width bins (lo, hi]"
    headline = True

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Weighted mean gap."""
        del outside_weights
        found = bins(view.confidence, view.correct, weights, equal_width(BINS))
        gaps = np.where(found.counts > 0, np.abs(found.accuracy - found.confidence), 0.0)
        return {"ece": (found.counts * gaps).sum(-1) / weights.sum(-1)}


class EceAdaptive(WeightedScore):
    """The same over 15 bins of equal count; [0, 1], 0 is perfect.

    Each bin holds exactly a fifteenth of the cases: those among which an edge falls (all of one confidence, where there are ties) are
    shared between both bins in proportion.
    """

    key = "ece_adaptive"
    title = "Expected calibration error, adaptive bins"
    symbol = "adaptive ECE"
    reference = "Nguyen and O'Connor (2015), doi:10.18653/v1/D15-1182"
    estimator = "15 equal-count bins, ties shared"

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Weighted mean gap."""
        del outside_weights
        gaps = equal_count_gaps(view.confidence, view.correct, weights, BINS)
        return {"ece_adaptive": np.abs(gaps).sum(-1) / weights.sum(-1)}


ENTRIES = (Ece(), EceAdaptive())
