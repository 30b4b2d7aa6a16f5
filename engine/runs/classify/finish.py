"""From answers to `classification.nc`, by the schema of `engine.runs.classification`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import engine
from engine.kernels.bootstrap import interval, resample
from engine.kernels.corruptions import TITLES
from engine.kernels.detection import detection
from engine.labelled import ClassScore, ClassView
from engine.runs.classify.answers import Answer
from engine.runs.classify.entries import TEACHER
from engine.runs.classify.plan import Plan
from engine.runs.classify.scores import class_scores, differences, score_table
from engine.runs.classify.work import CHOOSE_ON
from engine.runs.fields import write
from engine.types import Array

CORRUPTED = ("accuracy", "ece", "nll")
"""Scores by corruption and severity."""
ROUNDING = 1e-12
ENDS = ("", "_low", "_high")
STEPS = ("step_spread", "step_correlation", "step_error", "step_sigma", "step_sigma_variation")


def finish(plan: Plan, answers: Mapping[str, Answer], shown: NDArray[np.int64], chosen: Mapping[str, Any], folder: Path) -> None:
    """Write `classification.nc`, whole or not at all."""
    dataset = describe(plan, answers, shown, chosen)
    dataset.attrs["key"] = folder.name
    encoding: dict[str, Any] = {
        str(n): {"zlib": True, "complevel": 4} for n, v in dataset.variables.items() if v.ndim > 1 and v.dtype.kind in "fu"
    }
    write(dataset, folder / "classification.nc", encoding)


def describe(plan: Plan, answers: Mapping[str, Answer], shown: NDArray[np.int64], chosen: Mapping[str, Any]) -> xr.Dataset:
    """The whole result."""
    variables: dict[str, Any] = {}
    _scores(plan, answers, variables)
    _outside(plan, answers, variables)
    _corrupted(plan, answers, variables)
    _cases(plan, answers, shown, variables)
    _costs(answers, variables)
    steps = _steps(plan, answers, variables)
    dataset = xr.Dataset(variables, _coordinates(plan, shown, steps, variables))
    dataset.attrs = _attributes(plan, chosen)
    return dataset


def _put(variables: dict[str, Any], name: str, dims: tuple[str, ...], triples: Any, score: ClassScore | None = None) -> None:
    """`name`, `name_low`, `name_high` from (value, low, high) on the last axis."""
    array = np.asarray(triples, np.float64)
    array = np.where(np.abs(array) < ROUNDING, 0.0, array)  # an end that is zero must not read as beyond it
    about = {} if score is None else attributes(score)
    for k, end in enumerate(ENDS):
        variables[name + end] = (dims, array[..., k], about)


def attributes(score: ClassScore) -> dict[str, Any]:
    """What a score says of itself."""
    return {
        "title": score.title,
        "symbol": score.symbol,
        "units": score.unit,
        "better": score.better,
        "perfect": score.perfect,
        "estimator": score.estimator,
        "reference": score.reference,
    }


def _scores(plan: Plan, answers: Mapping[str, Answer], variables: dict[str, Any]) -> None:
    """Scores with their intervals, and paired differences."""
    scores = class_scores()
    options: dict[str, Any] = {"replicates": plan.spec.bootstrap, "seed": plan.spec.seed}
    tables = {name: score_table(a.probabilities, plan.observed, scores, **options) for name, a in answers.items()}
    apart = [[differences(tables[n], tables[a]) for a in plan.spec.against] for n in answers]
    for key, score in scores.items():
        _put(variables, key, ("entry",), [tables[n][key][:3] for n in answers], score)
        if plan.spec.against:
            _put(variables, f"{key}_difference", ("entry", "against"), [[pair[key] for pair in row] for row in apart], score)


def _outside(plan: Plan, answers: Mapping[str, Answer], variables: dict[str, Any]) -> None:
    """Detection scores of each out-of-distribution set, and the greatest probabilities there."""
    if not plan.outside:
        return
    scores = class_scores(outside=True)
    options: dict[str, Any] = {"replicates": plan.spec.bootstrap, "seed": plan.spec.seed}
    found = [
        [score_table(a.probabilities, plan.observed, scores, outside=a.outside[o], **options) for o in plan.outside]
        for a in answers.values()
    ]
    for key, score in scores.items():
        _put(variables, key, ("entry", "ood"), [[table[key][:3] for table in row] for row in found], score)
    most = max(map(len, plan.outside.values()))
    confidence = np.full((len(answers), len(plan.outside), most), np.nan, np.float32)
    for i, a in enumerate(answers.values()):
        for j, o in enumerate(plan.outside):
            confidence[i, j, : len(a.outside[o])] = a.outside[o].max(-1)
    variables["outside_confidence"] = (
        ("entry", "ood", "outside"),
        confidence,
        {"long_name": "greatest probability; NaN beyond a set's end"},
    )


def _corrupted(plan: Plan, answers: Mapping[str, Answer], variables: dict[str, Any]) -> None:
    """Scores by corruption and severity; severity 0 repeats the clean value."""
    if not plan.corrupted:
        return
    spec, scores = plan.spec, class_scores()
    for key, score in ((key, scores[key]) for key in CORRUPTED):
        values = np.empty((len(answers), len(spec.corruptions), 1 + len(spec.severities)))
        for i, a in enumerate(answers.values()):
            values[i, :, 0] = _value(score, a.probabilities, plan)
            for c, corruption in enumerate(spec.corruptions):
                for s, severity in enumerate(spec.severities):
                    values[i, c, 1 + s] = _value(score, a.corrupted[corruption, severity], plan)
        variables[f"{key}_corrupted"] = (("entry", "corruption", "severity"), values, attributes(score))


def _value(score: ClassScore, probabilities: Array, plan: Plan) -> float:
    value = score.value(ClassView(probabilities, plan.observed))
    assert isinstance(value, float)
    return value


def _cases(plan: Plan, answers: Mapping[str, Answer], shown: NDArray[np.int64], variables: dict[str, Any]) -> None:
    """Probabilities of every case, and everything about the few that are shown."""
    variables["probability"] = (("entry", "case", "class"), np.stack([a.probabilities for a in answers.values()]))
    variables["observed"] = ("case", plan.observed)
    spread = np.stack([a.spread for a in answers.values()])
    variables["spread"] = (("entry", "case"), spread, {"long_name": "root of the summed variance of the members' class probabilities"})
    if not len(shown):
        return
    most = max(a.members for a in answers.values())
    paths = np.full((len(answers), len(shown), most, len(plan.classifier.classes)), np.nan, np.float32)
    for i, a in enumerate(answers.values()):
        if a.paths is not None:
            paths[i, :, : len(a.paths)] = np.moveaxis(a.paths, 0, 1)
    variables["path_probability"] = (("entry", "example", "path", "class"), paths)
    inputs = plan.verify.inputs[shown]
    if plan.verify.kind == "images":
        variables["example_image"] = (("example", "row", "column", "channel"), inputs)
    elif plan.verify.kind == "text":
        variables["example_text"] = ("example", [str(text) for text in inputs])


def _costs(answers: Mapping[str, Answer], variables: dict[str, Any]) -> None:
    parameters = np.asarray([a.parameters for a in answers.values()], np.int64)
    variables["parameters"] = ("entry", parameters, {"long_name": "numbers that inference needs"})
    variables["members"] = ("entry", np.asarray([a.members for a in answers.values()]))
    variables["fit_seconds"] = ("entry", [a.fit_seconds for a in answers.values()], {"units": "s"})
    said = "inference of one example with all members; median over shards"
    variables["milliseconds"] = ("entry", [a.milliseconds for a in answers.values()], {"units": "ms", "long_name": said})
    variables["memory_bytes"] = ("entry", 4 * parameters, {"units": "bytes", "long_name": "4 × parameters"})


def _steps(plan: Plan, answers: Mapping[str, Answer], variables: dict[str, Any]) -> int:
    """What the transitions of a DIRECTOR look like; returns how many there are, 0 where no entry has any."""
    count = max((len(a.steps["step_spread"]) for a in answers.values() if "step_spread" in a.steps), default=0)
    if not count:
        return 0
    for name in STEPS:
        shape = (count, count) if name == "step_correlation" else (count,)
        values = np.full((len(answers), *shape), np.nan)
        for i, a in enumerate(answers.values()):
            if name in a.steps:
                own = a.steps[name]
                values[(i, *(slice(0, n) for n in own.shape))] = own
        variables[name] = (("entry", "step", "step_other")[: values.ndim], values)
    triples = [_tells_mistakes(a, plan) for a in answers.values()]
    _put(variables, "spread_error_auroc", ("entry",), triples)
    said = "mistakes positive; score: spread of the members' probabilities of an example (root of the summed variance)"
    variables["spread_error_auroc"][2].update(title="Spread tells mistakes", estimator=said, better="higher", perfect=1.0, units="1")
    return count


def _tells_mistakes(a: Answer, plan: Plan) -> tuple[float, float, float]:
    """AUROC with which an example's spread tells mistakes, with its interval; NaN without spread, mistakes or right answers."""
    wrong = a.probabilities.argmax(-1) != plan.observed
    if np.isnan(a.spread).any() or np.ptp(a.spread) == 0:  # one member, or none that differs from the others
        return (np.nan, np.nan, np.nan)
    counts = resample(len(wrong), 1, plan.spec.bootstrap, plan.spec.seed)
    weights = np.concatenate([np.ones((1, len(wrong))), counts])
    values = detection(a.spread[wrong], a.spread[~wrong], weights[:, wrong], weights[:, ~wrong]).auroc
    value, drawn = float(values[0]), values[1:][~np.isnan(values[1:])]
    if np.isnan(value) or not len(drawn):
        return (value, np.nan, np.nan)
    low, high = interval(np.asarray(value), drawn)
    return (value, float(low), float(high))


