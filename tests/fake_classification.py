"""A synthetic classification run made exactly by the schema of `engine/runs/classification.py`, from a law that is known.

Each case has a true posterior over ten classes and its label is drawn from it. The frozen model knows the posterior but says it
twice too boldly in logits; temperature scaling says it as it is; members and paths scatter about it, DIRECTOR's more where the case
is hard, its controls' not at all or equally everywhere. Every score is computed from these probabilities. Pure NumPy and xarray.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

KEY = "c1a550123456789a"
CASES, CLASSES, M, STEPS, EXAMPLES, DRAWS, BINS = 800, 10, 8, 4, 12, 120, 15
ENTRIES = {
    "deterministic": ("Frozen model", 1),
    "temperature_scaling": ("Temperature scaling", 1),
    "stochastic_attention:16": ("Stochastic attention, ν = 16", M),
    "director": ("DIRECTOR", M),
    "director:no_noise": ("DIRECTOR, no noise", 1),
    "director:constant_noise": ("DIRECTOR, constant noise", M),
}
NAMES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CORRUPTIONS = ("gaussian noise", "blur", "contrast")
SEVERITIES = (0, 1, 2, 3, 4, 5)
ABOUT = {
    "accuracy": ("Accuracy", "ACC", "higher", 1.0, "share of examples whose most probable class is right"),
    "mcc": ("Matthews correlation", "MCC", "higher", 1.0, "over all examples"),
    "nll": ("negative log likelihood", "NLL", "lower", 0.0, "−log of the mean of the members' softmaxes"),
    "brier_multiclass": ("Brier score, all classes", "Brier", "lower", 0.0, "sum over classes"),
    "ece": ("expected calibration error", "ECE", "lower", 0.0, "15 equal-width bins (lo, hi]"),
    "ece_adaptive": ("adaptive calibration error", "adaptive ECE", "lower", 0.0, "15 bins of equal count"),
    "aurc": ("area under the risk-coverage curve", "AURC", "lower", 0.0, "confidence: greatest probability"),
    "auroc_failure": ("finding mistakes by confidence", "AUROC of mistakes", "higher", 1.0, "confidence: greatest probability"),
    "fpr95_failure": ("mistakes kept at 95 % of hits", "FPR95 of mistakes", "lower", 0.0, "confidence: greatest probability"),
    "brier_mcb": ("miscalibration of confidence", "MCB", "lower", 0.0, "CORP"),
    "brier_dsc": ("discrimination of confidence", "DSC", "higher", 1.0, "CORP"),
    "brier_unc": ("uncertainty of correctness", "UNC", "lower", 0.0, "CORP"),
}


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _ece(confidence: np.ndarray, correct: np.ndarray, w: np.ndarray, edges: np.ndarray) -> float:
    at = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, len(edges) - 2)
    return float(np.abs(np.bincount(at, w * (correct - confidence))).sum() / w.sum())


def _auroc(score: np.ndarray, positive: np.ndarray, w: np.ndarray) -> float:
    order = np.argsort(score, kind="stable")
    up, down = (w * positive)[order], (w * ~positive)[order]
    total = up.sum() * down.sum()
    return float((up * (np.cumsum(down) - down / 2)).sum() / total) if total else float("nan")


def _fpr95(score: np.ndarray, positive: np.ndarray, w: np.ndarray) -> float:
    order = np.argsort(-score, kind="stable")
    up, down = np.cumsum((w * positive)[order]), np.cumsum((w * ~positive)[order])
    return float(down[np.searchsorted(up, 0.95 * up[-1])] / down[-1]) if down[-1] else float("nan")


def _aupr(score: np.ndarray, positive: np.ndarray, w: np.ndarray) -> float:
    order = np.argsort(-score, kind="stable")
    up, every = np.cumsum((w * positive)[order]), np.cumsum(w[order])
    return float((np.diff(up, prepend=0) * up / np.maximum(every, 1e-9)).sum() / up[-1])


def _scores(p: np.ndarray, y: np.ndarray, w: np.ndarray) -> dict[str, float]:
    confidence, predicted = p.max(-1), p.argmax(-1)
    correct = predicted == y
    mean = lambda a: float((w * a).sum() / w.sum())  # noqa: E731
    hot = np.eye(p.shape[1])[y]
    order = np.argsort(-confidence, kind="stable")
    risk = np.cumsum((w * ~correct)[order]) / np.maximum(np.cumsum(w[order]), 1e-9)
    table = np.zeros((p.shape[1],) * 2)
    np.add.at(table, (y, predicted), w)
    n, c, t, q = table.sum(), np.trace(table), table.sum(1), table.sum(0)
    base, brier = mean(correct), mean((confidence - correct) ** 2)
    edges = np.linspace(0, 1, BINS + 1)
    at = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, BINS - 1)
    held = np.bincount(at, w, BINS)
    with np.errstate(invalid="ignore", divide="ignore"):
        level = np.where(held > 0, np.bincount(at, w * correct, BINS) / held, 0)
    dsc = float((held * (level - base) ** 2).sum() / w.sum())
    return {
        "accuracy": base,
        "mcc": float((c * n - t @ q) / np.sqrt((n**2 - q @ q) * (n**2 - t @ t))),
        "nll": mean(-np.log(np.maximum(p[np.arange(len(y)), y], 1e-12))),
        "brier_multiclass": mean(((p - hot) ** 2).sum(-1)),
        "ece": _ece(confidence, correct, w, edges),
        "ece_adaptive": _ece(confidence, correct, w, np.r_[0, np.quantile(confidence, np.arange(1, BINS) / BINS), 1]),
        "aurc": float((w[order] * risk).sum() / w.sum()),
        "auroc_failure": _auroc(confidence, correct, w),
        "fpr95_failure": _fpr95(confidence, correct, w),
        "brier_mcb": brier - (base * (1 - base)) + dsc,
        "brier_dsc": dsc,
        "brier_unc": base * (1 - base),
    }


def _ends(value: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(draws - np.median(draws, 0), [0.025, 0.975], axis=0)
    return value + np.minimum(low, 0), value + np.maximum(high, 0)


def _forecasts(z: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Softmaxes `(member, case, class)` of each entry, from the logits of the true posterior."""
    shape = (M, *z.shape)
    hard = 0.3 + 1.6 * (1 - _softmax(z).max(-1))[:, None]  # harder cases: paths stray further
    noise = rng.standard_normal(shape)
    student = z + 0.25 * rng.standard_normal(z.shape)
    return {
        "deterministic": _softmax(2.0 * z)[None],
        "temperature_scaling": _softmax(1.05 * z)[None],
        "stochastic_attention:16": _softmax(2.0 * z + 1.3 * rng.standard_normal(shape)),
        "director": _softmax(1.35 * student + 1.5 * hard * noise),
        "director:no_noise": _softmax(1.75 * student)[None],
        "director:constant_noise": _softmax(1.4 * student + 1.2 * noise),
    }


