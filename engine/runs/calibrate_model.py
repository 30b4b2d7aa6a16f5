"""ν* of any torch model on arrays in memory, regression or classification: the same tuner without files, cases or a store.

For regression R and Z are Euclidean norms over all outputs of an example, as the outputs come. For classification, beyond the
papers: distances of probabilities or of logits (`engine.kernels.residual_scale.classification_distances`), or the least
negative log-likelihood of the mean of the softmaxes, searched directly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from engine.errors import CalibrationError
from engine.kernels import residual_scale, tuner
from engine.types import Array

if TYPE_CHECKING:
    import torch

Space = Literal["outputs", "probabilities", "logits"]
SPACES, OBJECTIVES = ("outputs", "probabilities", "logits"), ("scale", "per_example", "nll")
WIDE = 16
"""Ratio of an interval's ends beyond which the NLL hardly depends on ν."""


@dataclass(frozen=True, eq=False)
class ModelCalibration:
    """The answer: `nu`, its 95 % interval (None where no interval is known) and how it was found."""

    nu: int
    low: int | None
    high: int | None
    objective: str
    target: float
    """Mean Z, in the space that was matched; NaN for the objective nll."""
    tuned: tuner.Tuned | None
    """The tuner's whole record; None for the objective nll."""
    nll: dict[int, float]
    """Mean negative log-likelihood in nats at each ν that was searched; empty unless that was the objective."""
    warnings: tuple[str, ...] = ()
    """When not to trust it, in plain words."""

    def __repr__(self) -> str:
        """The answer alone: the tuner's record is long."""
        return f"ModelCalibration(nu={self.nu}, low={self.low}, high={self.high}, objective={self.objective!r}, warnings={self.warnings})"


def calibrate_model(
    model: "torch.nn.Module",
    inputs: "torch.Tensor | Sequence[torch.Tensor]",
    observed: ArrayLike,
    *,
    space: Space = "outputs",
    objective: Literal["scale", "per_example", "nll"] = "scale",
    nu_max: int = 512,
    seed: int = 0,
    sites: Any = None,
    batch: int = 64,
    members: int = 10,
    calls: int = 8,
    rounds: int = 50,
    partial: bool | None = None,
) -> ModelCalibration:
    """Choose ν in 1 … `nu_max` for a frozen `model` on calibration data.

    `inputs`, one tensor or several `(case, …)`, are the model's arguments; it answers one tensor `(case, *event)`. `observed`
    `(case, *event)` for the space "outputs"; class numbers `(case,)` for "probabilities" and "logits", where the model answers
    logits `(case, class)`. The objective "nll" (classification) takes the least NLL of `members`-member ensembles over a
    log-spaced design and `calls` further ν. `batch` cases a forward change no number beyond rounding: noise is keyed by the
    case's place. `partial` True accepts a model some of whose attention is not reached, with a warning; None refuses it unless `sites`
    chooses deliberately. Sources: arXiv 2604.19530 (scale matching), arXiv 2510.06439 (tuner); classification is our choice.

    Raises CalibrationError for shapes that do not fit and values that are not finite, AttentionError for a model whose
    attention cannot be reached.
    """
    _refuse_other_words(space, objective)
    for name, number, least in (
        ("nu_max", nu_max, 2),
        ("batch", batch, 1),
        ("members", members, 1),
        ("seed", seed, 0),
        ("calls", calls, 0),
    ):
        if not isinstance(number, int) or number < least:
            raise CalibrationError(name, found=repr(number), expected=f"a whole number from {least}", remedy="Mend it.")
    runner = _Runner(model, inputs, seed, sites, batch, partial)
    single, truth = runner(None, 0), _array(observed)
    if space == "outputs" and objective != "nll" and not np.isfinite(truth.astype(np.float64)).all():
        raise CalibrationError("observed", found="values that are not finite", expected="finite values", remedy="Leave those cases out.")
    if not np.isfinite(single).all():
        raise CalibrationError("model output", found="values that are not finite", expected="finite values", remedy="Check the inputs.")
    classes = space != "outputs" or objective == "nll"
    if (single.ndim != 2 or truth.shape != single.shape[:1]) if classes else truth.shape != single.shape:
        raise CalibrationError(
            "observed",
            found=f"shape {truth.shape} for outputs {single.shape}",
            expected="class numbers (case,) for logits (case, class)" if classes else "the outputs' shape",
            remedy="Give one observation a case; name the space, 'probabilities' or 'logits', of a classifier (space= in Python).",
        )
    if objective == "nll":
        return _least_nll(runner, truth, nu_max, seed, members, calls)
    flat = single.reshape(len(single), -1)

    def distances(nu: int, k: int) -> Array:
        moved = runner(nu, k)
        if space != "outputs":
            return residual_scale.classification_distances(moved[None], single, truth, space)[0][0]
        return np.linalg.norm(moved.reshape(flat.shape) - flat, axis=1)

    if space == "outputs":
        residual = np.linalg.norm(truth.reshape(flat.shape).astype(np.float64) - flat, axis=1)
    else:
        residual = residual_scale.classification_distances(single[None], single, truth, space)[1]
    seen: dict[tuple[int, int], Array] = {}

    def evaluate(nu: int, k: int) -> Array:
        seen[nu, k] = distances(nu, k)
        return seen[nu, k] if objective == "per_example" else seen[nu, k].mean(keepdims=True)

    target = float(residual.mean())
    if not target > 1e-6 * float(np.abs(flat).max()):
        raise CalibrationError(
            "observed",
            found=f"a mean distance of {target:.3g} from the model's own outputs",
            expected="observations that the model misses",
            remedy="Give what happened, not the model's outputs: a forecast without error has nothing to calibrate.",
        )
    tuned = tuner.tune(evaluate, target, nu_max=nu_max, seed=seed, rounds=rounds)
    passes = list(seen)
    try:
        low, high, _ = tuner.interval(
            [nu for nu, _ in passes], [seen[p] for p in passes], residual, seed=seed, nu_max=nu_max, reading=objective
        )
    except CalibrationError:  # two cases, or no line: a point and no interval
        low = high = None
    told = _warnings(tuned, nu_max, len(single), low is None) + tuple(runner.told)
    return ModelCalibration(tuned.nu, low, high, objective, target, tuned, {}, told)


