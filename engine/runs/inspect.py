"""Preflight of a checkpoint and of the data beside it: everything that can be known before a run is started."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from engine.backbones import inspect_checkpoint, open_checkpoint
from engine.errors import CheckpointError, EngineError
from engine.labelled import Classifier, Labelled
from engine.runs.reading import LabelledReading, Reading
from engine.runs.spec import RunSpec
from engine.safety import human

NU_OF_A_SWEEP = 8
"""Values of ν that the time estimate plans for: those of the default grid."""


def inspect_files(
    checkpoint: Path,
    data: tuple[Path, ...] = (),
    *,
    calibrate: tuple[Path, ...] = (),
    normalisation: Path | None = None,
    climatology: Path | None = None,
    members: int = 20,
    architecture: dict[str, Any] | None = None,
    reading: Reading | None = None,
    labelled: LabelledReading | None = None,
) -> dict[str, Any]:
    """The document of `inspect`; `refusal` is None, or text with what to do. Unreadable files raise EngineErrors.

    `sites` lists the attention calls, `replay_error` is relative to the largest output (float32: about 1e-6), `data` has
    `findings` (rows of level, what, found, expected, remedy), and `plan` the memory and time of a default sweep. `reading` and
    `labelled` say how files of fields, or of labels, are to be read.
    """
    named: dict[str, Any] = dict(architecture or {}) | {
        n: p for n, p in (("normalisation", normalisation), ("climatology", climatology)) if p
    }
    found = inspect_checkpoint(checkpoint, **named)
    refusal = found.pop("refusal")
    document = found | {"sites": [], "replay_error": None, "refusal": None, "data": {}, "changes": [], "notes": found.get("notes", [])}
    if refusal is not None:
        document["refusal"] = _sentence(refusal)
        return document
    backbone: Any = open_checkpoint(checkpoint, **named)
    if isinstance(backbone, Classifier):
        return _classifier(backbone, document, data, calibrate, (labelled or LabelledReading()).roles())
    seconds = _attention(backbone, document)
    # a look at the checkpoint alone says only that it is lacking; with data beside it, it stands in the way of a run
    lacking = _normalisation_lacking(backbone)
    if lacking is not None:
        document["normalisation"] = f"missing: {lacking.found}"
        if data and document["refusal"] is None:
            document["refusal"] = str(lacking)
    if data:
        document["data"] = _data(backbone, data, calibrate, seconds, (reading or Reading()).roles())
        document["changes"] = document["data"]["changes"]
        problems = [f for f in document["data"]["findings"] if f["level"] == "problem"]
        document["data"]["problems"] = len(problems)
        if problems and document["refusal"] is None:
            document["refusal"] = _sentence(problems[0])
    document["plan"] = {"seconds_per_forward": seconds} | _plan(backbone, document["data"].get("cases"), members, seconds)
    return document


def _sentence(fields: dict[str, str]) -> str:
    """A refusal's or a finding's fields as an `EngineError` words them."""
    return str(EngineError(fields["what"], **{name: fields[name] for name in ("found", "expected", "remedy")}))


def _normalisation_lacking(backbone: Any) -> CheckpointError | None:
    """The refusal that a run would meet, or None."""
    try:
        _ = backbone.output_sd
    except CheckpointError as refusal:
        return refusal
    return None


def _attention(backbone: Any, document: dict[str, Any]) -> float:
    """Self-test of the interception on random input; returns the seconds of one plain forward of one case."""
    import torch

    from engine.kernels import inspect_attention

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, len(backbone.in_variables), *backbone.grid, generator=generator)
    example = (x, torch.full((2,), backbone.lead_hours[0] / 100), backbone.in_variables, backbone.out_variables)
    with torch.no_grad():
        backbone.module(x[:1], example[1][:1], *example[2:])  # the first call pays for libraries that start up
        began = time.perf_counter()
        backbone.module(x[:1], example[1][:1], *example[2:])
        seconds = time.perf_counter() - began
    report = inspect_attention(backbone.module, *example)
    document["sites"] = [s.module for s in report.sites]
    document["replay_error"] = report.replay_error
    document["attention"] = {n: v for n, v in report.as_dict().items() if n not in ("sites", "replay_error", "refusal")}
    document["refusal"] = report.refusal
    return seconds


def _classifier(
    classifier: Classifier, document: dict[str, Any], data: tuple[Path, ...], calibrate: tuple[Path, ...], roles: dict[str, Any]
) -> dict[str, Any]:
    """A classifier: its attention on an example (brought, or made up where its kind allows), and the sets that were brought."""
    from engine.data import open_labelled

    sets = [(role, path) for role, paths in (("verify", data), ("calibrate", calibrate)) for path in paths]
    opened = [(role, open_labelled(path, kind=classifier.kind, classes=classifier.classes, **roles)) for role, path in sets]
    example = opened[0][1] if opened else _made_up(classifier, document.get("architecture", {}))
    document["task"] = "classification"
    if example is not None and len(example):
        _class_attention(classifier, example.rows(slice(0, 2)), document)
    else:
        document["sites"] = list(classifier.sites())
    if opened:
        verify = opened[0][1]
        counts = np.bincount(verify.labels[verify.labels >= 0], minlength=len(verify.classes))
        document["data"] = {
            "kind": verify.kind,
            "shape": list(verify.inputs.shape[1:]),
            "sets": {role: sum(len(e) for r, e in opened if r == role) for role in dict(opened)},
            "labels": dict(zip(verify.classes, counts.tolist(), strict=True)),
            "changes": list(dict.fromkeys(line for _, e in opened for line in e.changes)),
            "fingerprint": verify.fingerprint,
            "findings": [],
            "cases": len(verify),
            "problems": 0,
        }
        document["changes"] = document["data"]["changes"]
    return document


def _made_up(classifier: Classifier, architecture: dict[str, Any]) -> Labelled | None:
    """Two random images, or two short texts, to run a classifier on; None where nothing says what it takes."""
    rng, unknown = np.random.default_rng(0), np.full(2, -1)
    if classifier.kind == "images" and "size" in architecture:
        return Labelled("images", rng.integers(0, 256, (2, *architecture["size"]), dtype=np.uint8), unknown, classifier.classes)
    if classifier.kind == "text":
        return Labelled("text", np.array(["a short text of five words", "and another one"], object), unknown, classifier.classes)
    return None


def _class_attention(classifier: Classifier, example: Labelled, document: dict[str, Any]) -> None:
    """Self-test of the interception; the module is called as the classifier calls it."""
    from torch import nn

    from engine.kernels import inspect_attention

    inputs = classifier.prepare(example).inputs

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = classifier.module

        def forward(self, *values: Any) -> Any:
            return classifier.logits(dict(zip(inputs, values, strict=True)), self.model)

    report = inspect_attention(Called().eval(), *inputs.values())
    document["sites"] = [s.module.removeprefix("model.") for s in report.sites]
    document["replay_error"] = report.replay_error
    document["attention"] = {n: v for n, v in report.as_dict().items() if n not in ("sites", "replay_error", "refusal")}
    document["refusal"] = report.refusal


def _data(backbone: Any, data: tuple[Path, ...], calibrate: tuple[Path, ...], seconds: float, roles: dict[str, Any]) -> dict[str, Any]:
    from engine.data import cases, open_dataset
    from engine.data.preflight import preflight
    from engine.errors import DatasetError

    dataset = open_dataset(data, calibrate=calibrate or None, **roles)
    document = {
        "grid": list(dataset.grid),
        "variables": dataset.units,
        "changes": list(dataset.changes),
        "fingerprint": dataset.fingerprint,
        "findings": [f.as_dict() for f in preflight(dataset, backbone, seconds_per_forward=seconds)],
    }
    try:
        document["cases"] = len(cases(dataset, backbone.lead_hours[0], "verify"))
    except DatasetError:  # stands among the findings, with its remedy
        document["cases"] = 0
    return document


def _plan(backbone: Any, cases: int | None, members: int, seconds: float) -> dict[str, Any]:
    """Bytes and seconds of a default sweep, said before anything runs; members share what precedes the first sampled site."""
    from engine.runs.plan import memory_needed

    shard = RunSpec.model_fields["shard_cases"].default
    memory = memory_needed(backbone, members=members, nu=NU_OF_A_SWEEP, variables=len(backbone.out_variables), shard_cases=shard)
    plan: dict[str, Any] = {"memory_bytes": memory, "memory": human(memory), "members": members, "nu": NU_OF_A_SWEEP}
    if cases:
        plan |= {"cases": cases, "sweep_seconds": cases * members * NU_OF_A_SWEEP * seconds * 1.4}
    return plan


def inspection_text(found: dict[str, Any]) -> str:
    """The document for people."""
    keys = found.get("keys", {})
    lines = [
        f"{found['backbone']}, {found['format']}, {found['parameters']:,} parameters",
        "keys: " + ", ".join(f"{len(keys.get(kind, []))} {kind}" for kind in ("matched", "missing", "unexpected")),
    ]
    if "classes" in found:
        lines.append(f"classifier of {len(found['classes'])} classes: {', '.join(found['classes'][:12])}")
    if "normalisation" in found:
        lines.append(f"normalisation: {found['normalisation']}")
    lines += [f"assumed: {line}" for line in found.get("assumed", [])]
    lines += [f"unknown: {name} (could be {value})" for name, value in found.get("unknown", {}).items()]
    if found["sites"] and found["replay_error"] is not None:
        lines.append(f"attention: {len(found['sites'])} calls reached, replay error {found['replay_error']:.1e}")
    if "sets" in found["data"]:
        sets = ", ".join(f"{count} to {role}" for role, count in found["data"]["sets"].items())
        lines.append(f"{found['data']['kind']}: {sets}; labels {found['data']['labels']}")
        lines += [f"changed: {line}" for line in found["data"]["changes"]]
    for row in found["data"].get("findings", []):
        lines.append(
            f"{row['level']:7} {row['what']}: {row['found']}"
            + (f" (expected {row['expected']}). {row['remedy']}" if row["level"] == "problem" else "")
        )
    if "sweep_seconds" in found.get("plan", {}):
        lines.append(f"a default sweep: about {found['plan']['sweep_seconds'] / 60:.1f} min, {found['plan']['memory']}")
    lines.append(f"REFUSED: {found['refusal']}" if found["refusal"] else "ready to run")
    return "\n".join(lines)
