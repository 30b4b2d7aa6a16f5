"""Deep ensemble: models of one architecture, trained from independent initial weights (Lakshminarayanan, Pritzel and Blundell 2017).

    p(y|x) = (1/M) Σ softmax(f_i(x))

The frozen model may be the first. The others start from freshly drawn weights and see the fit split in an order of their own; without
adversarial examples, which the source calls optional. The source gives no recipe for transformers: AdamW, warm-up and cosine as in
every training here, and the weights of the epoch with the least NLL on the calibration split (our choices).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.methods._forwards import known, logits, softmax
from engine.types import Array

if TYPE_CHECKING:
    from torch import Tensor, nn


class DeepEnsemble(Classifies):
    """Models trained apart, softmaxes averaged."""

    key = "deep_ensemble"
    title = "Deep ensemble"
    reference = "Lakshminarayanan, Pritzel and Blundell (2017), arXiv 1612.01474"
    needs = frozenset({"training"})

    class ClassParams(BaseModel):
        """How many models, and how they are trained."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        size: int = Field(default=5, ge=2, le=50, description="models")
        include_frozen: bool = Field(default=True, description="the frozen model is the first of them")
        epochs: int = Field(default=100, ge=1, description="passes through the fit split")
        batch: int = Field(default=128, ge=1, description="examples a step")
        lr: float = Field(default=1e-3, gt=0, description="greatest learning rate")
        weight_decay: float = Field(default=0.0, ge=0, description="decoupled weight decay")

    def learn(
        self,
        classifier: Classifier,
        fit: Examples | None,
        calibrate: Examples | None,
        *,
        params: Any,
        seed: int,
        report: OnProgress = lambda done, total, message: None,
        folder: Path | None = None,
    ) -> "dict[str, Tensor]":
        """Weights and buffers of each trained model, named "i.name": i counts from 0, from 1 where the frozen model is the first.

        Model i is drawn and trained by seed + i. With a `folder`, model i is taken up again from "member-i". Raises DatasetError
        without labelled fit examples, RunError where a training diverges.
        """
        from engine.methods._train import fit_classifier

        examples = known(fit, "fit split")
        device = next(classifier.module.parameters()).device
        numbers = range(int(params.include_frozen), params.size)
        state: dict[str, Tensor] = {}
        for k, i in enumerate(numbers):
            module = classifier.fresh(seed + i).to(device)

            def progress(done: int, total: int, message: str, before: int = k) -> None:
                report(before * total + done, len(numbers) * total, message)

            fit_classifier(
                lambda inputs, module=module: classifier.logits(inputs, module),
                module,
                examples,
                calibrate,
                epochs=params.epochs,
                batch=params.batch,
                lr=params.lr,
                weight_decay=params.weight_decay,
                seed=seed + i,
                report=progress,
                what=f"model {i + 1} of {params.size}",
                folder=folder / f"member-{i}" if folder else None,
            )
            state |= {f"{i}.{name}": tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
        return state

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """One softmax a model, `(size, case, class)`: exactly the models that there are, whatever `members` says."""
        del params, nu, members, seed
        return np.stack([softmax(logits(classifier, examples, module)) for module in models(classifier, state)])

    def parameters(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> int:
        """Those of all models."""
        return sum(p.numel() for p in classifier.module.parameters()) * len(_numbers(state))


def models(classifier: Classifier, state: "Mapping[str, Tensor]") -> "Iterator[nn.Module]":
    """The models one after another, in eval mode without gradients: the frozen one where the state holds no model 0."""
    from copy import deepcopy

    for i in _numbers(state):
        own = {name.partition(".")[2]: tensor for name, tensor in state.items() if name.partition(".")[0] == str(i)}
        if not own:
            yield classifier.module
            continue
        module = deepcopy(classifier.module)
        module.load_state_dict(own)
        yield module.eval().requires_grad_(False)


def _numbers(state: "Mapping[str, Tensor]") -> range:
    return range(1 + max(int(name.partition(".")[0]) for name in state))


ENTRIES = (DeepEnsemble(),)