def _array(observed: Any) -> Array:
    """Observations as numbers."""
    values = np.asarray(observed.detach().cpu() if hasattr(observed, "detach") else observed)
    if values.dtype.kind not in "biuf":
        raise CalibrationError(
            "observed", found=f"values of type {values.dtype}", expected="numbers", remedy="Give numbers, or class numbers."
        )
    return values


def _refuse_other_words(space: str, objective: str) -> None:
    for name, given, known in (("space", space, SPACES), ("objective", objective, OBJECTIVES)):
        if given not in known:
            raise CalibrationError(name, found=repr(given), expected=f"one of {', '.join(known)}", remedy="Use one of these words.")


def _warnings(tuned: tuner.Tuned, nu_max: int, cases: int, no_interval: bool) -> tuple[str, ...]:
    told = []
    if tuned.edge == "low":
        told.append("Even at ν = 1 the passes stray less than the model errs: the spread must come from elsewhere.")
    if tuned.edge == "high":
        told.append(f"At ν = {nu_max} the passes still stray further than the model errs: allow more with nu_max.")
    if tuned.rising:
        told.append("The passes' departure does not fall with ν: the fit says nothing about ν here.")
    if tuned.dropped:
        told.append(f"{tuned.dropped} departure(s) of exactly zero were dropped from the fit.")
    if cases < 15 or no_interval:
        told.append(f"Only {cases} calibration cases: ν* is uncertain.")
    return tuple(told)


def _least_nll(runner: "_Runner", labels: Array, nu_max: int, seed: int, members: int, calls: int) -> ModelCalibration:
    """The direct search, with an interval from a bootstrap over cases."""
    from engine.kernels import bootstrap
    from engine.runs.search import least

    by_case: dict[int, Array] = {}

    def value(nu: int) -> float:
        by_case[nu] = residual_scale.nll(np.stack([runner(nu, k) for k in range(members)]), labels)
        return float(by_case[nu].mean())

    start = np.unique(np.rint(np.geomspace(1, nu_max, 10)).astype(int)).tolist()
    nu = least(value, start, nu_max=nu_max, calls=calls, seed=seed)
    nus = sorted(by_case)
    drawn = bootstrap.resample(len(labels), 1, 1000, seed) @ np.stack([by_case[n] for n in nus], axis=1)
    low, high = np.quantile(np.array(nus)[drawn.argmin(axis=1)], [0.025, 0.975], method="inverted_cdf")
    told = [f"The NLL hardly tells ν on these cases: anything from {low} to {high} is as good."] if high >= WIDE * low else []
    told += [f"ν = {nu} is at the edge of the search."] if nu in (1, nu_max) else []
    means = {n: float(by_case[n].mean()) for n in nus}
    return ModelCalibration(nu, int(low), int(high), "nll", float("nan"), None, means, (*told, *runner.told))


class _Runner:
    """`runner(nu, k)`: the k-th pass at ν over all cases as float64 logits or outputs; ν None for the frozen model."""

    def __init__(self, model: "torch.nn.Module", inputs: Any, seed: int, sites: Any, batch: int, partial: bool | None) -> None:
        import torch

        self.model, self.seed, self.sites, self.batch, self.partial = model, seed, sites, batch, partial
        self.told: dict[str, None] = {}
        self.inputs = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        lengths = {len(x) if isinstance(x, torch.Tensor) and x.dim() else -1 for x in self.inputs}
        if len(lengths) != 1 or min(lengths, default=0) < 2:
            raise CalibrationError(
                "inputs",
                found=", ".join(f"{type(x).__name__} {tuple(getattr(x, 'shape', ()))}" for x in self.inputs[:4]) or "none",
                expected="torch tensors (case, …) of one length, 2 cases or more",
                remedy="Convert arrays with torch.as_tensor, and give several inputs as a tuple.",
            )
        self.cases = lengths.pop()

    def __call__(self, nu: int | None, k: int) -> Array:
        import torch

        from engine.kernels import stochastic_attention
        from engine.kernels.noise import key64

        # passes at different ν are independent, as the regression over ν takes for granted; ν None replays without noise
        seed, parts = self.seed if nu is None else key64(self.seed, case=nu) >> 1, []
        for start in range(0, self.cases, self.batch):
            some = tuple(x[start : start + self.batch] for x in self.inputs)
            ids = list(range(start, start + len(some[0])))
            with torch.no_grad(), stochastic_attention(self.model, nu, seed, k, ids, self.sites, partial=self.partial) as sa:
                answer = self.model(*some)
            self.told |= dict.fromkeys(f"Not reached, so deterministic: {text}." for text in sa.report.unreached)
            if not isinstance(answer, torch.Tensor):
                raise CalibrationError(
                    "model output",
                    found=type(answer).__name__,
                    expected="one tensor (case, …)",
                    remedy="Wrap the model in a module whose forward returns the tensor to calibrate.",
                )
            parts.append(answer.detach().cpu().double().numpy())
        return np.concatenate(parts)
