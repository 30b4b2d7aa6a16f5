"""One training loop for everything that learns on labelled examples or fields: Adam, warm-up and cosine, validation, resumable.

Reproducible: the order of examples in an epoch is a function of (seed, epoch), and the global generator, from which dropout and
reparameterised noise draw, is seeded by (seed, step) inside the loop and put back afterwards. A resumed training therefore gives the
weights of an undisturbed one, bit for bit on the same machine and thread count. A checkpoint is taken up only by a training of the same
settings from the same initial weights; which data it saw is told by its folder.
"""

import hashlib
import logging
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.errors import RunError
from engine.kernels.noise import key64
from engine.labelled import OnProgress
from engine.methods._forwards import known, put

CHECKPOINT = "training.pt"
log = logging.getLogger("engine.methods")


def train(
    module: nn.Module,
    loss_of: Callable[[np.ndarray, int], Tensor],
    count: int,
    *,
    epochs: int,
    batch: int,
    lr: float,
    seed: int,
    validate: Callable[[], float] | None = None,
    patience: int = 0,
    warmup: float = 0.05,
    lr_end: float = 1e-5,
    weight_decay: float = 0.0,
    clip: float = 1.0,
    report: OnProgress = lambda done, total, message: None,
    what: str = "training",
    folder: Path | None = None,
) -> dict[str, Any]:
    """Train the parameters of `module` that ask for gradients; leaves it with the weights of the best validation (else the last).

    `loss_of(positions, step)` gives the loss of the examples at these positions of `count`. The learning rate rises over the first
    `warmup` share of the steps and falls by a cosine to `lr_end`. `validate()` is lower for better and is asked after each epoch, in
    eval mode without gradients; with `patience` training stops after so many epochs without a better one. With a `folder` the state is
    written after each epoch, and found again. Returns `epochs`, `best_epoch`, `validation` and `loss` by epoch.
    Raises RunError where a loss, a gradient or a validation is not finite.
    """
    if count < 1:
        raise ValueError(f"{what} on {count} examples")
    wanted = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(wanted, lr=lr, weight_decay=weight_decay)
    a_epoch = max(1, math.ceil(count / batch))
    total, warm = epochs * a_epoch, max(1, round(epochs * a_epoch * warmup))

    least = min(1.0, lr_end / lr)  # a rate below lr_end stays as it is

    def rate(step: int) -> float:
        share = 0.5 * (1 + math.cos(math.pi * min(1.0, step / total)))
        return min(1.0, (step + 1) / warm) * (least + (1 - least) * share)

    state: dict[str, Any] = {"epoch": 0, "best": float("inf"), "best_epoch": 0, "validation": [], "loss": []}
    kept = _weights(module)
    path = folder / CHECKPOINT if folder else None
    of = [seed, epochs, batch, count, lr, patience, warmup, lr_end, weight_decay, clip, validate is not None, _digest(kept)]
    saved = _read(path) if path else None
    if saved is not None and saved["of"] == of:
        state, kept = saved["state"], saved["kept"]
        _restore(module, saved["now"])
        optimiser.load_state_dict(saved["optimiser"])
    report(state["epoch"] * a_epoch, total, what)
    with torch.random.fork_rng(devices=sorted({p.device.index for p in wanted if p.device.type == "cuda"})):
        for epoch in range(state["epoch"], epochs):
            if patience and epoch - state["best_epoch"] >= patience:  # asked before an epoch, so that a resumed training stops too
                break
            module.train()
            order = np.random.default_rng([seed, epoch]).permutation(count)
            losses = []
            for i in range(a_epoch):
                step = epoch * a_epoch + i
                torch.manual_seed(key64(seed, step, stream=1))
                for group in optimiser.param_groups:
                    group["lr"] = lr * rate(step)
                loss = loss_of(order[i * batch : (i + 1) * batch], step)
                _refuse_not_finite(loss.detach(), what, "a loss", step)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                _refuse_not_finite(nn.utils.clip_grad_norm_(wanted, clip), what, "a gradient", step)
                optimiser.step()
                losses.append(float(loss.detach()))
                report(step + 1, total, f"{what}: epoch {epoch + 1} of {epochs}")
            state["loss"].append(float(np.mean(losses)))
            module.eval()
            now = float("nan")
            if validate is not None:
                torch.manual_seed(key64(seed, 0, stream=2))  # the same draws at every epoch: epochs are compared, not their noise
                with torch.no_grad():
                    now = float(validate())
                _refuse_not_finite(now, what, "a validation", epoch * a_epoch + a_epoch - 1)
            state["validation"].append(now)
            state["epoch"] = epoch + 1
            if validate is None or now < state["best"]:
                state["best"], state["best_epoch"], kept = now, epoch + 1, _weights(module)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                whole = {"of": of, "state": state, "kept": kept, "now": _weights(module), "optimiser": optimiser.state_dict()}
                torch.save(whole, path.with_suffix(".part"))
                path.with_suffix(".part").replace(path)
    _restore(module, kept)
    module.eval()
    report(total, total, f"{what}: done")
    return {"epochs": state["epoch"], "best_epoch": state["best_epoch"], "validation": state["validation"], "loss": state["loss"]}


def _weights(module: nn.Module) -> dict[str, Tensor]:
    """Copies of what is trained, and of the buffers that change with it."""
    trained = {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}
    return trained | {n: b.detach().clone() for n, b in module.named_buffers()}


def _restore(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put copies back, in place."""
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)


def _digest(weights: dict[str, Tensor]) -> str:
    """Hash of names and values."""
    made = hashlib.blake2b(digest_size=16)
    for name, value in weights.items():
        made.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        made.update(value.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    """A checkpoint; None where there is none, or a damaged one."""
    if not path.exists():
        return None
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as fault:
        log.warning("checkpoint %s cannot be read (%s): the training starts again", path, type(fault).__name__)
        return None


def _refuse_not_finite(value: Any, what: str, kind: str, step: int) -> None:
    """Raise where a loss, a gradient's norm or a validation is NaN or infinite."""
    if not math.isfinite(float(value)):
        raise RunError(
            what,
            found=f"{kind} of {float(value)} in step {step + 1}",
            expected="finite numbers",
            remedy="Lower the learning rate, or look for values in the inputs that are far outside their usual range.",
        )


def fit_classifier(
    logits: Callable[[Any], Tensor],
    module: nn.Module,
    fit: Any,
    calibrate: Any | None,
    *,
    extra: Callable[[], Tensor] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Cross-entropy training of a classifier: `logits(inputs)` by way of `module`, validated by NLL on `calibrate`; `extra()` is added to
    the loss (a regulariser of the last forward). `fit`, `calibrate`: `engine.labelled.Examples`, of which those with a known label count;
    raises DatasetError where there is none. `options` and result as in `train`.
    """
    examples = known(fit, "fit split")
    held = None if calibrate is None else known(calibrate, "calibration split")
    device = next(module.parameters()).device

    def loss_of(at: np.ndarray, step: int) -> Tensor:
        del step
        part = examples.rows(at.tolist())
        loss = nn.functional.cross_entropy(logits(put(part.inputs, module)), part.labels.to(device))
        return loss if extra is None else loss + extra()

    def validate() -> float:
        assert held is not None
        parts = ((logits(put(b.inputs, module)), b.labels.to(device)) for b in held.batches(256))
        return sum(float(nn.functional.cross_entropy(found, labels, reduction="sum")) for found, labels in parts) / len(held)

    return train(module, loss_of, len(examples), validate=validate if held is not None else None, **options)
