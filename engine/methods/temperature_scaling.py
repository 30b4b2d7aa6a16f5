"""Temperature scaling: softmax(f(x)/T) with the T of least NLL on the calibration split (Guo, Pleiss, Sun and Weinberger 2017).

    T = argmin Σ −log softmax(f(x)/T)_y,   0.05 ≤ T ≤ 20,   by L-BFGS in log T

One number: it moves confidence everywhere alike, and neither the most probable class nor the order of examples within one logit scale.
The NLL is convex in 1/T and so has one minimum; with every calibration example right it has none, and the bound is the answer.

Kept only where it helps what it has not seen (our choice of rule): fitted on every other calibration example, in the order of their
ids, it must lower the NLL of those between; then it is fitted again on all. Else T = 1, and the state's `kept` says so.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from engine.errors import CalibrationError
from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.methods._forwards import known, logits, softmax
from engine.types import Array

if TYPE_CHECKING:
    from torch import Tensor

BOUNDS = (0.05, 20.0)
"""T stays between these (our choice)."""


class TemperatureScaling(Classifies):
    """One factor on the logits."""

    key = "temperature_scaling"
    title = "Temperature scaling"
    reference = "Guo, Pleiss, Sun and Weinberger (2017), arXiv 1706.04599"
    needs = frozenset({"calibration"})
    sampled = False

    class ClassParams(BaseModel):
        """None."""

        model_config = ConfigDict(extra="forbid", frozen=True)

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
        """0-d tensors: `temperature`, which is used; `kept`; `fitted`, the T of all calibration examples whether kept or not, and
        `at_bound`; `held_out_before`, `held_out_after`: NLL (nats a case) of the half that the trial T has not seen; `cases`.

        Raises CalibrationError with fewer than two labelled examples, or logits that are not finite.
        """
        import torch

        del fit, params, seed, folder
        examples = known(calibrate, "calibration split", CalibrationError, least=2)
        report(0, 1, "logits of the calibration split")
        values, labels = logits(classifier, examples), examples.labels.cpu().numpy()
        if not np.isfinite(values).all():
            raise CalibrationError(
                "calibration split",
                found=f"{1 - np.isfinite(values).mean():.2%} of the logits not finite",
                expected="finite logits",
                remedy="Check the weights and the inputs.",
            )
        order = np.argsort(examples.ids, kind="stable")
        trial, held = order[::2], order[1::2]
        before = nll(values[held], labels[held], 1.0)
        after = nll(values[held], labels[held], fit_temperature(values[trial], labels[trial]))
        fitted, kept = fit_temperature(values, labels), after < before
        report(1, 1, "temperature fitted")
        found: dict[str, float | bool | int] = {
            "temperature": fitted if kept else 1.0,
            "fitted": fitted,
            "kept": kept,
            "at_bound": not BOUNDS[0] * 1.001 < fitted < BOUNDS[1] / 1.001,
            "held_out_before": before,
            "held_out_after": after,
            "cases": len(labels),
        }
        return {name: torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None) for name, value in found.items()}

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """One softmax of the scaled logits, `(1, case, class)`."""
        del params, nu, members, seed
        return softmax(logits(classifier, examples) / float(state["temperature"]))[None]

    def parameters(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> int:
        """Those of the frozen model, and T."""
        del state
        return sum(p.numel() for p in classifier.module.parameters()) + 1


def nll(values: NDArray[np.float64], labels: NDArray[np.int64], temperature: float) -> float:
    """Mean −log softmax(values/T) at the labels, in nats; `values` `(case, class)`."""
    from scipy.special import log_softmax

    return -float(log_softmax(values / temperature, axis=-1)[np.arange(len(labels)), labels].mean())


def fit_temperature(values: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """T within `BOUNDS` of least NLL, of logits `(case, class)` and labels `(case,)` ≥ 0."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rows = np.arange(len(labels))

    def objective(log_t: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scaled = values * np.exp(-log_t[0])
        logp = log_softmax(scaled, axis=-1)
        slope = scaled[rows, labels] - (np.exp(logp) * scaled).sum(-1)
        return -float(logp[rows, labels].mean()), np.array([slope.mean()])

    best = minimize(objective, [0.0], jac=True, method="L-BFGS-B", bounds=[tuple(np.log(BOUNDS))], options={"ftol": 1e-15, "gtol": 1e-10})
    return float(np.clip(np.exp(best.x[0]), *BOUNDS))


ENTRIES = (TemperatureScaling(),)
