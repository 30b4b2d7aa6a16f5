"""Distil the demo's ClimaX into DIRECTOR's student on PlaSim:

    python -m engine.demo.director DATA WORK assets/demo/director.safetensors

Resumes from `WORK/training.pt`. Draws are those of `engine.demo.train`: six-hourly starts of all training pieces, here at 72 h alone.
Epochs are compared by the fair CRPS of Z500 on the calibration piece.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.backbones import open_checkpoint
from engine.demo import plasim
from engine.demo.train import Data
from engine.methods import _fields
from engine.methods._teacher import Teacher
from engine.methods._train import CHECKPOINT, train
from engine.methods.director import Director
from engine.settings import DEMO

LEAD = 12
"""72 h in six-hourly steps."""
A_EPOCH = 100
"""Steps between two validations."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=DEMO / "climax.safetensors")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="folder of an earlier stage whose best weights to start from")
    parser.add_argument("--params", default="{}", help="parameters of the method as JSON")
    options = parser.parse_args()
    backbone = open_checkpoint(options.checkpoint)
    data = Data(options.data)
    given = json.loads(options.params) | {"epochs": options.epochs, "batch": options.batch, "lr": options.lr}
    params = Director.Params(**given)
    student, teacher = _fields.build(backbone, params, options.seed), Teacher(backbone.stack())
    if options.start:
        earlier = torch.load(options.start / CHECKPOINT, weights_only=True)["kept"]
        student.transition.load_state_dict(earlier, strict=True)
    area = torch.from_numpy(plasim.area_weights(data.latitude))[:, None].float()
    share = torch.tensor([1.0] + [0.1] * 6)
    loss = _fields.loss_function(student, teacher, params, params.weights("fields"), area, share / share.sum())
    began = time.time()

    def loss_of(_: np.ndarray, step: int) -> torch.Tensor:
        rng = np.random.default_rng((options.seed, step))
        rows = data.starts[rng.integers(len(data.starts), size=options.batch)]
        x = torch.stack([data.pieces[p][0][t] for p, t in rows])
        y = torch.stack([data.pieces[p][1][t + LEAD] for p, t in rows])
        # the CPU's fused attention is slow backwards in bfloat16
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
            return loss(x, torch.full((options.batch,), 0.06 * LEAD), y, alone=step < params.alone * options.epochs * A_EPOCH)

    def validate() -> float:
        x, y = data.calibrate
        starts = torch.arange(0, len(x) - LEAD, 24)
        alone = torch.zeros(7)
        alone[0] = 1.0
        task = _fields.loss_function(
            student, teacher, params.model_copy(update={"paths": 8, "energy": 0.0, "patches": 0.0}), (0.0, 0.0, 1.0), area, alone
        )
        values = [float(task(x[s], torch.full((len(s),), 0.06 * LEAD), y[s + LEAD])) for s in starts.split(10)]
        crps = float(np.mean(values)) * data.output_sd["z500"]
        print(f"fair CRPS of Z500 {crps:.2f} m on {len(starts)} calibration starts, {time.time() - began:.0f} s", flush=True)
        return crps

    told = train(
        student.transition, loss_of, A_EPOCH * options.batch, epochs=options.epochs, batch=options.batch, lr=options.lr, seed=options.seed,
        validate=validate, folder=options.work, what="distilling",
    )  # fmt: skip
    print(told, flush=True)
    student.eval().requires_grad_(False)
    _fields.write_student(
        options.out, student, backbone, params, half=True, title="DIRECTOR for the demo's ClimaX", best_epoch=told["best_epoch"]
    )


if __name__ == "__main__":
    main()
