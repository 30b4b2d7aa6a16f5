"""What a classification run will do: the opened classifier, its sets of examples, and each entry with method, parameters and state."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from engine import registry
from engine.backbones import open_checkpoint
from engine.data import open_labelled
from engine.errors import DatasetError, SpecError
from engine.labelled import Classifier, Classifies, Examples, Labelled
from engine.runs.classify.entries import TEACHER, Entry, given_params, parse_entry
from engine.runs.classify.spec import ClassifySpec
from engine.runs.classify.states import load_state
from engine.settings import settings

ID_SPACE = 2**24
"""Ids of each set of examples begin at a multiple of this, told by the set's name: no two sets share noise. Verification begins at 0."""


@dataclass(frozen=True)
class Contender:
    """An entry with everything settled. `shipped`: the state that was brought; None: it is learned."""

    entry: Entry
    method: Any
    params: Any
    members: int
    title: str
    shipped: "Mapping[str, Any] | None" = None
    path: Path | None = None
    """The shipped state's file."""

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.entry.name


@dataclass(frozen=True)
class Plan:
    """A spec with everything opened that it names."""

    spec: ClassifySpec
    classifier: Classifier
    verify: Labelled
    examples: Examples
    fit: Examples | None
    calibrate: Examples | None
    outside: Mapping[str, Examples]
    contenders: tuple[Contender, ...]
    teacher: Contender
    """The frozen model, which is computed whether it was asked for or not: it says which examples are shown."""
    notes: list[str] = field(default_factory=list)

    @property
    def computed(self) -> tuple[Contender, ...]:
        """The frozen model first, then the others in the spec's order."""
        return (self.teacher, *(c for c in self.contenders if c.name != self.teacher.name))

    @property
    def corrupted(self) -> tuple[tuple[str, int], ...]:
        """Corruption and severity of each further set."""
        return tuple((c, s) for c in self.spec.corruptions for s in self.spec.severities)

    @property
    def observed(self) -> NDArray[np.int64]:
        """`(case,)`: positions in the classifier's classes."""
        return self.examples.labels.cpu().numpy()

    @property
    def forwards(self) -> int:
        """Examples that each entry classifies, all sets together."""
        return len(self.examples) * (1 + len(self.corrupted)) + sum(map(len, self.outside.values()))


def make_plan(spec: ClassifySpec) -> Plan:
    """Open what the spec names and settle its defaults. Raises with the first thing that does not fit."""
    entries = spec.parsed
    methods = {e.name: _method(e) for e in entries}
    classifier = open_classifier(spec.checkpoint, spec.architecture)
    classifier.module.to(place())
    opened = {n: _open(spec, classifier, n, getattr(spec, n)) for n in ("data", "fit", "calibrate") if getattr(spec, n)}
    verify = opened["data"]
    columns = [n for n in ("text", "label") if getattr(spec, n)]
    if columns and verify.kind == "images":
        raise SpecError(
            "option " + " and ".join(f"--{n}" for n in columns),
            found="a model of images",
            expected="column names for tables of texts alone: images have their labels in an array, or in the names of folders",
            remedy="Leave it out.",
        )
    if spec.corruptions:
        _check_corruptions(spec, verify)
    notes = list(dict.fromkeys(line for labelled in opened.values() for line in labelled.changes))
    outside = {}
    for name, path in spec.outside.items():
        brought = _open(spec, classifier, name, (path,), outside=True)
        outside[name] = _prepare(classifier, brought, name)
    prepared = {n: _prepare(classifier, labelled, n) for n, labelled in opened.items()}
    fit, calibrate = prepared.get("fit"), prepared.get("calibrate")
    contenders = tuple(_contender(spec, e, methods[e.name], classifier, fit, calibrate) for e in entries)
    first = parse_entry(TEACHER)
    teacher = next((c for c in contenders if c.name == TEACHER), None) or _contender(
        spec, first, _method(first), classifier, fit, calibrate
    )
    return Plan(spec, classifier, verify, prepared["data"], fit, calibrate, outside, contenders, teacher, notes)


def open_classifier(checkpoint: Path, architecture: dict[str, Any]) -> Classifier:
    """The classifier of a checkpoint; a model of fields is refused in words."""
    opened: Any = open_checkpoint(checkpoint, **architecture)
    if not isinstance(opened, Classifier):
        raise SpecError(
            f"checkpoint {checkpoint.name}",
            found=f"{opened.title}: a model of fields",
            expected="a classifier",
            remedy="Fields are verified by a sweep: python -m engine sweep, or run with one method.",
        )
    return opened


