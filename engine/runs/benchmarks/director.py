"""DIRECTOR beside its controls and the other methods, everything trained from scratch for several seeds (arXiv 2602.08920, tables 1–3).

    python -m engine benchmark director                                    the shipped excerpt of Fashion-MNIST
    python -m engine benchmark director --data DIR --sets cifar10,cola     CIFAR-10 and texts: DIR holds images/ and text/

Options: --sets fashion,cifar10,cola,polarity (with --data default all of them), --seeds 3, --epochs 15 (of every training),
--director-epochs (default: as many), --lr 0.002, --train-cases 3000, --verify-cases 1000 (0: all), --members 10, --methods …, --width,
--depth, --heads, --patch (0: the set's default), --work DIR. The paper's sizes are --width 384 --depth 7 --heads 12 --patch 4 --epochs 100
--train-cases 0 on the full sets.

Each (set, seed) is a classification run in the work folder: classifier, states and forecasts are kept there, and the same command
goes on from them. Values are means over seeds with their standard deviation; differences DIRECTOR − other are means over seeds, paired
by example, with 95 % intervals over examples and seeds: the ends of a bootstrap over examples, the same for all seeds, and Student's
interval over the seeds' own differences, put together as independent errors are. With one seed it is over examples alone.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from engine.kernels.bootstrap import interval
from engine.runs.benchmarks._sets import KNOWN, Sets, Sizes, digest, write
from engine.runs.classify.entries import file_name, parse_entry
from engine.runs.classify.execute import execute_classification
from engine.runs.classify.scores import Scored, score_table
from engine.runs.classify.spec import ClassifySpec
from engine.runs.console import Ticker
from engine.settings import settings

METHODS = (
    "deterministic", "temperature_scaling", "stochastic_attention", "mc_dropout", "deep_ensemble", "kep_svgp", "kep_svgp:1", "sgpa",
    "director", "director:s1", "director:no_noise", "director:constant_noise", "director:no_matching",
)  # fmt: skip
COMPARED = ("accuracy", "ece", "nll", "brier_multiclass", "mcc", "auroc_failure")
DETECTED = "auroc_ood_max_softmax"
NU = (2, 8, 32, 128)
REPLICATES = 500
ROUNDING = 1e-12
"""An end of an interval that is nearer to zero is zero."""


def run(
    data: Path | None = None,
    *,
    sets: tuple[str, ...] = (),
    seeds: int = 3,
    epochs: int = 15,
    director_epochs: int = 0,
    lr: float = 2e-3,
    train_cases: int = 3000,
    verify_cases: int = 1000,
    members: int = 10,
    methods: tuple[str, ...] = METHODS,
    width: int = 0,
    depth: int = 0,
    heads: int = 0,
    patch: int = 0,
    work: Path | None = None,
) -> dict[str, Any]:
    """Results by set: `rows`, one a method (score → mean, sd over seeds; parameters, milliseconds), and `differences`, by other method
    and score (value, low, high, sd).
    """
    from engine.errors import SpecError
    from engine.runs.execute import _use_threads

    chosen = sets or (("fashion",) if data is None else tuple(KNOWN))
    strange = [name for name in chosen if name not in KNOWN]
    if strange or seeds < 1:
        wrong = ", ".join(strange) or f"{seeds} seeds"
        raise SpecError("benchmark director", found=wrong, expected=f"sets of {', '.join(KNOWN)}; seeds ≥ 1", remedy="Mend the option.")
    _use_threads()
    sizes = Sizes(train_cases, verify_cases, width, depth, heads, patch)
    place = work or settings().home / "benchmarks" / "director"
    asked: dict[str, Any] = {
        "epochs": epochs,
        "director_epochs": director_epochs or epochs,
        "lr": lr,
        "members": members,
        "methods": methods,
    }
    found: dict[str, Any] = {}
    for name in chosen:
        parts = KNOWN[name](data, sizes)
        folder = place / f"{name}-{digest(asked | vars(sizes) | {'fit': parts.fit.fingerprint, 'verify': parts.verify.fingerprint})}"
        files = {role: write(part, folder / role) for role, part in _roles(parts).items()}
        results: dict[str, list[Any]] = {}
        for seed in range(seeds):
            for shown, result in _one_seed(name, parts, files, folder / f"seed-{seed}", seed, asked).items():
                results.setdefault(shown, []).append(result)
        found |= {shown: _pooled(parts.title, every) for shown, every in results.items()}
    return {"settings": {"seeds": seeds, **asked, **vars(sizes)}, "work": str(place), "sets": found}


def _roles(parts: Sets) -> dict[str, Any]:
    roles: dict[str, Any] = {"fit": parts.fit, "calibrate": parts.calibrate, "verify": parts.verify}
    roles |= {f"outside-{i}": part for i, part in enumerate(parts.outside.values())}
    return roles | {f"shifted-{name}": part for name, part in parts.shifted.items()}


def _one_seed(name: str, parts: Sets, files: dict[str, Path], folder: Path, seed: int, asked: dict[str, Any]) -> dict[str, Any]:
    """The classifier of this seed, and its runs: on the verification set, then with the same states on each shifted one."""
    from engine.runs.classification import open_classification

    tick = Ticker()

    def told(done: int, total: int, message: str) -> None:
        tick(done, total, f"{name}, seed {seed}: {message}")

    checkpoint = _train(parts, folder, seed, asked, told)
    trained = {"epochs": asked["epochs"], "lr": asked["lr"]}
    params = {"deep_ensemble": trained, "kep_svgp": trained, "sgpa": trained, "director": trained | {"epochs": asked["director_epochs"]}}
    entries = tuple(asked["methods"])
    used = {e.split(":")[0] for e in entries}
    fields: dict[str, Any] = {
        "checkpoint": checkpoint, "fit": (files["fit"],), "calibrate": (files["calibrate"],), "entries": entries, "nu": NU,
        "members": asked["members"], "seed": seed, "examples": 0, "params": {n: p for n, p in params.items() if n in used},
    }  # fmt: skip
    outside = {title: files[f"outside-{i}"] for i, title in enumerate(parts.outside)}
    done = {name: _run(fields | {"data": (files["verify"],), "outside": outside}, folder / "run", told)}
    # what was learned for the verification set serves the shifted ones
    kept = {e: folder / "run" / "states" / f"{file_name(e)}.safetensors" for e in {parse_entry(e).state_name for e in entries}}
    states = {e: path for e, path in kept.items() if path.exists()}
    for shift in parts.shifted:
        done[f"{name}:{shift}"] = _run(fields | {"data": (files[f"shifted-{shift}"],), "states": states}, folder / f"run-{shift}", told)
    return {shown: open_classification(place) for shown, place in done.items()}


def _run(fields: dict[str, Any], folder: Path, told: Any) -> Path:
    """Nothing is computed where the result is there: the folder's name says for which settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "classification.nc").exists():
        execute_classification(ClassifySpec(**fields).resolved(), folder, told)
    return folder


