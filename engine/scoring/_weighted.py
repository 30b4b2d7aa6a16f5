"""Class scores under many weightings at once: what a score and its neighbours share is computed once for all of them."""

from abc import abstractmethod

from engine.labelled import ClassScore, ClassView
from engine.types import Array


class WeightedScore(ClassScore):
    """A class score whose value under many weightings costs little more than under one.

    Scores that share their work share one `family` (the same function): whoever needs several calls it once.
    """

    @staticmethod
    @abstractmethod
    def family(view: ClassView, weights: Array, outside_weights: Array) -> dict[str, Array]:
        """Values `(replicate,)` by key, under `weights` `(replicate, case)` and `outside_weights` `(replicate, case')`.

        The view's own weights are not looked at. NaN where a value is not defined.
        """

    def value(self, view: ClassView) -> float:
        """The score under the view's weights; NaN where it is not defined."""
        return float(self.family(view, view.w[None], view.w_outside[None])[self.key][0])


def mean(weights: Array, statistic: Array) -> Array:
    """Weighted mean of `(case,)` under each of `(replicate, case)`; weights have a positive sum."""
    return weights @ statistic / weights.sum(-1)
