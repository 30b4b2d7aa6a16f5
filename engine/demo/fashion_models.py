"""Train the image demo's vision transformer and every state that its methods learn:

    python -m engine.demo.fashion_models WORK [--seed 0] [--only director,kep_svgp] [--params '{"director": {"epochs": 60}}']

One command, resumable: trainings go on from their last epoch in WORK, what is finished is taken from there. It writes
`assets/demo/fashion/vit.safetensors` and `states/<entry>.safetensors`, learned on fit.npz with calibrate.npz for the choice of epochs,
by the same `learn` calls as a run (`engine.runs.classify.learning`); verify.npz is never opened.

Weights are rounded to 16 bits, which halves the files, where that moves the accuracy on calibrate.npz by at most 0.2 points and the NLL
by at most 0.002; else they stay 32 bits. What was found is printed. The ViT is rounded first: states belong to the rounded one.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from engine.backbones import new_vit, open_checkpoint
from engine.data import open_labelled
from engine.labelled import Classifier, Examples
from engine.methods._train import fit_classifier
from engine.runs.classify import demo
from engine.runs.classify.entries import file_name
from engine.runs.classify.learning import settle_state
from engine.runs.classify.plan import Contender, make_plan
from engine.runs.classify.spec import ClassifySpec
from engine.runs.classify.states import load_state, save_state
from engine.runs.classify.work import Work
from engine.runs.console import Ticker

ARCHITECTURE: dict[str, Any] = {"size": (28, 28, 1), "patch": 7, "width": 64, "depth": 4, "num_heads": 4, "hidden": 64, "dropout": 0.1}
EPOCHS, LR = 25, 2e-3
PARAMS: dict[str, dict[str, Any]] = {
    "deep_ensemble": {"epochs": EPOCHS, "lr": LR},
    "kep_svgp": {"epochs": EPOCHS, "lr": LR},
    "sgpa": {"epochs": EPOCHS, "lr": LR},
    "director": {"epochs": EPOCHS, "lr": LR},
}
"""By method. All learn for as long as the ViT, and keep the epoch of the least calibration NLL."""
MOVED = (0.002, 0.002)
"""Most that rounding may move accuracy and NLL."""


def train_vit(folder: Path, work: Path, seed: int, epochs: int) -> Path:
    """The checkpoint; nothing is trained where it is there already."""
    path = folder / "vit.safetensors"
    done = work / "vit" / "vit.safetensors"
    if not done.exists():
        fit, calibrate = (open_labelled(folder / f"{name}.npz") for name in ("fit", "calibrate"))
        pixels = fit.inputs.astype(np.float64) / 255
        scale = {"mean": pixels.mean((0, 1, 2)).tolist(), "sd": pixels.std((0, 1, 2)).tolist()}
        classifier = new_vit(fit.classes, **ARCHITECTURE, **scale, seed=seed)
        net = classifier.fresh(seed)
        own, beside = classifier.prepare(fit), classifier.prepare(calibrate)
        options: dict[str, Any] = {"epochs": epochs, "batch": 128, "lr": LR, "weight_decay": 1e-4, "seed": seed}
        told = {"report": Ticker(), "what": "vision transformer", "folder": work / "vit"}
        fit_classifier(lambda inputs: classifier.logits(inputs, net), net, own, beside, **options, **told)
        classifier.write(done, net.half())
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(done, path)
    return path


def scores(classifier: Classifier, c: Contender, state: Any, examples: Examples, seed: int) -> tuple[float, float]:
    """Accuracy and NLL."""
    asked: dict[str, Any] = {"params": c.params, "nu": 1, "members": c.members, "seed": seed}
    p = c.method.classify(classifier, examples, state=state, **asked).mean(0, dtype=np.float64)
    labels = examples.labels.numpy()
    return float((p.argmax(-1) == labels).mean()), float(-np.log(np.maximum(p[np.arange(len(p)), labels], 1e-12)).mean())


def ship(work: Work, c: Contender, folder: Path, seed: int) -> None:
    """One state to the demo's folder, rounded where that changes nothing to speak of."""
    name = file_name(c.entry.state_name)
    learned, target = work.folder / "states" / f"{name}.safetensors", folder / "states" / f"{name}.safetensors"
    plan = work.plan
    about: dict[str, Any] = {"method": c.method.key, "revision": plan.classifier.revision}
    state, record = load_state(learned, **about)
    kept = {n: v for n, v in record.items() if n not in about}
    save_state(target, state, **about, **kept, half=True)
    assert plan.calibrate is not None
    before = scores(plan.classifier, c, state, plan.calibrate, seed)
    after = scores(plan.classifier, c, load_state(target, **about)[0], plan.calibrate, seed)
    rounded = all(abs(a - b) <= most for a, b, most in zip(before, after, MOVED, strict=True))
    if not rounded:
        save_state(target, state, **about, **kept)
    print(
        f"{c.name}: {target.stat().st_size:,} bytes, {'16' if rounded else '32'} bits; on calibrate.npz accuracy {before[0]:.4f} "
        f"(rounded {after[0]:.4f}), NLL {before[1]:.4f} (rounded {after[1]:.4f}); {record.get('fit_seconds', 0):.0f} s"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--folder", type=Path, default=demo.FASHION)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the ViT")
    parser.add_argument("--only", default="", help="entries with commas between; default: all of the demo's")
    parser.add_argument("--params", default="{}", help="parameters by method as JSON, over those of this file")
    options = parser.parse_args()
    checkpoint = train_vit(options.folder, options.work, options.seed, options.epochs)
    entries = tuple(options.only.split(",")) if options.only else demo.ENTRIES
    params = {name: PARAMS.get(name, {}) | more for name, more in ({n: {} for n in PARAMS} | json.loads(options.params)).items()}
    chosen = {name: params[name] for name in params if any(e.split(":")[0] == name for e in entries)}
    fit, calibrate = ((options.folder / f"{name}.npz",) for name in ("fit", "calibrate"))
    # calibrate.npz stands where a run verifies: nothing here may see verify.npz
    named: dict[str, Any] = {"data": calibrate, "fit": fit, "calibrate": calibrate, "entries": entries, "params": chosen}
    spec = ClassifySpec(checkpoint=checkpoint, seed=options.seed, **named).resolved()
    plan = make_plan(spec)
    work = Work(plan, options.work / open_checkpoint(checkpoint).revision[:12], Ticker(), lambda: None)
    for contender in plan.contenders:
        state, _ = settle_state(work, contender)
        if state:
            ship(work, contender, options.folder, options.seed)


if __name__ == "__main__":
    main()