def _train(parts: Sets, folder: Path, seed: int, asked: dict[str, Any], told: Any) -> Path:
    """The classifier: AdamW, warm-up and cosine, the weights of the best epoch on the calibration split."""
    from engine.methods._train import fit_classifier

    path = folder / "classifier.safetensors"
    if not path.exists():
        classifier: Any = parts.network(seed)
        net = classifier.fresh(seed)
        fit, calibrate = classifier.prepare(parts.fit), classifier.prepare(parts.calibrate)
        options: dict[str, Any] = {
            "epochs": asked["epochs"],
            "batch": 128,
            "lr": asked["lr"],
            "weight_decay": 1e-4,
            "seed": seed,
            "report": told,
        }
        fit_classifier(
            lambda inputs: classifier.logits(inputs, net), net, fit, calibrate, what="the classifier", folder=folder / "training", **options
        )
        classifier.write(path, net)
    return path


def _pooled(title: str, runs: list[Any]) -> dict[str, Any]:
    """Means over seeds, and DIRECTOR less each of the others."""
    entries = [str(e) for e in runs[0]["entry"].values]
    rows = []
    for entry in entries:
        own = [r.sel(entry=entry) for r in runs]
        row: dict[str, Any] = {"entry": entry, "title": str(own[0]["entry_title"].item())}
        row |= {name: _spread([float(r[name]) for r in own]) for name in COMPARED}
        if DETECTED in runs[0]:
            row["auroc_ood"] = _spread([float(r[DETECTED].mean("ood")) for r in own])
        row |= {"parameters": int(own[0]["parameters"]), "members": int(own[0]["members"])}
        rows.append(row | {n: _spread([float(r[n]) for r in own]) for n in ("milliseconds", "fit_seconds")})
    tables = [{e: _table(r, e) for e in entries} for r in runs]
    others = [e for e in entries if e != "director"] if "director" in entries else []
    return {
        "title": title,
        "cases": int(runs[0].sizes["case"]),
        "seeds": len(runs),
        "rows": rows,
        "differences": {other: {s: _difference([(t["director"][s], t[other][s]) for t in tables]) for s in COMPARED} for other in others},
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")}


def _table(run: Any, entry: str) -> dict[str, Scored]:
    return score_table(run["probability"].sel(entry=entry).values, run["observed"].values, COMPARED, replicates=REPLICATES, seed=0)


def _difference(pairs: list[tuple[Scored, Scored]]) -> dict[str, float]:
    """Mean over seeds with its interval over examples and seeds.

    Each replicate is one resampling of the examples, the same for all seeds and both methods; what another training would change is in
    the seeds' scatter, t(S − 1) sd/√S. Three seeds say little about it, and t says so (4.3 in place of 2).
    """
    values = [one.value - other.value for one, other in pairs]
    replicates = np.mean([one.replicates - other.replicates for one, other in pairs], axis=0)
    replicates = replicates[~np.isnan(replicates)]
    low, high = interval(np.asarray(np.mean(values)), replicates) if len(replicates) else (np.nan, np.nan)
    value, seeds = float(np.mean(values)), len(values)
    training = stdtrit(seeds - 1, 0.975) * _spread(values)["sd"] / np.sqrt(seeds) if seeds > 1 else 0.0
    low, high = value - np.hypot(value - low, training), value + np.hypot(high - value, training)
    ends = {n: 0.0 if abs(end) < ROUNDING else float(end) for n, end in (("low", low), ("high", high))}
    return {"value": value, **ends, "sd": _spread(values)["sd"]}


def text(found: dict[str, Any]) -> str:
    """A table a set, and for each control which differences exclude zero."""
    lines = []
    for name, of_set in found["sets"].items():
        lines += ["", f"{name}: {of_set['title']}, {of_set['cases']} examples, {of_set['seeds']} seed(s), mean ± sd over seeds"]
        heads = [c for c in (*COMPARED, "auroc_ood") if c in of_set["rows"][0]]
        cells = [["", *heads, "parameters", "ms", "M"]]
        for row in of_set["rows"]:
            told = [_cell(row[c]) for c in heads]
            cells.append([row["title"], *told, f"{row['parameters']:,}", f"{row['milliseconds']['mean']:.2f}", str(row["members"])])
        widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
        lines += [
            "  ".join(c.ljust(w) if not i else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))) for line in cells
        ]
        lines.append("DIRECTOR less …: differences that exclude zero (95 % over examples and seeds)")
        titles = {row["entry"]: row["title"] for row in of_set["rows"]}
        for other, scores in of_set["differences"].items():
            clear = [
                f"{s} {d['value']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]" for s, d in scores.items() if d["low"] > 0 or d["high"] < 0
            ]
            lines.append(f"  {titles[other]}: {'; '.join(clear) or 'none'}")
    return "\n".join([*lines[1:], f"kept in {found['work']}"])


def _cell(found: dict[str, float]) -> str:
    mean, sd = found["mean"], found["sd"]
    return "–" if mean != mean else f"{mean:.4f}" if sd != sd else f"{mean:.4f} ± {sd:.4f}"
