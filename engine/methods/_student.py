"""DIRECTOR's student in use: the shared transition between a start and an end of the teacher's, its paths and its losses.

    L₁ = mean over t of KL(q_t ‖ p_θ(· | x_t, t)), teacher-forced;  or  λ_mean MSE(μ, m) + λ_var MSE(σ, s)  (W₂)
    L₂ = the task's loss on sampled rollouts, back through the sampling

For classifiers embedding, position and tail are copies that are trained on; for fields they stay the frozen model's own.
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.gaussian import kl_diagonal, w2_parts
from engine.kernels.noise import generator
from engine.methods._teacher import mask_of
from engine.methods._transition import Transition
from engine.stack import Stack

STREAM = 7
"""Of the keyed noise: paths share no draw with attention sampling of the same seed."""


class Student(nn.Module):
    """`transition` and, where they are trained, `ends`: the teacher's module without what lies between embedding and tail."""

    def __init__(self, transition: Transition, module: nn.Module, stack_of: Callable[[nn.Module], Stack], *, train_ends: bool) -> None:
        super().__init__()
        self.transition = transition
        self.ends: nn.Module | None = None
        self._stack = stack_of(module)
        self._frozen = (module,)  # in a tuple, so that its parameters are not the student's
        if train_ends:
            self.ends = copy.deepcopy(module).train().requires_grad_(True)
            self._stack = stack_of(self.ends)
            _keep_only(self.ends, (*self._stack.embedding, *self._stack.ending))

    @property
    def frozen(self) -> nn.Module:
        """The teacher's module."""
        return self._frozen[0]

    def start(self, inputs: Any) -> tuple[Tensor, Any]:
        """x₀ and its context."""
        return self._stack.embed(inputs)

    def tail(self, x: Tensor, context: Any) -> Tensor:
        """The task's output."""
        return self._stack.tail(x, context)

    def rollout(self, x: Tensor, context: Any, eps: Sequence[Tensor] | None, keep: bool = False) -> list[Tensor]:
        """One path from x₀: x_T alone in a list, or all of x₀ … x_T with `keep`. `eps` by step, standard normal; None: σ = 0."""
        states, mask = [x], mask_of(context)
        for t in range(self.transition.steps):
            x = self.transition.draw(x, t, None if eps is None else eps[t], mask)
            states = [*states, x] if keep else [x]
        return states

    def trained(self) -> dict[str, Tensor]:
        """What a state file holds: the parameters that inference needs and that are not the frozen model's own."""
        return {n: p.detach().clone() for n, p in self.named_parameters() if p.numel()}

    def restore(self, tensors: "dict[str, Tensor] | Any") -> "Student":
        """Load what `trained` gave; in eval mode and frozen from here on."""
        own = {n: p for n, p in self.named_parameters() if p.numel()}
        wrong = sorted(set(own) ^ set(tensors)) + sorted(n for n in set(own) & set(tensors) if own[n].shape != tensors[n].shape)
        if wrong:
            raise ValueError(f"tensors that are missing, strange or of another shape: {', '.join(wrong[:5])}")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(tensors[name])
        return self.eval().requires_grad_(False)


def matching(student: Student, path: tuple[list[Tensor], list[Tensor], list[Tensor], Any], loss: str, mean: float, var: float) -> Tensor:
    """L₁ over all steps of a teacher's path, weighted: (λ_mean + λ_var) · KL, or λ_mean and λ_var times the parts of W₂²."""
    states, means, variances, context = path
    steps, rows = len(means), len(means[0])
    x, m, s2 = torch.cat(states[:-1]), torch.cat(means), torch.cat(variances)
    t = torch.arange(steps, device=x.device).repeat_interleave(rows)
    mask = mask_of(context)
    mu, features = student.transition(x, t, None if mask is None else mask.repeat(steps, 1))
    if mask is not None:  # padding carries no information, and is not to be learned
        counts = mask.repeat(steps, 1)
        mu, m, s2, features = mu[counts][None], m[counts][None], s2[counts][None], features[counts][None]
        t = t.repeat_interleave(mask.sum(1).repeat(steps))
        sigma = student.transition.spread(features.transpose(0, 1), t).transpose(0, 1)
    else:
        sigma = student.transition.spread(features, t)
    if student.transition.noise == "none":  # without noise the KL is the MSE over a constant; its scale would drown L₂
        return (mean + var) * ((mu - m) ** 2).mean()
    if loss == "kl":
        return (mean + var) * kl_diagonal(m, s2, mu, sigma**2)
    of_means, of_sds = w2_parts(m, s2.sqrt(), mu, sigma)
    return mean * of_means + var * of_sds


def keyed_noise(
    steps: int, shape: Sequence[int], seed: int, members: Iterable[int], cases: Iterable[int], device: Any = "cpu"
) -> list[Tensor]:
    """Standard normal numbers by step, each `(row, token, width)`: row i is keyed by (seed, members[i], cases[i]) alone."""
    rows = [torch.randn((steps, *shape), generator=generator(seed, m, c, stream=STREAM)) for m, c in zip(members, cases, strict=True)]
    return list(torch.stack(rows, 1).to(device))


def _keep_only(module: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Empty every parameter that is not named, and make named buffers (fixed positions) parameters."""
    for name, parameter in module.named_parameters():
        if not name.startswith(prefixes):
            parameter.data = torch.empty(0)
            parameter.requires_grad_(False)
    for name, buffer in list(module.named_buffers()):
        if name.startswith(prefixes) and buffer.is_floating_point():
            owner = module.get_submodule(name.rpartition(".")[0])
            leaf = name.rpartition(".")[2]
            delattr(owner, leaf)
            owner.register_parameter(leaf, nn.Parameter(buffer.clone()))
