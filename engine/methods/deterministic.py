"""The frozen model itself: one member, the point of reference for RMSE and anomaly correlation."""

from typing import Any

from pydantic import BaseModel

from engine.types import Backbone, Batch, Ensemble, Method


class Deterministic(Method):
    """`y = f(x)`, weights frozen, model in eval mode."""

    key = "deterministic"
    title = "Deterministic forecast"
    reference = "the backbone"
    single = True
    """One forecast: the reference beside every ensemble, and no ensemble itself."""

    class Params(BaseModel):
        """None."""

    def predict(
        self, backbone: Backbone, batch: Batch, *, state: Any, params: Any, nu: int, members: int, seed: int, shared: dict[str, Any]
    ) -> Ensemble:
        """One member, whatever `members` says: a second would be the same."""
        import torch

        del state, params, nu, members, seed, shared
        with torch.no_grad():
            output = backbone.suffix(backbone.prefix(batch, 0), 0)
        return Ensemble(backbone.physical(output, batch)[None])


ENTRIES = (Deterministic(),)
