"""DIRECTOR: a frozen stack read as a diffusion and distilled into one small stochastic transition (arXiv 2602.08920).

The stack is cut so that each transition ends with attention (`engine.stack`); a one-block DiT with a time input learns all of them
(`_transition`), matched to the teacher's Gaussian transitions (L₁) and to the task on sampled rollouts (L₂). A forecast is S paths: for
classes the mean of their softmaxes, for fields an ensemble of S members.

Controls that show whether input-dependent noise is real: noise "none" (σ = 0), noise "constant" (one σ a step), matching off (L₂ alone).

    λ (mean/var/task)   softmax teacher .8/0/.2; KEP-SVGP and SGPA .4/.2/.4 for images, .5/.2/.3 for text [paper]; fields .5/0/.5
    L₁                  the KL beside a teacher that has a covariance; it weighs λ_mean + λ_var (our choice). Beside a teacher without
                        noise ("none") W₂ with λ_var = 0, as the authors' code has it: the KL would make σ the size of the distillation
                        error, which is nobody's uncertainty. So σ is learned from the task alone. `loss` chooses the other.
    fields              a first share of the training matches alone (our choice)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.types import Array, Backbone, Batch, Case, Dataset, Ensemble, Method

if TYPE_CHECKING:
    from torch import Tensor

    from engine.methods._student import Student
    from engine.methods._teacher import Teacher

ROWS = 512
"""Paths that share a forward: a fixed number, never taken from the machine."""
LAMBDAS = {
    "softmax": (0.8, 0.0, 0.2),
    "images": (0.4, 0.2, 0.4),
    "text": (0.5, 0.2, 0.3),
    "table": (0.4, 0.2, 0.4),
    "fields": (0.5, 0.0, 0.5),
}
"""(mean, var, task) by kind of teacher; the vision values for tables are our choice."""


class _Shared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    noise: Literal["learned", "constant", "none"] = Field(default="learned", description="σ by input, one σ a step, or none (controls)")
    matching: bool = Field(default=True, description="match the teacher's transitions (L₁); off: the task alone (control)")
    loss: Literal["kl", "w2"] | None = Field(
        default=None, description="how transitions are matched: KL, or the parts of W₂²; default: KL beside a teacher with noise, else W₂"
    )
    lambda_mean: float | None = Field(default=None, ge=0, le=1, description="weight of the means; default: by the kind of teacher")
    lambda_var: float | None = Field(default=None, ge=0, le=1, description="weight of the variances")
    lambda_task: float | None = Field(default=None, ge=0, le=1, description="weight of the task's loss")
    epochs: int = Field(default=40, ge=1, le=1000, description="passes over the fit data")
    lr: float = Field(default=1e-3, gt=0, le=1, description="largest learning rate (Adam, cosine to 1e-5)")
    patience: int = Field(default=0, ge=0, description="stop after so many epochs without a better validation; 0: never")

    @property
    def matched_by(self) -> str:
        """The form of L₁: what was asked for, else by whether the teacher has noise."""
        return self.loss or ("w2" if getattr(self, "covariance", "none") == "none" else "kl")

    def weights(self, kind: str) -> tuple[float, float, float]:
        """λ of means, variances and task; L₁ off leaves the task alone."""
        default = LAMBDAS[kind]
        given = (self.lambda_mean, self.lambda_var, self.lambda_task)
        mean, var, task = (d if g is None else g for g, d in zip(given, default, strict=True))
        return (mean, var, task) if self.matching else (0.0, 0.0, 1.0)


class Director(Method, Classifies):
    """One stochastic transition in place of the whole stack."""

    key = "director"
    title = "DIRECTOR"
    reference = "arXiv 2602.08920"
    needs = frozenset({"training"})

    class ClassParams(_Shared):
        """How a classifier's student is distilled."""

        covariance: Literal["none", "kernel", "kep_svgp", "sgpa"] = Field(
            default="none", description="the teacher's noise: none, kernel, or that of a Gaussian-process teacher trained first"
        )
        teacher: dict[str, Any] = Field(default_factory=dict, description="parameters of a Gaussian-process teacher")
        batch: int = Field(default=128, ge=1, le=65536, description="examples a step")

    class Params(_Shared):
        """How a field model's student is distilled, and how its last step is drawn."""

        covariance: Literal["none"] = Field(default="none", description="the teacher's noise")
        alone: float = Field(default=0.2, ge=0, le=0.9, description="first share of the training that matches the teacher alone")
        mlp_ratio: float = Field(default=1.0, gt=0, le=8, description="width of the transition's MLP over its own")
        last: Literal["low_rank", "none"] = Field(default="low_rank", description="noise of the last step: shared modes, or none")
        everywhere: bool = Field(default=True, description="shared modes at every step: independent noise by token shows as patches")
        rank: int = Field(default=8, ge=1, le=64, description="number of shared modes")
        paths: int = Field(default=2, ge=2, le=8, description="paths a case in training, for the fair CRPS")
        energy: float = Field(default=0.0, ge=0, le=1, description="share of the fair energy score in the task's loss")
        patches: float = Field(
            default=0.1, ge=0, le=1, description="weight of the fair CRPS of what repeats from patch to patch: without it patches show"
        )
        batch: int = Field(default=8, ge=1, le=4096, description="cases a step")

    # ---- classification

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
        """The student's tensors. Validation is the calibration split's NLL of the mean of 4 paths."""
        import torch
        import torch.nn.functional as F

        from engine.methods._forwards import known
        from engine.methods._student import matching
        from engine.methods._train import train

        fit = known(fit, "fit split")
        calibrate = None if calibrate is None else known(calibrate, "calibration split")
        teacher = self._teacher(classifier, fit, calibrate, params, seed, report, folder)
        student = self._student(classifier, params, seed)
        kind = "softmax" if params.covariance in ("none", "kernel") else classifier.kind
        mean, var, task = params.weights(kind)

        def loss_of(at: np.ndarray, step: int) -> "Tensor":
            del step
            part = fit.rows(at.tolist())
            x, context = student.start(part.inputs)
            eps = [torch.randn_like(x) for _ in range(student.transition.steps)]
            loss = task * F.cross_entropy(student.tail(student.rollout(x, context, eps)[-1], context), part.labels)
            if mean + var > 0:
                loss = loss + matching(student, teacher.path(part.inputs), params.matched_by, mean, var)
            return loss

        def validate() -> float:
            assert calibrate is not None
            p = self._draw(student, calibrate, 4, seed).mean(0)
            at = calibrate.labels.numpy()
            return float(-np.log(np.maximum(p[np.arange(len(at)), at], 1e-12)).mean())

        train(
            student, loss_of, len(fit), epochs=params.epochs, batch=params.batch, lr=params.lr, seed=seed, patience=params.patience,
            validate=validate if calibrate is not None else None, report=report, what=f"distilling ({self._words(params)})",
            folder=folder,
        )  # fmt: skip
        return student.trained()

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """Softmax of each of `members` paths, `(member, case, class)`; one suffices without noise, and is repeated."""
        del nu
        return self._draw(self._student(classifier, params, 0).restore(state), examples, members, seed)

    def parameters(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> int:
        """The student's alone: the frozen stack is not needed any more."""
        del classifier
        return sum(t.numel() for t in state.values())

    def paths(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, members: int, seed: int
    ) -> dict[str, Array]:
        """How the paths spread (definitions: `engine.runs.classification`): step_spread, step_error, step_sigma,
        step_sigma_variation `(step,)`, step_correlation `(step, step)`.
        """
        from engine.methods._paths import diagnose

        return diagnose(self._student(classifier, params, 0).restore(state), classifier.stack(), examples, members, seed)

    def _student(self, classifier: Classifier, params: Any, seed: int) -> "Student":
        import torch

        from engine.methods._student import Student
        from engine.methods._transition import Transition

        stack = classifier.stack()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            transition = Transition(stack.width, stack.num_heads, len(stack.steps), noise=params.noise)
        return Student(transition, classifier.module, classifier.stack, train_ends=True)

    def _teacher(
        self,
        classifier: Classifier,
        fit: Examples,
        calibrate: Examples | None,
        params: Any,
        seed: int,
        report: OnProgress,
        folder: Path | None,
    ) -> "Teacher":
        from engine.methods._teacher import Teacher, kernel_teacher, sampled_nll

        if params.covariance == "none":
            return Teacher(classifier.stack())
        if params.covariance == "kernel":
            some = [b.inputs for b in fit.rows(slice(0, 1024)).batches(128)]
            nll = None if calibrate is None else (lambda t: sampled_nll(t, calibrate))
            return kernel_teacher(classifier.stack(), some, nll)
        from engine.registry import get

        process = get("methods", params.covariance)
        own = process.ClassParams(**params.teacher)
        state = process.learn(
            classifier, fit, calibrate, params=own, seed=seed, report=report, folder=folder / "teacher" if folder else None
        )
        return Teacher(classifier.stack(process.rebuild(classifier, state)), "exact")

    def _draw(self, student: "Student", examples: Examples, members: int, seed: int) -> Array:
        import torch

        from engine.methods._student import keyed_noise

        # without noise all paths are one: drawn once, and repeated
        drawn = 1 if student.transition.noise == "none" else members
        at_once = max(1, ROWS // drawn)
        out = []
        with torch.no_grad():
            for part in examples.batches(at_once):
                x, context = student.start(part.inputs)
                ids = [i for i in part.ids for _ in range(drawn)]
                rows = torch.arange(len(part)).repeat_interleave(drawn)
                steps = student.transition.steps
                eps = None
                if student.transition.noise != "none":
                    eps = keyed_noise(steps, x.shape[1:], seed, list(range(drawn)) * len(part), ids)
                wide = _repeat(context, rows)
                p = student.tail(student.rollout(x[rows], wide, eps)[-1], wide).softmax(-1)
                out.append(p.reshape(len(part), drawn, -1).transpose(0, 1).numpy())
        p = np.concatenate(out, axis=1).astype(np.float32)
        return np.repeat(p, members, axis=0) if drawn == 1 and members > 1 else p

    @staticmethod
    def _words(params: Any) -> str:
        return {"learned": "σ by input", "constant": "one σ a step", "none": "σ = 0"}[params.noise] + (
            "" if params.matching else ", no matching"
        )

    # ---- fields

    def fit(
        self,
        backbone: Backbone,
        dataset: Dataset,
        params: Any,
        *,
        cases: Sequence[Case] = (),
        seed: int = 0,
        report: OnProgress = lambda done, total, message: None,
        folder: Path | None = None,
        state: Path | None = None,
    ) -> Any:
        """The student, from a file that holds one or distilled on the fit split's `cases`."""
        from engine.methods._fields import distil, read_student

        if state is not None:
            return read_student(state, backbone, params)
        return distil(backbone, dataset, cases, params, params.weights("fields"), seed=seed, report=report, folder=folder)

    def predict(
        self, backbone: Backbone, batch: Batch, *, state: Any, params: Any, nu: int, members: int, seed: int, shared: dict[str, Any]
    ) -> Ensemble:
        """One member a path, case by case; x₀ is computed once."""
        from engine.methods._fields import members_of

        del params, nu
        return Ensemble(members_of(state, backbone, batch, members, seed, shared))


def _repeat(context: Any, rows: "Tensor") -> Any:
    """The context of each row's case: whatever tensor of it has the case first."""
    import torch

    if isinstance(context, torch.Tensor):
        return context[rows] if context.dim() and len(context) == int(rows.max()) + 1 else context
    if isinstance(context, dict):
        return {name: _repeat(value, rows) for name, value in context.items()}
    if isinstance(context, tuple):
        return tuple(_repeat(value, rows) for value in context)
    return context


ENTRIES = (Director(),)
