"""How well the confidence tells a classifier's right answers (positive) from its mistakes."""

from engine.kernels.detection import detection
from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore
from engine.types import Array

CONFIDENCE = "correct cases positive; score: greatest probability"


class AurocFailure(WeightedScore):
    """Probability that a correct case is more confident than a mistaken one, ties one half; [0, 1], 1 is perfect, ½ is chance.

    NaN where there is no mistake, or nothing else.
    """

    key = "auroc_failure"
    title = "AUROC of failure detection"
    symbol = "AUROC failure"
    perfect = 1.0
    better = "higher"
    reference = "Hendrycks and Gimpel (2017), arXiv:1610.02136"
    estimator = CONFIDENCE

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Both measures."""
        del outside_weights
        right, stated = view.correct, view.confidence
        found = detection(stated[right], stated[~right], weights[:, right], weights[:, ~right])
        return {"auroc_failure": found.auroc, "fpr95_failure": found.fpr95}


class Fpr95Failure(AurocFailure):
    """Share of mistakes that are kept at the highest threshold which keeps 95 % of the correct cases; [0, 1], 0 is perfect.

    NaN where there is no mistake, or nothing else.
    """

    key = "fpr95_failure"
    title = "FPR at 95 % TPR of failure detection"
    symbol = "FPR95 failure"
    perfect = 0.0
    better = "lower"
    reference = "Liang et al. (2018), arXiv:1706.02690"


ENTRIES = (AurocFailure(), Fpr95Failure())
