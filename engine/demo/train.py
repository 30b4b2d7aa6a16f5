"""Train the demo's ClimaX on PlaSim: two stages, each resumable:

    python -m engine.demo.train DATA STAGE_1 --heads 6
    python -m engine.demo.train DATA STAGE_2 --start STAGE_1 --steps 1400 --lr 4e-4 --drop-path 0 --ema 0.997

Resumes from `OUT/state.pt`.

Inputs: the seven variables at one time, each less its annual mean at the grid point, over one standard deviation.
Outputs: anomalies from the seasonal climatology, over one standard deviation (a residual to climatology, which is the
better of the two simple forecasts at 72 h). Half of each batch has a lead time of 72 h, the rest 24 … 120 h: other
targets for the same input, against overfitting. The loss is area weighted; Z500 has weight 1, the others .1 each.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.backbones._climax_net import ClimaXNet
from engine.demo import plasim

ARCHITECTURE: dict[str, Any] = {"patch": 4, "width": 192, "depth": 6, "decoder_depth": 2, "num_heads": 2}
"""Of the second stage; the first has `--heads 6`. Head counts change no shape, so the first stage's weights are a start.

Two heads have to pass seven variables through diffuse attention, which leaves stochastic attention more to draw from: with six
heads the ensemble is under-dispersed for every ν, and there is no best ν to be shown.
"""
LEADS = (4, 8, 12, 16, 20)
"""In 6-hourly steps."""


class Data:
    """Normalised inputs and anomalies of all training pieces, and draws of batches from them."""

    def __init__(self, folder: Path) -> None:
        one, two = plasim.read(folder / "trajectory_1.npz.xz"), plasim.read(folder / "trajectory_2.npz.xz")
        pieces = [one, two.part(plasim.TRAIN_2)]
        self.latitude, self.longitude = one.latitude, one.longitude
        self.climatology = {n: plasim.seasonal_climatology(pieces, n) for n in plasim.VARIABLES}
        self.input_mean = {n: self.climatology[n].mean(0) for n in plasim.VARIABLES}
        self.input_sd, self.output_sd = {}, {}
        weights = plasim.area_weights(one.latitude)[:, None]
        for n in plasim.VARIABLES:
            self.input_sd[n] = float(np.sqrt(np.mean([(weights * (p.fields[n] - self.input_mean[n]) ** 2).mean() for p in pieces])))
            anomalies = [p.fields[n] - plasim.at_days(self.climatology[n], p.day_of_year) for p in pieces]
            self.output_sd[n] = float(np.sqrt(np.mean([(weights * a**2).mean() for a in anomalies])))
        self.pieces = [self.normalise(p) for p in pieces]
        self.calibrate = self.normalise(two.part(plasim.CALIBRATE))
        self.starts = np.concatenate(
            [np.stack([np.full(len(x), i), np.arange(len(x))], 1)[: len(x) - max(LEADS)] for i, (x, _) in enumerate(self.pieces)]
        )

    def normalise(self, part: plasim.Trajectory) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and anomalies, each `(time, variable, 32, 64)` in bfloat16-friendly units of one sd."""
        x = np.stack([(part.fields[n] - self.input_mean[n]) / self.input_sd[n] for n in plasim.VARIABLES], 1)
        y = [(part.fields[n] - plasim.at_days(self.climatology[n], part.day_of_year)) / self.output_sd[n] for n in plasim.VARIABLES]
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(np.stack(y, 1).astype(np.float32))

    def batch(self, size: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, lead times in hours/100, anomalies at the valid time."""
        leads = np.where(rng.random(size) < 0.5, 12, rng.choice(LEADS, size))
        rows = self.starts[rng.integers(len(self.starts), size=size)]
        x = torch.stack([self.pieces[p][0][t] for p, t in rows])
        y = torch.stack([self.pieces[p][1][t + lead] for (p, t), lead in zip(rows, leads, strict=True)])
        return x, torch.from_numpy(leads * 0.06).float(), y


def rmse_z500(net: torch.nn.Module, data: Data, weights: torch.Tensor) -> float:
    """Pooled 72 h RMSE of Z500 in metres on the calibration piece, every sixth hour's eighth start."""
    x, y = data.calibrate
    starts = torch.arange(0, len(x) - 12, 6)
    net.eval()
    with torch.no_grad():
        out = torch.cat([net(x[s], torch.full((len(s),), 0.72), plasim.VARIABLES, ("z500",)) for s in starts.split(32)])
    error = (out[:, 0] - y[starts + 12, 0]) * data.output_sd["z500"]
    net.train()
    return float((weights * error**2).mean().sqrt())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=4200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=8e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heads", type=int, default=ARCHITECTURE["num_heads"])
    parser.add_argument("--drop-path", type=float, default=0.1)
    parser.add_argument("--start", type=Path, help="folder of an earlier stage whose averaged weights to start from")
    parser.add_argument("--ema", type=float, default=0.999)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = Data(options.data)
    torch.manual_seed(options.seed)
    net = ClimaXNet(plasim.VARIABLES, (32, 64), drop_path=options.drop_path, **(ARCHITECTURE | {"num_heads": options.heads}))
    if options.start:
        earlier = torch.load(options.start / "state.pt", weights_only=True)["ema"]
        net.load_state_dict({name.removeprefix("module."): w for name, w in earlier.items() if name.startswith("module.")})
    ema = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(options.ema))
    decay = [p for p in net.parameters() if p.ndim > 1]
    rest = [p for p in net.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=options.lr, betas=(0.9, 0.95)
    )
    warm, total = min(500, options.steps // 10), options.steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min(1, (s + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(1, s / total))) + 1e-3
    )
    first, state_path = 0, options.out / "state.pt"
    if state_path.exists():
        state = torch.load(state_path, weights_only=True)
        net.load_state_dict(state["net"])
        ema.load_state_dict(state["ema"])
        optimiser.load_state_dict(state["optimiser"])
        first = state["step"]
        for _ in range(first):
            schedule.step()
    area = torch.from_numpy(plasim.area_weights(data.latitude))[:, None]
    share = torch.tensor([1.0] + [0.1] * 6)[:, None, None]
    began, running = time.time(), 0.0
    for step in range(first, total):
        x, lead, y = data.batch(options.batch, np.random.default_rng((options.seed, step)))
        # the CPU's fused attention is slow backwards in bfloat16: half of a step's time against a tenth
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
            out = net(x, lead, plasim.VARIABLES, plasim.VARIABLES)
        loss = (share * area * (out.float() - y) ** 2).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        ema.update_parameters(net)
        running = 0.98 * running + 0.02 * float(loss.detach()) if step > first else float(loss.detach())
        if (step + 1) % 250 == 0 or step + 1 == total:
            torch.save(
                {"net": net.state_dict(), "ema": ema.state_dict(), "optimiser": optimiser.state_dict(), "step": step + 1},
                state_path.with_suffix(".new"),
            )
            state_path.with_suffix(".new").replace(state_path)
            rate = (time.time() - began) / (step + 1 - first)
            print(
                f"step {step + 1} loss {running:.4f} z500 72 h rmse {rmse_z500(ema.module, data, area):.2f} m (ema) {rate:.3f} s/step",
                flush=True,
            )


if __name__ == "__main__":
    main()
