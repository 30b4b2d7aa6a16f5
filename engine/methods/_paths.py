"""What the paths of a student look like: how far they spread at each step, how that hangs together, how well the teacher is matched."""

import numpy as np
import torch

from engine.labelled import Examples
from engine.methods._student import Student, keyed_noise
from engine.methods._teacher import Teacher, mask_of
from engine.stack import Stack
from engine.types import Array

EXAMPLES = 256
"""Examples that are looked at: enough for two digits, and bounded memory."""


@torch.no_grad()
def diagnose(student: Student, teacher: Stack, examples: Examples, members: int, seed: int) -> dict[str, Array]:
    """By step t = 1 … T, over at most 256 examples; padding is left out.

    step_spread: root mean square over examples, tokens and channels of the sd over paths of x_t, over the sd of x_t over examples and
    tokens. step_correlation: Σ of the products of the paths' deviations from their mean at two steps, normalised. step_error: root mean
    square of μ − m over that of m − x, teacher-forced. step_sigma: mean σ there. step_sigma_variation: sd over examples of an
    example's mean σ, over their mean. NaN where σ = 0 leaves nothing to correlate.
    """
    steps, members = student.transition.steps, max(2, members)
    products, spread2, varied, count = np.zeros((steps, steps)), np.zeros(steps), np.zeros(steps), 0.0
    error, moved, sigmas = np.zeros(steps), np.zeros(steps), []
    sums = np.zeros((2, steps))
    for part in examples.rows(slice(0, EXAMPLES)).batches(32):
        x, context = student.start(part.inputs)
        mask = mask_of(context)
        weight = torch.ones(x.shape[:2]) if mask is None else mask.float()
        states = []
        for member in range(members):
            eps = None if student.transition.noise == "none" else keyed_noise(steps, x.shape[1:], seed, [member] * len(part), part.ids)
            states.append(torch.stack(student.rollout(x, context, eps, keep=True)[1:]))
        drawn = torch.stack(states) * weight[..., None]  # member, step, case, token, width
        deviation = drawn - drawn.mean(0)
        flat = deviation.flatten(2).transpose(0, 1).reshape(steps, -1).double()
        products += (flat @ flat.T).numpy()
        spread2 += (deviation.square().sum((0, 2, 3, 4)) / (members - 1)).double().numpy()
        elements = float(weight.sum()) * x.shape[-1]
        mean = drawn.mean(0).double()
        sums += np.stack([mean.sum((1, 2, 3)).numpy(), mean.square().sum((1, 2, 3)).numpy()])
        count += elements
        path, means, _, context = Teacher(teacher).path(part.inputs)
        by_step = []
        for t in range(steps):
            mu, features = student.transition(path[t], torch.full((len(part),), t), mask)
            sigma = student.transition.spread(features, torch.full((len(part),), t))
            error[t] += float(((mu - means[t]).square() * weight[..., None]).sum())
            moved[t] += float(((means[t] - path[t]).square() * weight[..., None]).sum())
            by_step.append((sigma * weight[..., None]).sum((1, 2)) / (weight.sum(1) * x.shape[-1]))
        sigmas.append(torch.stack(by_step, 1))
    varied = sums[1] / count - (sums[0] / count) ** 2
    sigma = torch.cat(sigmas).double().numpy()
    scale = np.sqrt(np.diag(products))
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "step_spread": np.sqrt(spread2 / count / varied),
            "step_correlation": products / np.outer(scale, scale),
            "step_error": np.sqrt(error / moved),
            "step_sigma": sigma.mean(0),
            "step_sigma_variation": sigma.std(0) / sigma.mean(0),
        }
