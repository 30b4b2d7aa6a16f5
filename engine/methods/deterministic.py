"""The frozen model itself: one member, the point of reference for RMSE and anomaly correlation, and for every score of classes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from engine.labelled import Classifier, Classifies, Examples
from engine.types import Array, Backbone, Batch, Ensemble, Method

if TYPE_CHECKING:
    from torch import Tensor


class Deterministic(Method, Classifies):
    """`y = f(x)`, weights frozen, model in eval mode; for classes softmax(f(x))."""

    key = "deterministic"
    title = "Deterministic forecast"
    reference = "the backbone"
    single = True
    """One forecast: the reference beside every ensemble, and no ensemble itself."""
    sampled = False

    class Params(BaseModel):
        """None."""

    class ClassParams(BaseModel):
        """None."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def predict(
        self, backbone: Backbone, batch: Batch, *, state: Any, params: Any, nu: int, members: int, seed: int, shared: dict[str, Any]
    ) -> Ensemble:
        """One member, whatever `members` says: a second would be the same."""
        import torch

        del state, params, nu, members, seed, shared
        with torch.no_grad():
            output = backbone.suffix(backbone.prefix(batch, 0), 0)
        return Ensemble(backbone.physical(output, batch)[None])

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """One softmax, `(1, case, class)`, whatever `members` says."""
        from engine.methods._forwards import logits, softmax

        del state, params, nu, members, seed
        return softmax(logits(classifier, examples))[None]


ENTRIES = (Deterministic(),)
