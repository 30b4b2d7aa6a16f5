"""Area under the risk-coverage curve: what abstaining on unconfident cases gains."""

from engine.kernels.detection import aurc
from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore
from engine.types import Array


class Aurc(WeightedScore):
    """Mean over i = 1 … n of the share of mistakes among the i most confident cases; [0, 1], 0 is perfect.

    Confidence is the greatest probability. Among tied cases mistakes are spread evenly. Weights count cases.
    """

    key = "aurc"
    title = "Area under the risk-coverage curve"
    symbol = "AURC"
    reference = "Geifman, Uziel and El-Yaniv (2019), arXiv:1805.08206"
    estimator = "confidence: greatest probability; ties spread evenly"
    headline = True

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """The area under each weighting."""
        del outside_weights
        return {"aurc": aurc(view.confidence, view.correct, weights)}


ENTRIES = (Aurc(),)
