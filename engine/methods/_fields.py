"""DIRECTOR on a model of fields: the transition between the frozen model's own embedding and tail, trained by fair scores.

    L = λ_mean · L₁ + λ_task · [ (1 − e) fair CRPS + e fair energy score + p fair CRPS of the patches' common pattern ]

in normalised units, area weighted, outputs weighted. Never a squared error of single paths: its optimum is σ = 0. One path is one
member. The pattern is our choice: noise that all tokens share moves every patch of the tail's output alike, which the CRPS of single
points hardly sees and a spectrum shows as a peak at the patches' wavenumber. It is the mean over the patches along a parallel (a
meridian), place by place within the patch, in units of its own observed sd: a linear function of the field, so its CRPS is proper.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.errors import CheckpointError, SpecError
from engine.kernels.area import cell_area
from engine.kernels.fair_losses import fair_crps, fair_energy
from engine.labelled import OnProgress
from engine.methods._student import Student, keyed_noise, matching
from engine.methods._teacher import Teacher
from engine.methods._train import train
from engine.methods._transition import Transition
from engine.types import Array, Backbone, Batch, Case, Dataset

ROWS = 8
"""Members that share a forward: fixed, never taken from the machine."""
Drawn = tuple[Tensor, Tensor, Tensor]


def build(backbone: Any, params: Any, seed: int = 0) -> Student:
    """An untrained student for a backbone that declares its stack. Raises SpecError where it does not."""
    if not hasattr(backbone, "stack"):
        raise SpecError(
            "method 'director'",
            found=f"backbone {backbone.key}",
            expected="a backbone that declares its stack",
            remedy="Use ClimaX, or another method.",
        )
    stack = backbone.stack()
    steps = len(stack.steps)
    shared = tuple(range(steps - 1)) if params.everywhere else ()
    shared += (steps - 1,) if params.last == "low_rank" else ()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transition = Transition(
            stack.width, stack.num_heads, steps, noise=params.noise, rank=params.rank, low_rank=shared,
            silent=(steps - 1,) if params.last == "none" else (), mlp_ratio=params.mlp_ratio,
        )  # fmt: skip
    return Student(transition, backbone.module, backbone.stack, train_ends=False)


def loss_function(
    student: Student, teacher: Teacher, params: Any, weights: tuple[float, float, float], area: Tensor, outputs: Tensor
) -> Callable[..., Tensor]:
    """`loss(x, lead_times, target)`: normalised inputs, hours/100, and normalised outputs `(case, variable, H, W)`.

    `area` `(H, 1)` with mean 1; `outputs` `(variable,)` with sum 1. `alone=True` matches the teacher and leaves the task out.
    """
    mean, var, task = weights
    patch = int(getattr(student.frozen, "patch", 1))

    def loss(x: Tensor, lead_times: Tensor, target: Tensor, alone: bool = False) -> Tensor:
        inputs = {"x": x, "lead_times": lead_times}
        with torch.no_grad():
            start, context = student.start(inputs)
        if alone and mean + var > 0:
            return matching(student, teacher.path(inputs, (start, context)), params.matched_by, mean, var).float()
        size = params.paths if params.noise != "none" else 1
        rows = start.repeat(size, 1, 1)
        last = student.rollout(rows, context, [torch.randn_like(rows) for _ in range(student.transition.steps)])[-1]
        members = student.tail(last, context).float().unflatten(0, (size, -1))
        if size == 1:  # the control without noise: what the CRPS of one member is
            scores = ((members[0] - target).abs() * area).mean((-2, -1))
        else:
            scores = (1 - params.energy) * (fair_crps(members, target) * area).mean((-2, -1))
            scores = scores + (params.energy * fair_energy(members, target, area) if params.energy else 0.0)
            scores = scores + (params.patches * of_patches(members, target, patch) if params.patches and patch > 1 else 0.0)
        total = task * (scores * outputs).sum(1).mean()
        if mean + var > 0:
            path = teacher.path(inputs, (start, context))
            total = total + matching(student, path, params.matched_by, mean, var).float()
        return total

    return loss


def of_patches(members: Tensor, target: Tensor, patch: int) -> Tensor:
    """Fair CRPS of what repeats from patch to patch along parallels and along meridians, `(case, variable)`, in units of its observed sd
    over the batch.
    """

    def pattern(x: Tensor, axis: int) -> Tensor:
        folded = x.unflatten(axis, (-1, patch)).mean(axis - 1)
        return folded - folded.mean(axis, keepdim=True)

    scores = []
    for axis in (-1, -2):
        observed = pattern(target, axis)
        sd = observed.square().mean((0, 2, 3), keepdim=True).sqrt().clamp(min=1e-4)
        scores.append(fair_crps(pattern(members, axis) / sd, observed / sd).mean((-2, -1)))
    return (scores[0] + scores[1]) / 2


def distil(
    backbone: Any,
    dataset: Dataset,
    cases: Sequence[Case],
    params: Any,
    weights: tuple[float, float, float],
    *,
    seed: int,
    report: OnProgress,
    folder: Path | None,
) -> Student:
    """A student trained on the fit split's cases; the last tenth of them, by time, is what epochs are compared on."""
    held = max(2, len(cases) // 10)
    learned, kept = cases[:-held], cases[-held:]
    if len(learned) < 2 * params.batch:
        raise SpecError(
            "fit data",
            found=f"{len(cases)} cases",
            expected=f"at least {2 * params.batch + held}",
            remedy="Bring a longer period to distil on.",
        )
    student, teacher = build(backbone, params, seed), Teacher(backbone.stack())
    area = torch.from_numpy(_area(dataset)).float()
    count = len(backbone.out_variables)
    loss = loss_function(student, teacher, params, weights, area, torch.full((count,), 1 / count))

    first = params.alone * params.epochs * -(-len(learned) // params.batch)

    def of(some: Sequence[Case], step: int | None = None) -> Tensor:
        x, lead, y = normalised(backbone, dataset, some)
        return loss(x, lead, y, alone=step is not None and step < first)

    def validate() -> float:
        return float(np.mean([float(of(kept[i : i + params.batch])) for i in range(0, len(kept), params.batch)]))

    train(
        student.transition, lambda at, step: of([learned[i] for i in at], step), len(learned), epochs=params.epochs, batch=params.batch,
        lr=params.lr, seed=seed, patience=params.patience, validate=validate, report=report, what="distilling the fields' student",
        folder=folder,
    )  # fmt: skip
    return student.eval().requires_grad_(False)


def normalised(backbone: Backbone, dataset: Dataset, cases: Sequence[Case]) -> Drawn:
    """Normalised inputs, lead times and normalised targets of cases; the border's own mean and sd, read off by its response to zero."""
    batch = backbone.prepare(dataset, cases)
    zero = backbone.physical(torch.zeros(batch.observed.shape), batch)
    target = (batch.observed - zero) / backbone.output_sd[None, :, None, None]
    if not np.isfinite(target).all():
        raise SpecError(
            "fit data",
            found=f"missing observations at {batch.cases[0].valid_time} or in the cases after it",
            expected="complete fields to learn from",
            remedy="Leave those times out of the fit files.",
        )
    lead = torch.tensor([c.lead_hours / 100 for c in cases], dtype=torch.float32)
    return batch.inputs, lead, torch.from_numpy(target.astype(np.float32))


def members_of(student: Student, backbone: Any, batch: Batch, members: int, seed: int, shared: dict[str, Any]) -> Array:
    """`(member, case, variable, H, W)` in physical units; noise keyed by (seed, member, case), whatever the batch."""
    device = next(student.transition.parameters()).device
    out = []
    with torch.no_grad():
        for i, case in enumerate(batch.cases):
            name = f"start of row {i}"
            if name not in shared:
                lead = torch.tensor([case.lead_hours / 100], device=device)
                shared[name] = student.start({"x": batch.inputs[i : i + 1].to(device), "lead_times": lead})
            x, context = shared[name]
            parts = []
            for begin in range(0, members, ROWS):
                some = range(begin, min(members, begin + ROWS))
                eps = None
                if student.transition.noise != "none":
                    eps = keyed_noise(student.transition.steps, x.shape[1:], seed, some, [case.id] * len(some), device)
                parts.append(student.tail(student.rollout(x.expand(len(some), -1, -1), context, eps)[-1], context))
            one = Batch(batch.inputs[i : i + 1], batch.observed[i : i + 1], batch.cases[i : i + 1], batch.day_of_year[i : i + 1])
            out.append(backbone.physical(torch.cat(parts), one))
    return np.stack(out, axis=1)


def write_student(path: Path, student: Student, backbone: Backbone, params: Any, *, half: bool = False, **facts: Any) -> Path:
    """The transition as safetensors, with the parameters that it was distilled with and the revision of its frozen model.

    `half` rounds the weights to 16 bits; they are read as float32.
    """
    from safetensors.torch import save_file

    record = {"method": "director", "params": params.model_dump(mode="json"), "revision": backbone.revision, **facts}
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {n: (t.half() if half else t).contiguous() for n, t in student.trained().items()}
    save_file(tensors, path, metadata={"nuscope": json.dumps(record, sort_keys=True)})
    return path


def read_student(path: Path, backbone: Backbone, params: Any) -> Student:
    """A student for this very backbone. Raises CheckpointError for another file, another model's student, or other tensors."""
    from safetensors import SafetensorError, safe_open

    what = f"student {path.name}"
    try:
        with safe_open(path, "pt") as file:
            facts = file.metadata() or {}
            record = json.loads(facts.get("nuscope", "{}"))
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118  (not a dictionary)
    except (SafetensorError, OSError, ValueError) as fault:
        raise CheckpointError(
            what, found=str(fault)[:160], expected="a safetensors file that DIRECTOR wrote", remedy="Distil the student again."
        ) from fault
    kind = "a classifier's state, which is named by --state" if "nuscope_state" in facts else "a file of another kind"
    _refuse_strangers(what, record, backbone, kind)
    try:
        kept = type(params)(**record["params"])
        return build(backbone, kept).restore(tensors)
    except (ValueError, KeyError) as fault:
        raise CheckpointError(
            what, found=str(fault)[:160], expected="the tensors and parameters of one student", remedy="Distil the student again."
        ) from fault


def _refuse_strangers(what: str, record: Mapping[str, Any], backbone: Backbone, kind: str) -> None:
    if record.get("method") != "director":
        raise CheckpointError(what, found=kind, expected="a student of DIRECTOR", remedy="Name the student's file.")
    if record.get("revision") != backbone.revision:
        raise CheckpointError(
            what,
            found=f"a student of another model (revision {str(record.get('revision'))[:12]})",
            expected=f"a student of this checkpoint (revision {backbone.revision[:12]})",
            remedy="Distil a student of this model: it works with the weights that it was distilled from alone.",
        )


def _area(dataset: Dataset) -> np.ndarray:
    area = cell_area(dataset.fields["latitude"].values)
    return (area / area.mean())[:, None]