def _coordinates(plan: Plan, shown: NDArray[np.int64], steps: int, variables: Mapping[str, Any]) -> dict[str, Any]:
    names = [c.name for c in plan.contenders]
    coordinates: dict[str, Any] = {
        "entry": names,
        "entry_title": ("entry", [c.title for c in plan.contenders]),
        "class": list(plan.classifier.classes),
        "case": np.asarray(plan.examples.ids),
        "against": list(plan.spec.against),
        "ood": list(plan.outside),
        "corruption": list(plan.spec.corruptions),
        "corruption_title": ("corruption", [TITLES[c] for c in plan.spec.corruptions]),
        "severity": [0, *plan.spec.severities],
        "example": np.asarray(plan.examples.ids)[shown],
    }
    if "path_probability" in variables:
        coordinates["path"] = np.arange(variables["path_probability"][1].shape[2])
    if steps:
        coordinates |= {"step": np.arange(1, steps + 1), "step_other": np.arange(1, steps + 1)}
    used = {d for value in variables.values() for d in ((value[0],) if isinstance(value[0], str) else value[0])}
    return {n: v for n, v in coordinates.items() if n.removesuffix("_title") in used}


def _attributes(plan: Plan, chosen: Mapping[str, Any]) -> dict[str, Any]:
    spec = plan.spec
    notes = [*plan.notes, *_notes(plan, chosen)]
    own = {c.entry.nu or spec.nu[0] for c in plan.contenders if c.method.uses_nu and c.name not in chosen}
    nu = next(iter(chosen.values()))["nu"] if chosen else min(own) if own else 0
    of = min(CHOOSE_ON, len(plan.calibrate or ()))
    rule = f"least NLL on {of} examples of the calibration split" if chosen else "as asked" if own else ""
    return {
        "task": "classification",
        "command": spec.command(),
        "spec": spec.model_dump_json(),
        "members": spec.members,
        "seed": spec.seed,
        "cases": len(plan.examples),
        "title": spec.title,
        "version": engine.__version__,
        "teacher": TEACHER if TEACHER in spec.entries else "",
        "checkpoint_revision": plan.classifier.revision,
        "data": ", ".join(path.name for path in spec.data),
        "dataset_fingerprint": plan.verify.fingerprint,
        "kind": plan.verify.kind,
        "bootstrap": spec.bootstrap,
        "ece_rule": class_scores()["ece"].estimator,
        "notes": json.dumps(notes, ensure_ascii=False),
        "nu": nu,
        "nu_rule": rule,
        "nu_table": json.dumps({name: found["table"] for name, found in chosen.items()}),
    }


def _notes(plan: Plan, chosen: Mapping[str, Any]) -> list[str]:
    """What a reader of the results must know."""
    spec, said = plan.spec, []
    for name, found in chosen.items():
        if found["nu"] in (spec.nu[0], spec.nu[-1]):
            said.append(f"{name}: the chosen ν = {found['nu']} lies at an end of the grid; the least NLL may lie beyond it")
    shipped = [c.name for c in plan.contenders if c.shipped is not None and c.shipped]
    if shipped:
        said.append(f"learned before, and not in this run: {', '.join(shipped)}")
    if TEACHER not in spec.entries:
        said.append("the frozen model was not among the entries, so nothing is compared with it")
    if any(len(e) < 200 for e in (plan.examples, *plan.outside.values())):
        said.append("fewer than 200 examples: intervals are wide, and calibration errors are biased upwards")
    return said
