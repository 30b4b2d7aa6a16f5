"""Preflight of a checkpoint and of the data beside it: everything that can be known before a run is started."""

from pathlib import Path
from typing import Any

import numpy as np

from engine.backbones import inspect_checkpoint, open_checkpoint
from engine.errors import CheckpointError, EngineError, SpecError
from engine.labelled import Classifier, Labelled
from engine.runs.attention_document import attention_lines, put_attention
from engine.runs.cost import CLOCKS, Cost, estimate, measured, undisturbed
from engine.runs.reading import LabelledReading, Reading
from engine.runs.spec import RunSpec
from engine.safety import human

SLOW = 5.0
"""Seconds of one forward from which ensembles are timed once, as they are."""


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
    partial: bool = False,
) -> dict[str, Any]:
    """The document of `inspect`; `refusal` is None, or text with what to do. Unreadable files raise EngineErrors.

    `sites` lists the attention calls, `replay_error` is relative to the largest output (float32: about 1e-6), `data` has
    `findings` (rows of level, what, found, expected, remedy), and `plan` the memory and time of a default sweep. `reading` and
    `labelled` say how files of fields, or of labels, are to be read.
    `partial` accepts a model whose attention is reached in part.
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
    _refuse_idle(backbone, checkpoint.name, reading, labelled)
    if isinstance(backbone, Classifier):
        return _classifier(backbone, document, data, calibrate, (labelled or LabelledReading()).roles(), partial)
    seconds = _attention(backbone, document, partial)
    # a look at the checkpoint alone says only that it is lacking; with data beside it, it stands in the way of a run
    lacking = _normalisation_lacking(backbone)
    if lacking is not None:
        document["normalisation"] = f"missing: {lacking.found}"
        if data and document["refusal"] is None:
            document["refusal"] = str(lacking)
    if data:
        document["data"] = _data(backbone, data, calibrate, (reading or Reading()).roles())
        document["changes"] = document["data"]["changes"]
        problems = [f for f in document["data"]["findings"] if f["level"] == "problem"]
        document["data"]["problems"] = len(problems)
        if problems and document["refusal"] is None:
            document["refusal"] = _sentence(problems[0])
    cost = _cost(backbone, seconds) if document["refusal"] is None else None
    document["plan"] = {"seconds_per_forward": seconds} | _plan(backbone, document["data"], members, cost)
    return document


def _refuse_idle(backbone: Any, name: str, reading: Reading | None, labelled: LabelledReading | None) -> None:
    """An option that says nothing about this kind of model would be lost without a word."""
    classifier = isinstance(backbone, Classifier)
    idle = reading if classifier else labelled
    if idle is not None and idle.roles():
        said = [n for n, info in type(idle).model_fields.items() if getattr(idle, n) != info.get_default(call_default_factory=True)]
        raise SpecError(
            ", ".join(f"--{n.replace('_', '-')}" for n in said),
            found=f"{name}: a {'classifier' if classifier else 'model of fields'}",
            expected=f"a {'model of fields' if classifier else 'classifier'} for this option",
            remedy="Leave the option out.",
        )


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


def _attention(backbone: Any, document: dict[str, Any], partial: bool) -> float:
    """Self-test of the interception on random input; returns the seconds of one plain forward of one case."""
    import torch

    from engine.kernels import inspect_attention

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, len(backbone.in_variables), *backbone.grid, generator=generator)
    example = (x, torch.full((2,), backbone.lead_hours[0] / 100), backbone.in_variables, backbone.out_variables)
    with torch.no_grad():
        backbone.module(x[:1], example[1][:1], *example[2:])  # the first call pays for libraries that start up
        seconds = undisturbed(lambda: backbone.module(x[:1], example[1][:1], *example[2:]))
    report = inspect_attention(backbone.module, *example)
    put_attention(report, document, partial)
    return seconds


def _classifier(
    classifier: Classifier,
    document: dict[str, Any],
    data: tuple[Path, ...],
    calibrate: tuple[Path, ...],
    roles: dict[str, Any],
    partial: bool,
) -> dict[str, Any]:
    """A classifier: its attention on an example (brought, or made up where its kind allows), and the sets that were brought."""
    from engine.data import open_labelled

    sets = [(role, path) for role, paths in (("verify", data), ("calibrate", calibrate)) for path in paths]
    opened = [(role, open_labelled(path, kind=classifier.kind, classes=classifier.classes, **roles)) for role, path in sets]
    example = opened[0][1] if opened else _made_up(classifier, document.get("architecture", {}))
    document["task"] = "classification"
    if example is not None and len(example):
        _class_attention(classifier, example.rows(slice(0, 2)), document, partial)
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


def _class_attention(classifier: Classifier, example: Labelled, document: dict[str, Any], partial: bool) -> None:
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
    put_attention(report, document, partial, "model.")


def _data(backbone: Any, data: tuple[Path, ...], calibrate: tuple[Path, ...], roles: dict[str, Any]) -> dict[str, Any]:
    from engine.data import cases, open_dataset
    from engine.data.preflight import preflight
    from engine.errors import DatasetError

    dataset = open_dataset(data, calibrate=calibrate or None, **roles)
    document = {
        "grid": list(dataset.grid),
        "variables": dataset.units,
        "changes": list(dataset.changes),
        "fingerprint": dataset.fingerprint,
        "findings": [f.as_dict() for f in preflight(dataset, backbone)],
    }
    for name, split in (("cases", "verify"), ("calibrate_cases", "calibrate")):
        try:
            document[name] = len(cases(dataset, backbone.lead_hours[0], split)) if split in dataset.splits else 0
        except DatasetError:  # stands among the findings, with its remedy
            document[name] = 0
    return document


def _cost(backbone: Any, forward: float) -> Cost:
    """What ensembles and their scores cost here, measured on random input."""
    import torch

    from engine import registry
    from engine.kernels.area import REGIONS, region_weights
    from engine.runs.accumulate import Accumulator
    from engine.runs.doctor import device
    from engine.types import Batch, Case, EnsembleView, Score

    class Normalised:
        """The model without its way back to physical units, which needs a normalisation that may not be there yet."""

        def __getattr__(self, name: str) -> Any:
            return getattr(backbone, name)

        def physical(self, output: Any, _: Any) -> Any:
            return output.cpu().numpy()

    rng, (rows, columns) = np.random.default_rng(0), backbone.grid
    inputs = torch.randn(1, len(backbone.in_variables), rows, columns, generator=torch.Generator().manual_seed(0))
    case = Case(0, 0, 0, float(backbone.lead_hours[0]), "", "")
    batch = Batch(inputs, np.zeros((1, len(backbone.out_variables), rows, columns), np.float32), (case,), np.zeros(1))
    method: Any = registry.get("methods", "stochastic_attention")
    latitude, longitude = np.linspace(90, -90, rows + 2)[1:-1], np.arange(columns) * 360 / columns
    weights = region_weights(latitude, longitude, dict(REGIONS))
    observed = rng.normal(size=(1, rows, columns)).astype(np.float32)

    def ensemble(members: int, nu: int) -> Any:
        return method.predict(Normalised(), batch, state=None, params=method.Params(), nu=nu, members=members, seed=0, shared={})

    def scored(members: int) -> None:
        known = [s for s in registry.entries("scoring").values() if isinstance(s, Score) and not s.optional]
        usual = [s for s in known if s.min_members <= members and not s.needs & {"climatology", "thresholds"}]
        drawn = rng.normal(size=(members, 1, rows, columns)).astype(np.float32)
        sums = Accumulator(usual, weights, members, spread_edges=tuple(np.geomspace(0.01, 4, 40)))
        sums.add(EnsembleView(drawn, observed, reference=observed, spread_edges=tuple(np.geomspace(0.01, 4, 40))), [0])

    where = device()  # the run's own; what a GPU computes, the processor's clock does not count
    backbone.module.to(where)
    if where.startswith("cuda"):
        return measured(forward, ensemble, scored, CLOCKS[:1])
    usual, threads = measured(forward, ensemble, scored), torch.get_num_threads()
    if threads == 1 or forward > SLOW:
        return usual
    # beside other work, threads that wait for each other burn time on both clocks; one thread alone tells what is really computed
    torch.set_num_threads(1)
    try:
        alone = measured(undisturbed(lambda: backbone.suffix(backbone.prefix(batch, 0), 0)), ensemble, scored)
    finally:
        torch.set_num_threads(threads)
    return min(usual, alone, key=lambda cost: cost.call + cost.at(16))


def _plan(backbone: Any, data: dict[str, Any], members: int, cost: Cost | None) -> dict[str, Any]:
    """Bytes and seconds of a default sweep, said before anything runs; and what a form needs to say them for other settings."""
    from engine.runs.plan import memory_needed

    shard, nu = (RunSpec.model_fields[name].default for name in ("shard_cases", "nu"))
    variables = len(backbone.out_variables)
    memory = memory_needed(backbone, members=members, nu=len(nu), variables=variables, shard_cases=shard)
    plan: dict[str, Any] = {"memory_bytes": memory, "memory": human(memory), "members": members, "nu": len(nu), "variables": variables}
    plan |= {name: data[name] for name in ("cases", "calibrate_cases") if data.get(name)}
    if cost is not None:
        plan["cost"] = cost.as_dict()
        if plan.get("cases"):
            plan["sweep_seconds"] = estimate(plan, {"members": members})
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
    lines += attention_lines(found)
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
        plan = found["plan"]
        what = f"{plan['nu']} ν, {plan['members']} members, {plan['cases']} cases, {plan['variables']} variables"
        lines.append(f"a default sweep ({what}): about {plan['sweep_seconds'] / 60:.1f} min, {plan['memory']}")
    lines.append(f"REFUSED: {found['refusal']}" if found["refusal"] else "ready to run")
    return "\n".join(lines)