@cache
def _made(seed: int) -> xr.Dataset:
    rng = np.random.default_rng([seed, 10])
    entries, n = list(ENTRIES), len(ENTRIES)
    z = rng.standard_normal((CASES, CLASSES)) * rng.uniform(1.5, 14.0, (CASES, 1))
    y = (rng.random((CASES, 1)) > np.cumsum(_softmax(z), -1)).sum(-1).clip(0, CLASSES - 1)
    members = _forecasts(z, rng)
    p = {e: m.mean(0) for e, m in members.items()}
    outside = {e: m.mean(0) for e, m in _forecasts(rng.standard_normal((CASES // 2, CLASSES)) * 2.0, rng).items()}
    counts = rng.multinomial(CASES, np.full(CASES, 1 / CASES), DRAWS).astype(float)
    out: dict[str, Any] = {}

    def put(name: str, dims: tuple[str, ...], value: np.ndarray, draws: np.ndarray, attrs: dict[str, Any] | None = None) -> None:
        low, high = _ends(value, draws)
        for end, array in (("", value), ("_low", low), ("_high", high)):
            out[name + end] = (dims, array, attrs or {})

    one = [_scores(p[e], y, np.ones(CASES)) for e in entries]
    many = [[_scores(p[e], y, w) for e in entries] for w in counts]
    for name, (title, symbol, better, perfect, estimator) in ABOUT.items():
        value, draws = np.array([s[name] for s in one]), np.array([[s[name] for s in row] for row in many])
        attrs = {"title": title, "symbol": symbol, "units": "1", "better": better, "perfect": perfect, "estimator": estimator}
        put(name, ("entry",), value, draws, attrs | {"reference": "made up"})
        apart = (value[:, None] - value, draws[:, :, None] - draws[:, None])
        put(f"{name}_difference", ("entry", "against"), *apart, attrs | {"reference": "made up"})
    rules: dict[str, Callable[..., float]] = {"auroc": _auroc, "aupr": _aupr, "fpr95": _fpr95}
    inside = np.r_[np.ones(CASES, bool), np.zeros(CASES // 2, bool)]
    both = np.c_[counts, rng.multinomial(CASES // 2, np.full(CASES // 2, 2 / CASES), DRAWS)]
    for kind in ("max_softmax", "entropy"):
        said = []
        for e in entries:
            all_ = np.concatenate([p[e], outside[e]])
            said.append(all_.max(-1) if kind == "max_softmax" else (all_ * np.log(np.maximum(all_, 1e-12))).sum(-1))
        for name, rule in rules.items():
            value = np.array([[rule(s, inside, np.ones(len(s)))] for s in said])
            draws = np.array([[[rule(s, inside, w)] for s in said] for w in both])
            put(f"{name}_ood_{kind}", ("entry", "ood"), value, draws)
    shape = (n, len(CORRUPTIONS), len(SEVERITIES))
    corrupted = {name: np.empty(shape) for name in ("accuracy", "ece", "nll")}
    for c, strength in enumerate((1.0, 0.6, 0.35)):
        for s in SEVERITIES:
            harmed = z + s * strength * np.random.default_rng([seed, c, s]).standard_normal(z.shape) if s else z
            for i, (e, m) in enumerate(_forecasts(harmed, np.random.default_rng([seed, 11])).items()):
                got = one[i] if s == 0 else _scores(m.mean(0), y, np.ones(CASES))
                for name, array in corrupted.items():
                    array[i, c, s] = got[name]
                del e
    out |= {f"{name}_corrupted": (("entry", "corruption", "severity"), a) for name, a in corrupted.items()}
    out["probability"] = (("entry", "case", "class"), np.stack([p[e] for e in entries]).astype(np.float32))
    out["observed"] = ("case", y)
    sure, wrong = p["director"].max(-1), p["director"].argmax(-1) != y
    order = np.argsort(-sure, kind="stable")  # the surest mistakes, the least sure, and right ones
    shown = np.sort(np.unique(np.r_[order[wrong[order]][:4], order[-5:-1], order[~wrong[order]][::160][:4]]))
    assert len(shown) == EXAMPLES, "the schema's examples are distinct"
    paths = np.full((n, EXAMPLES, M, CLASSES), np.nan, np.float32)
    for i, m in enumerate(members.values()):
        paths[i, :, : len(m)] = np.moveaxis(m[:, shown], 0, 1)
    out["path_probability"] = (("entry", "example", "path", "class"), paths)
    row, column = np.mgrid[:28, :28]
    blobs = [255 * np.exp(-(((row - 14) / (4 + k % 7)) ** 4) - ((column - 14) / (3 + k % 5 * 2)) ** 4) for k in y[shown]]
    out["example_image"] = (("example", "row", "column", "channel"), np.stack(blobs).astype(np.uint8)[..., None])
    out["parameters"] = ("entry", [620_000, 620_001, 620_000, 290_000, 290_000, 290_000])
    out["members"] = ("entry", [ENTRIES[e][1] for e in entries])
    out["fit_seconds"] = ("entry", [0.0, 0.8, np.nan, 610.0, 605.0, 612.0])
    out["milliseconds"] = ("entry", [1.2, 1.2, 9.9, 6.1, 0.8, 6.0])
    out["memory_bytes"] = ("entry", 4 * np.array(out["parameters"][1]))
    for name, values in _path(np.arange(1, STEPS + 1), 1 + 0.1 * seed).items():
        dims = ("entry", "step", "step_other") if values.ndim == 3 else ("entry", "step")
        out[name] = (dims, values)
    for end, way in (("", 0.0), ("_low", -0.035), ("_high", 0.03)):
        out[f"spread_error_auroc{end}"] = ("entry", np.array([np.nan, np.nan, np.nan, 0.81 + way, np.nan, 0.74 + way]))
    coords = {
        "entry": entries,
        "entry_title": ("entry", [ENTRIES[e][0] for e in entries]),
        "class": list(NAMES),
        "case": np.arange(CASES),
        "against": entries,
        "ood": ["letters"],
        "corruption": list(CORRUPTIONS),
        "severity": list(SEVERITIES),
        "step": np.arange(1, STEPS + 1),
        "step_other": np.arange(1, STEPS + 1),
        "path": np.arange(M),
        "example": shown,
    }
    data = xr.Dataset(out, coords)
    data.encoding["outside"] = np.stack([outside[e].max(-1) for e in entries])
    return data


def _path(step: np.ndarray, factor: float) -> dict[str, np.ndarray]:
    """What is known of paths, times a `factor`: NaN for entries that have none."""
    none = np.full((len(ENTRIES), len(step)), np.nan)
    spread, error, sigma, varies = none.copy(), none.copy(), none.copy(), none.copy()
    spread[3], spread[4], spread[5] = 0.06 + 0.05 * step, 0.0, 0.07 + 0.03 * step
    error[3], error[4], error[5] = 0.46 - 0.07 * step, 0.44 - 0.07 * step, 0.47 - 0.065 * step
    sigma[3], sigma[4], sigma[5] = 0.05 + 0.02 * step, 0.0, 0.08
    varies[3], varies[4], varies[5] = 0.35 - 0.02 * step, 0.0, 0.0
    correlation = np.full((len(ENTRIES), len(step), len(step)), np.nan)
    correlation[3] = 0.72 ** np.abs(step[:, None] - step)
    correlation[5] = 0.55 ** np.abs(step[:, None] - step)
    return {
        "step_spread": spread * factor,
        "step_correlation": correlation,
        "step_error": error * factor,
        "step_sigma": sigma,
        "step_sigma_variation": varies,
    }


def make(*, seed: int = 0, kind: str = "images", outside: bool = False, **attrs: Any) -> xr.Dataset:
    """A run of `kind` images or text; with `outside`, the outside examples' greatest probabilities too; `attrs` replace attributes."""
    made = _made(seed)
    data = made.copy()
    if outside:
        said = made.encoding["outside"][:, None].astype(np.float32)
        data["outside_confidence"] = (("entry", "ood", "outside"), said)
    if kind == "text":
        data = data.drop_vars("example_image")
        data["example_text"] = ("example", [f"Sentence {i}: the plot is thin, but the acting holds it together." for i in range(EXAMPLES)])
    data.attrs = {
        "task": "classification",
        "key": KEY,
        "command": "python -m engine run --method director --checkpoint demo.safetensors --data demo.npz --seed 0",
        "spec": json.dumps({"checkpoint": "demo.safetensors", "seed": seed}),
        "members": M,
        "seed": seed,
        "cases": CASES,
        "title": "Synthetic clothing",
        "version": "0.0",
        "teacher": "deterministic",
        "checkpoint_revision": "0" * 12,
        "data": "demo.npz",
        "kind": kind,
        "bootstrap": DRAWS,
        "ece_rule": "15 equal-width bins (lo, hi]",
        "notes": "[]",
        "nu": 16,
        "nu_rule": "least NLL on the calibration split",
    } | attrs
    return data
