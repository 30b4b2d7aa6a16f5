"""A tiny vision transformer, trained for a moment on three noisy 8×8 pictures, and the files of its data."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

CLASSES = ("bar", "dot", "ring")
SETS = {"fit": (96, 1), "calibrate": (60, 2), "verify": (90, 3)}


def pictures(count: int, seed: int, noise: float = 90.0) -> tuple[np.ndarray, np.ndarray]:
    """Images `(case, 8, 8, 1)` uint8 and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASSES), count)
    patterns = np.random.default_rng(5).integers(0, 255, (len(CLASSES), 8, 8, 1))
    return np.clip(patterns[labels] + rng.normal(0, noise, (count, 8, 8, 1)), 0, 255).astype(np.uint8), labels


def write(folder: Path, seed: int = 0, epochs: int = 20) -> SimpleNamespace:
    """Checkpoint, fit.npz, calibrate.npz, verify.npz and outside.npz in a folder."""
    from engine.backbones import new_vit
    from engine.data import open_labelled
    from engine.methods._train import fit_classifier

    folder.mkdir(parents=True, exist_ok=True)
    for name, (count, key) in SETS.items():
        images, labels = pictures(count, key)
        np.savez(folder / f"{name}.npz", images=images, labels=labels, classes=np.array(CLASSES))
    noise = np.random.default_rng(9).integers(0, 255, (40, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "outside.npz", images=noise)
    sizes = {"size": (8, 8, 1), "patch": 4, "width": 16, "depth": 2, "num_heads": 2, "hidden": 16, "dropout": 0.1}
    classifier = new_vit(CLASSES, **sizes, mean=(0.5,), sd=(0.25,), seed=seed)
    net = classifier.fresh(seed)
    fit = classifier.prepare(open_labelled(folder / "fit.npz"))
    fit_classifier(lambda inputs: classifier.logits(inputs, net), net, fit, None, epochs=epochs, batch=32, lr=3e-3, seed=seed)
    classifier.write(folder / "vit.safetensors", net)
    places = {name: folder / f"{name}.npz" for name in (*SETS, "outside")}
    return SimpleNamespace(folder=folder, checkpoint=folder / "vit.safetensors", **places)


def fields(world: SimpleNamespace, *entries: str, **changes: object) -> dict:
    """A classification of seconds: its fields."""
    trained = {e.split(":")[0] for e in entries} & {"director", "deep_ensemble", "kep_svgp", "sgpa"}
    few = {
        "task": "classification",
        "checkpoint": world.checkpoint,
        "data": (world.verify,),
        "fit": (world.fit,),
        "calibrate": (world.calibrate,),
        "entries": entries or ("deterministic",),
        "params": {name: {"epochs": 2} for name in trained},
        "members": 3,
        "nu": (2, 8),
        "bootstrap": 100,
        "shard_cases": 60,
        "examples": 8,
    }
    return few | changes
