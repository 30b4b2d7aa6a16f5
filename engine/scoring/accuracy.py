"""Accuracy of the most probable class."""

from engine.labelled import ClassView
from engine.scoring._weighted import WeightedScore, mean
from engine.types import Array


class Accuracy(WeightedScore):
    """Share of cases whose most probable class (the first of equals) is the observed one; [0, 1], 1 is perfect."""

    key = "accuracy"
    title = "Accuracy"
    symbol = "ACC"
    perfect = 1.0
    better = "higher"
    reference = "Manning, Raghavan and Schütze (2008), Introduction to Information Retrieval, section 8.3"
    headline = True

    @staticmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Weighted share."""
        del outside_weights
        return {"accuracy": mean(weights, view.correct.astype(float))}


ENTRIES = (Accuracy(),)
