"""Residual-scale matching: how far a stochastic pass moves the forecast (R) against how far the forecast missed (Z).

    R_ν = ‖f_ν(x) − f(x)‖₂,   Z = ‖y − f(x)‖₂        per example, over all output coordinates
    L(ν) = E[Var R_ν + (E R_ν − Z)²] = E[(R_ν − Z)²]

The two forms are equal because E[(R − Z)²] for a given example is the second moment of R about the number Z. So the mean
of (R − Z)² over examples and passes estimates L without bias from any number of passes, even one, where estimates of
Var R and of (E R − Z)² from the same passes are each biased (by opposite amounts: their sum with ddof = 0 is that mean).

Minimising L is not the same as matching the spread: see `dispersion_of_literal_loss`.
Source: arXiv 2604.19530, equation of L_SA. Distances for classification are this project's choice, beyond the paper.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from engine.errors import CalibrationError
from engine.types import Array

SMOOTHING = 0.05
"""Share of a label's mass that is spread over all classes in the space of logits, where a one-hot label lies at infinity."""


class Loss(NamedTuple):
    """L̂ and its parts, in the unit of R squared; all are 0 or more."""

    value: Array
    """`(*nu,)`: mean over passes and cases."""
    by_case: Array
    """`(*nu, case)`: mean over passes. The value is its mean over cases: a bootstrap resamples these."""
    variance: Array
    """`(*nu, case)`: variance of R over the passes, ddof = 0."""
    mismatch: Array
    """`(*nu, case)`: (mean R − Z)²; `variance + mismatch` is `by_case`."""


def loss(perturbation: ArrayLike, residual: ArrayLike) -> Loss:
    """L̂ = mean of (R − Z)² over passes and cases.

    `perturbation` `(*nu, pass, case)` is R, `residual` `(case,)` is Z, both 0 or more and in one unit. Leading axes of
    `perturbation` (one a ν, say) are kept. Raises ValueError for shapes that do not fit, CalibrationError for values that
    are not finite.
    """
    r, z = np.asarray(perturbation, dtype=np.float64), np.asarray(residual, dtype=np.float64)
    if r.ndim < 2 or z.shape != r.shape[-1:] or 0 in r.shape:
        raise ValueError(f"perturbation {r.shape} and residual {z.shape}; expected (*nu, pass, case) and (case,), not empty")
    _refuse_infinite("perturbation", r)
    _refuse_infinite("residual", z)
    by_case = np.mean((r - z) ** 2, axis=-2)
    return Loss(by_case.mean(-1), by_case, r.var(axis=-2), (r.mean(axis=-2) - z) ** 2)


def classification_distances(
    sampled: ArrayLike, deterministic: ArrayLike, labels: ArrayLike, space: Literal["probabilities", "logits"]
) -> tuple[Array, Array]:
    """R `(pass, case)` and Z `(case,)` of a classifier, for `loss` and for scale matching. A choice of this project.

    `sampled` `(pass, case, class)` and `deterministic` `(case, class)` are logits, `labels` `(case,)` whole numbers from 0.
    "probabilities": R = ‖p_ν − p‖₂ and Z = ‖e_y − p‖₂, each within [0, √2]. "logits": the same between logits from which
    their mean over classes is taken (softmax cannot see it), with the centred logarithm of the label smoothed by 5 %,
    0.95 e_y + 0.05/classes, in the place of e_y. Raises as `loss`, and CalibrationError for a label without a class.
    """
    moved, still = np.asarray(sampled, dtype=np.float64), np.asarray(deterministic, dtype=np.float64)
    if moved.ndim != 3 or still.shape != moved.shape[1:]:
        raise ValueError(f"sampled {moved.shape} and deterministic {still.shape}; expected (pass, case, class) and (case, class)")
    _refuse_infinite("deterministic logits", still)
    truth = np.zeros(still.shape)
    truth[np.arange(len(still)), _labels(moved, labels)] = 1.0
    if space == "probabilities":
        moved, still = special.softmax(moved, axis=-1), special.softmax(still, axis=-1)
    elif space == "logits":
        truth = _centred(np.log((1 - SMOOTHING) * truth + SMOOTHING / moved.shape[2]))
        moved, still = _centred(moved), _centred(still)
    else:
        raise ValueError(f"space {space!r}; expected 'probabilities' or 'logits'")
    return np.linalg.norm(moved - still, axis=-1), np.linalg.norm(truth - still, axis=-1)


def nll(sampled: ArrayLike, labels: ArrayLike) -> Array:
    """Negative log-likelihood by case, `(case,)` in nats, 0 or more: −ln of the mean over members of the softmaxes at the label.

    `sampled` `(member, case, class)` logits, `labels` `(case,)` whole numbers from 0. The mean is taken of the
    probabilities (a sampled classifier predicts that mean), in logarithms, so that confident members do not underflow.
    """
    logits = np.asarray(sampled, dtype=np.float64)
    if logits.ndim != 3:
        raise ValueError(f"sampled {logits.shape}; expected (member, case, class)")
    chosen = _labels(logits, labels)
    at_label = special.log_softmax(logits, axis=-1)[:, np.arange(logits.shape[1]), chosen]
    return np.log(len(logits)) - special.logsumexp(at_label, axis=0)


def dispersion_of_literal_loss(dimensions: ArrayLike) -> Array:
    """Spread over error, within (0, 1), that minimising L(ν) leads to for Gaussian residuals in `dimensions` ≥ 1 coordinates.

    R = s χ and Z = χ′, independent χ-distributed norms of d unit Gaussians: E[(s χ − χ′)²] is least at
    s = E[χ] E[χ′] / E[χ²] = (E χ)² / d, with E χ = √2 Γ((d+1)/2) / Γ(d/2). That is 0.637 (2/π) at d = 1, 0.785 (π/4) at 2,
    0.931 at 7, 0.995 at 96: a scalar forecast's ensemble gets a third too little spread. Matching the mean scales instead
    (E R = E Z) gives s = 1 for every d. Derived here; holds for isotropic Gaussians, and d is then the effective dimension
    of correlated ones.
    """
    d = np.asarray(dimensions, dtype=np.float64)
    return np.exp(np.log(2.0) + 2 * (special.gammaln((d + 1) / 2) - special.gammaln(d / 2)) - np.log(d))


def _centred(logits: Array) -> Array:
    return logits - logits.mean(-1, keepdims=True)


def _labels(logits: Array, labels: ArrayLike) -> NDArray[np.int64]:
    """The labels as indices, where they are whole and each has a class."""
    _refuse_infinite("sampled logits", logits)
    values: NDArray[Any] = np.asarray(labels)
    if values.shape != logits.shape[1:2]:
        raise ValueError(f"labels {values.shape} for logits {logits.shape}; expected (case,)")
    wrong = ~((values >= 0) & (values < logits.shape[-1]) & (values == np.floor(values)))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise CalibrationError(
            f"label of case {first}",
            found=str(values[first]),
            expected=f"a class from 0 to {logits.shape[-1] - 1}",
            remedy="Number the classes from 0, in the order of the model's outputs.",
        )
    return values.astype(np.int64)


def _refuse_infinite(name: str, values: Array) -> None:
    """Raise where a value is not finite, naming the first place."""
    wrong = ~np.isfinite(values)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise CalibrationError(
            f"{name} at {place}",
            found=f"{values[place]} ({int(wrong.sum())} values are like it)",
            expected="finite numbers",
            remedy="Leave out the cases whose forecast or observation is missing.",
        )
