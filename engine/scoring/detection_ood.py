"""How well a classifier's own uncertainty tells in-distribution cases (positive) from those of another distribution."""

import numpy as np

from engine.kernels.detection import detection
from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore
from engine.types import Array, Better

SIGNALS = {
    "max_softmax": ("greatest probability", lambda p: p.max(-1)),
    "entropy": ("negative entropy", lambda p: _negative_entropy(p)),
}
"""What in-distribution cases are to have more of: words, and the function of probabilities `(case, class)`."""
MEASURES: dict[str, tuple[str, float, Better, str]] = {
    "auroc": ("AUROC", 1.0, "higher", "Hendrycks and Gimpel (2017), arXiv:1610.02136"),
    "aupr": ("AUPR", 1.0, "higher", "Hendrycks and Gimpel (2017), arXiv:1610.02136"),
    "fpr95": ("FPR95", 0.0, "lower", "Liang et al. (2018), arXiv:1706.02690"),
}
"""Words, the perfect value, which way is better, source."""


def _negative_entropy(p: Array) -> Array:
    p = np.sort(p.astype(np.float64), axis=-1)  # the same sum, to the last digit, for the same probabilities of other classes: a tie
    return (p * np.log(np.where(p > 0, p, 1.0))).sum(-1)


class OutOfDistribution(WeightedScore):
    """One measure of detection by one signal; [0, 1]. Needs `outside`; labels are not looked at.

    AUROC and AUPR: 1 is perfect (AUPR of chance: the share of in-distribution cases). FPR95: the share of outside cases kept at the
    highest threshold that keeps 95 % of the in-distribution ones, 0 is perfect.
    """

    needs = frozenset({"outside"})

    def __init__(self, measure: str, signal: str) -> None:
        words, self.perfect, self.better, self.reference = MEASURES[measure]
        self.key = f"{measure}_ood_{signal}"
        self.title = f"{words} of out-of-distribution detection by {SIGNALS[signal][0]}"
        self.symbol = f"{words} OOD"
        self.estimator = f"in-distribution positive; score: {SIGNALS[signal][0]}"

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Every measure by every signal; NaN without outside cases."""
        outside = np.zeros((0, view.probabilities.shape[-1])) if view.outside is None else view.outside
        values: dict[str, Array] = {}
        for signal, (_, strength) in SIGNALS.items():
            found = detection(strength(view.probabilities), strength(outside), weights, outside_weights)
            values |= {f"{measure}_ood_{signal}": value for measure, value in found._asdict().items()}
        return values


ENTRIES = tuple(OutOfDistribution(measure, signal) for signal in SIGNALS for measure in MEASURES)