def _open(spec: ClassifySpec, classifier: Classifier, role: str, paths: tuple[Path, ...], *, outside: bool = False) -> Labelled:
    """One set of examples, of one file or of several in their order, thinned evenly to `max_cases` where it is one to verify on."""
    limit = spec.max_cases if outside or role == "data" else None
    options: dict[str, Any] = {"kind": classifier.kind, "classes": classifier.classes, "outside": outside}
    options |= spec.roles()
    parts = [open_labelled(path, **options, limit=limit if len(paths) == 1 else None) for path in paths]
    joined = parts[0]
    if len(parts) > 1:
        shapes = sorted({p.inputs.shape[1:] for p in parts})
        if len(shapes) > 1:
            raise DatasetError(
                f"{role} of {len(parts)} files",
                found=f"examples of shapes {', '.join(map(str, shapes))}",
                expected="one shape",
                remedy="Bring files of one kind and size together.",
            )
        joined = replace(
            parts[0],
            inputs=np.concatenate([p.inputs for p in parts]),
            labels=np.concatenate([p.labels for p in parts]),
            changes=tuple(dict.fromkeys(line for p in parts for line in p.changes)),
            sources=tuple(s for p in parts for s in p.sources),
        )
        if limit is not None and limit < len(joined):
            joined = joined.rows(np.arange(limit) * len(joined) // limit)
    if not len(joined) or (not outside and (joined.labels < 0).any()):
        raise DatasetError(
            f"{role}: {', '.join(p.name for p in paths)}",
            found="no examples" if not len(joined) else f"{int((joined.labels < 0).sum())} examples without a label of the model's classes",
            expected="labelled examples" if not outside else "examples",
            remedy=f"The model's classes are {', '.join(classifier.classes[:12])}. Others belong to --outside name=FILE.",
        )
    return joined


def _prepare(classifier: Classifier, labelled: Labelled, role: str) -> Examples:
    """Examples on the classifier's device, with ids of their own."""
    return on_device(classifier.prepare(labelled, first_id(role)), classifier)


def first_id(role: str) -> int:
    """Id of a set's first example."""
    return 0 if role == "data" else ID_SPACE * (1 + crc32(role.encode()))


def place() -> str:
    """The CPU, unless a device is named: not every method of classification trains elsewhere yet."""
    return "cpu" if settings().device == "auto" else settings().device


def on_device(examples: Examples, classifier: Classifier) -> Examples:
    """The same where the model is."""
    where = next(classifier.module.parameters()).device
    return replace(examples, inputs={n: v.to(where) for n, v in examples.inputs.items()}, labels=examples.labels.to(where))


def _method(entry: Entry) -> Any:
    every = registry.entries("methods")
    method = every.get(entry.method)
    if not isinstance(method, Classifies):
        known = ", ".join(k for k, m in every.items() if isinstance(m, Classifies))
        raise SpecError(
            f"method {entry.method!r}",
            found="no method of this name" if method is None else "a method of fields, which does not classify",
            expected=f"one of {known}",
            remedy="Choose among these.",
        )
    return method


def _contender(
    spec: ClassifySpec, entry: Entry, method: Any, classifier: Classifier, fit: Examples | None, calibrate: Examples | None
) -> Contender:
    """Parameters, members, state. A shipped state brings its own parameters, which may only be said again, not changed."""
    path, shipped = spec.state_of(entry), None
    asked = given_params(entry, spec.params) | entry.asked
    params = _params(method, entry, asked)
    if path is not None:
        state, record = load_state(path, method=method.key, revision=classifier.revision)
        learned = _params(method, entry, record["params"])
        other = sorted(n for n in asked if getattr(params, n) != getattr(learned, n))
        if other:
            raise SpecError(
                f"state of {entry.name}",
                found=", ".join(f"{n} = {getattr(learned, n)!r}" for n in other) + f" in {path.name}",
                expected=", ".join(f"{n} = {getattr(params, n)!r}" for n in other),
                remedy="Leave those parameters out, or leave the state out: it is then learned anew.",
            )
        params = learned
        where = next(classifier.module.parameters()).device
        shipped = {name: tensor.to(where) for name, tensor in state.items()}
    method.check(classifier, params)
    for need, there, option in (("training", fit, "fit"), ("calibration", calibrate, "calibrate")):
        if need in method.needs and shipped is None and there is None:
            raise SpecError(
                f"method {entry.name}",
                found=f"no {option} files and no learned state",
                expected=f"labelled examples to learn from (field {option}, option --{option})",
                remedy=f"Name such a file, or bring what was learned before: python -m engine run --state {entry.state_name}=FILE",
            )
    if method.uses_nu and entry.nu is None and len(spec.nu) > 1 and calibrate is None:
        raise SpecError(
            f"ν of {entry.name}",
            found=f"{len(spec.nu)} values and no calibration files",
            expected="calibration files, on which one of them is chosen, or one ν",
            remedy="Name such a file with --calibrate, or one ν with --nu.",
        )
    members = (entry.members or spec.members) if method.sampled else 1
    title = "Frozen model" if entry.name == TEACHER else method.title + "".join(f", {w}" for w in entry.words)
    return Contender(entry, method, params, members, title, shipped, path)


def _params(method: Any, entry: Entry, given: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return method.ClassParams(**given)
    except ValidationError as fault:
        known = ", ".join(method.ClassParams.model_fields) or "none"
        wrong = fault.errors()[0]
        raise SpecError(
            f"params of {entry.name}",
            found=str(given)[:200],
            expected=f"fields: {known}",
            remedy=f"{'.'.join(map(str, wrong['loc']))}: {'no such field' if wrong['type'] == 'extra_forbidden' else wrong['msg']}",
        ) from fault


def _check_corruptions(spec: ClassifySpec, verify: Labelled) -> None:
    from engine.kernels.corruptions import STRENGTHS, TEXT_STRENGTHS

    known = {"images": STRENGTHS, "text": TEXT_STRENGTHS}.get(verify.kind, {})
    strange = [c for c in spec.corruptions if c not in known]
    if strange:
        raise SpecError(
            "corruptions",
            found=", ".join(strange),
            expected=f"of {verify.kind}: {', '.join(known) or 'none'}",
            remedy="Choose among these, or leave corruptions out.",
        )
