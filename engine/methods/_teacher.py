"""The frozen stack as DIRECTOR's teacher: Gaussian transitions q_t(x_{t+1} | x_t) = N(z_t + m_{t+1}, Σ_{t+1}), diagonal Σ.

Σ is nothing (`none`: the authors' setting for a plain softmax teacher), a kernel covariance (`kernel`), or the exact one of an
attention that is a Gaussian process of its own (`exact`: KEP-SVGP, SGPA). Where there is noise, the path that a student is shown is a
sampled one, so that it learns the transition where the teacher's own noise leads (our choice; the source only says teacher-forced).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.errors import AttentionError
from engine.kernels.kernel_covariance import attention_variance, distance_from_keys
from engine.labelled import Examples
from engine.stack import Stack

Covariance = Literal["none", "kernel", "exact"]
TAUS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""Scales among which the kernel covariance's is chosen, by NLL on the calibration split."""


def mask_of(context: Any) -> Tensor | None:
    """The tokens that count, `(case, token)`, in what `Stack.embed` returned beside x₀; None: all."""
    found = context.get("mask") if isinstance(context, dict) else context
    return found if isinstance(found, Tensor) and found.dtype == torch.bool and found.dim() == 2 else None


@dataclass(frozen=True)
class Teacher:
    """A stack and its noise. `value_variance`: by step, `(head, d)`, for the kernel covariance; `tau` its scale."""

    stack: Stack
    covariance: Covariance = "none"
    tau: float = 1.0
    value_variance: tuple[Tensor, ...] = ()

    @property
    def noisy(self) -> bool:
        """Its transitions have a variance."""
        return self.covariance == "exact" or (self.covariance == "kernel" and self.tau > 0)

    @torch.no_grad()
    def path(self, inputs: Any, start: tuple[Tensor, Any] | None = None) -> tuple[list[Tensor], list[Tensor], list[Tensor], Any]:
        """States x₀ … x_T, and for t = 1 … T the mean and the variance of x_t given x_{t−1}; the context. Noise, where there is
        any, from torch's global generator. `start`: x₀ and context, where they are known.
        """
        x, context = self.stack.embed(inputs) if start is None else start
        states, means, variances = [x], [], []
        for t, step in enumerate(self.stack.steps):
            z = step.between(x, context)
            if self.covariance == "exact":
                if step.moments is None:  # the layers of a KEP-k/L teacher that were left alone
                    mean, variance = z + step.attend(z, context), torch.zeros_like(z)
                else:
                    m, variance = step.moments(z, context)
                    mean = z + m
            else:
                mean = z + step.attend(z, context)
                variance = self._kernel(t, z, context) if self.noisy else torch.zeros_like(mean)
            x = mean + variance.sqrt() * torch.randn_like(mean) if self.noisy else mean
            states.append(x)
            means.append(mean)
            variances.append(variance)
        return states, means, variances, context

    def _kernel(self, t: int, z: Tensor, context: Any) -> Tensor:
        step = self.stack.steps[t]
        assert step.heads is not None and step.out_weight is not None
        q, k, _ = step.heads(z, context)
        r2 = distance_from_keys(q, k, mask_of(context))
        return self.tau**2 * attention_variance(r2, self.value_variance[t], step.out_weight)


def kernel_teacher(stack: Stack, inputs: Sequence[Any], nll: Callable[[Teacher], float] | None) -> Teacher:
    """A teacher with kernel covariance: the values' variance from `inputs` (batches of the fit split), τ by `nll` (least; the
    smallest of equals), τ = .1 where no labels are there to choose by. Raises AttentionError where q, k, v cannot be had.
    """
    if any(step.heads is None or step.out_weight is None for step in stack.steps):
        raise AttentionError(
            "kernel covariance",
            found="a model whose queries, keys and values cannot be read step by step",
            expected="a backbone whose stack declares its heads",
            remedy="Use covariance 'none'.",
        )
    sums: list[Any] = [0.0] * len(stack.steps)
    squares: list[Any] = [0.0] * len(stack.steps)
    counts = [0.0] * len(stack.steps)
    with torch.no_grad():
        for batch in inputs:
            x, context = stack.embed(batch)
            mask = mask_of(context)
            weight = torch.ones(x.shape[:2]) if mask is None else mask.float()
            for t, step in enumerate(stack.steps):
                z = step.between(x, context)
                assert step.heads is not None
                v = step.heads(z, context)[2].double() * weight[:, None, :, None]
                sums[t], squares[t] = sums[t] + v.sum((0, 2)), squares[t] + v.square().sum((0, 2))
                counts[t] += float(weight.sum())
                x = z + step.attend(z, context)
    variance = tuple((q / n - (s / n) ** 2).clamp(min=0).float() for s, q, n in zip(sums, squares, counts, strict=True))
    teacher = Teacher(stack, "kernel", 0.1, variance)
    if nll is None:
        return teacher
    values = []
    for tau in TAUS:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            values.append(nll(replace(teacher, tau=tau)))
    return replace(teacher, tau=TAUS[min(range(len(TAUS)), key=values.__getitem__)])


def sampled_nll(teacher: Teacher, examples: Examples, paths: int = 8) -> float:
    """NLL of the mean softmax over the noisy teacher's own paths: what τ is chosen by."""
    total = 0.0
    for part in examples.batches(128):
        with torch.no_grad():
            drawn = []
            for _ in range(paths if teacher.noisy else 1):
                states, _, _, context = teacher.path(part.inputs)
                drawn.append(teacher.stack.tail(states[-1], context).softmax(-1))
        total += float(F.nll_loss(torch.stack(drawn).mean(0).clamp(min=1e-12).log(), part.labels, reduction="sum"))
    return total / len(examples)
