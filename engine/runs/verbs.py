"""What verbs that compute have in common: run in this process, copy the results, print the answer; and what the command line said."""

import shutil
from pathlib import Path
from typing import Any

import typer

from engine.errors import SpecError
from engine.runs.console import Ticker, mapping, names, numbers, show, writable
from engine.runs.reading import LABELLED_READING, READING
from engine.runs.told import tell


def calibrate_here(spec: Any, verify: bool, out: Path | None, as_json: bool) -> None:
    """Calibrate in this process, verify where that is asked for, copy the results to `out`, print the rows."""
    from engine.runs import calibration_rows, jobs
    from engine.runs.rows import table

    make_out(out)
    _refuse_classifier(spec)
    found = jobs.run(spec, Ticker())
    answer = calibration_rows.document(found)
    copy_results(found.attrs["key"], out, ("calibration.nc", "spec.json"))
    text = calibration_rows.table(answer)
    if verify:
        answer["verification"] = calibration_rows.verified(found, Ticker())
        text += "\n\n" + table(answer["verification"]) + calibration_rows.gain_text(answer["verification"])
    show(answer, as_json, text)


def make_out(out: Path | None) -> None:
    """Before hours of work, not after them."""
    if out is not None:
        with writable(out):
            out.mkdir(parents=True, exist_ok=True)


def copy_results(key: str, out: Path | None, files: tuple[str, ...]) -> None:
    """A run's results to `out`; of a folder among them what it holds."""
    from engine.runs import store

    if out is not None:
        with writable(out):
            kept = [n for n in files if (store.folder(key) / n).exists()]
            for name in kept:
                place = store.folder(key) / name
                if place.is_dir():
                    shutil.copytree(place, out / name, dirs_exist_ok=True)
                else:
                    shutil.copy2(place, out / name)
        tell(f"written to {out}: {', '.join(kept)}")


def compute_here(spec: Any, out: Path | None, as_json: bool) -> None:
    """Run in this process, copy the results to `out`, print the rows."""
    from engine.runs import jobs, rows
    from engine.runs.report import write_report
    from engine.runs.spec import RunSpec

    if not isinstance(spec, RunSpec):
        return classify_here(spec, out, as_json)
    if spec.tune is not None:
        return calibrate_here(spec, False, out, as_json)
    make_out(out)
    _refuse_classifier(spec)
    verification = jobs.run(spec, Ticker())
    if out is not None:
        copy_results(verification.attrs["key"], out, ("verification.nc", "fields.nc", "spec.json"))
        write_report(verification, out / "report.html")
        tell(f"written to {out}: report.html")
    document = rows.document(verification)
    return show(document, as_json, rows.table(document))


def classify_here(spec: Any, out: Path | None, as_json: bool) -> None:
    """Run a classification in this process, copy its results and the states that it learned to `out`, print the table."""
    from engine.runs import jobs
    from engine.runs.classify import rows

    make_out(out)
    found = jobs.run(spec, Ticker())
    copy_results(found.attrs["key"], out, ("classification.nc", "spec.json", "states"))
    answer = rows.document(found)
    show(answer, as_json, rows.table(answer))


def is_classifier(checkpoint: Path, weights: str | None = None) -> bool:
    """Whether a checkpoint holds a model of class labels; raises as opening it does where it holds no known model at all."""
    from engine.backbones import tasks_of

    return "classification" in tasks_of(checkpoint, weights=weights)


def _refuse_classifier(spec: Any) -> None:
    """A sweep or a calibration of class labels is none: say where they are run."""
    if is_classifier(spec.checkpoint, spec.architecture.get("weights")):
        data = f" --data {spec.data[0]}"
        raise SpecError(
            f"checkpoint {spec.checkpoint.name}",
            found="a classifier",
            expected="a model of fields, whose ensembles are verified over a grid of ν",
            remedy=f"Classifiers are run by: python -m engine run --method stochastic_attention --checkpoint {spec.checkpoint}{data}",
        )


def spec_alone(context: typer.Context, path: Path, also: tuple[str, ...] = ()) -> Any:
    """The spec of a file; options beside it would be lost, so they are refused."""
    from engine.runs.spec import read_spec

    given = [n for n in context.params if n not in ("spec", "out", "as_json", *also) and was_given(context, n)]
    if given:
        beside = ", ".join(f"--{n.replace('_', '-')}" for n in given)
        raise SpecError(
            "--spec", found=f"also {beside}", expected="the file alone", remedy="Write those into the file, or leave --spec out."
        )
    return read_spec(path)


def pairs(values: list[str] | None, option: str) -> dict[str, Path]:
    """`name=path`, given any number of times."""
    found: dict[str, Path] = {}
    for text in values or ():
        name, equals, path = text.partition("=")
        if not equals or not name.strip() or not path.strip() or name in found:
            expected = "name=path, each name once"
            raise SpecError(f"--{option}", found=text[:120], expected=expected, remedy=f"Write it like --{option} letters=FILE.")
        found[name.strip()] = Path(path.strip())
    return found


def was_given(context: typer.Context, name: str) -> bool:
    """On the command line, not by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def reading(
    rename: str | None,
    read: str | None,
    calendar: str | None,
    select: str | None = None,
    step_hours: float | None = None,
    missing: float | None = None,
) -> dict[str, Any]:
    """Fields of a `Reading`, from the options that were given."""
    said = {"rename": rename, "read": names(read) if read else None, "calendar": calendar, "select": select}
    said |= {"step_hours": step_hours, "missing": missing}
    return {name: value for name, value in said.items() if value is not None}


LABELS = ("outside", "state", "corruptions", "severities", "examples", *LABELLED_READING)
"""Options of `run` that are about class labels alone."""
FIELDS = ("normalisation", "climatology", "variables", "lead_hours", "student", *READING)
"""Options of `run` that are about fields alone."""


def run_spec(given: dict[str, Any]) -> Any:
    """The spec of the verb `run`, from the options that were given."""
    from engine.runs.classify.demo import classify_demo_spec
    from engine.runs.spec import parse_spec

    given = {n: v for n, v in given.items() if n not in ("out", "as_json", "spec", "context")}
    checkpoint = given.get("checkpoint")
    if checkpoint is None:
        beside = sorted({"data", *FIELDS} & set(given))
        if beside:
            found = f"no --checkpoint, but --{beside[0].replace('_', '-')}"
            raise SpecError(
                "run", found=found, expected="a checkpoint and data, or neither for the image demo", remedy="Name --checkpoint."
            )
        tell("no checkpoint named: the image demo is run")
        return classify_demo_spec(**_of_labels(given))
    if not given.get("data"):
        raise SpecError("run", found="no --data", expected="labelled files or fields to verify on", remedy="Name --data FILE.")
    classifier = is_classifier(checkpoint, mapping(given.get("architecture"), "architecture").get("weights"))
    strange = [n for n in (FIELDS if classifier else LABELS) if n in given]
    if strange:
        raise SpecError(
            f"--{strange[0].replace('_', '-')}",
            found=f"{checkpoint.name}: a {'classifier' if classifier else 'model of fields'}",
            expected=f"a {'model of fields' if classifier else 'classifier'} for this option",
            remedy="Leave the option out.",
        )
    return parse_spec({"task": "classification", **_of_labels(given)}) if classifier else parse_spec(_of_fields(given))


def accepting(params: dict[str, Any], partial: bool) -> dict[str, Any]:
    """A method's parameters with `--partial` among them."""
    return params | {"partial": True} if partial else params


def _of_labels(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a ClassifySpec."""
    fields = {
        n: given[n]
        for n in ("checkpoint", "members", "seed", "max_cases", "examples", "bootstrap", "title", *LABELLED_READING)
        if n in given
    }
    fields |= {n: tuple(given[n]) for n in ("data", "fit", "calibrate") if n in given}
    fields |= {n: numbers(given[n], n) for n in ("nu", "severities") if n in given}
    fields |= {n: mapping(given[n], n) for n in ("params", "architecture") if n in given}
    fields |= {field: pairs(given[n], n) for n, field in (("outside", "outside"), ("state", "states")) if n in given}
    if "corruptions" in given:
        fields["corruptions"] = () if given["corruptions"] == "none" else names(given["corruptions"])
    if "method" in given:
        fields["entries"] = names(given["method"])
    entries = fields.get("entries", ())
    if len(entries) == 1 and fields.get("params") and not all(isinstance(v, dict) for v in fields["params"].values()):
        fields["params"] = {entries[0]: fields["params"]}  # of one method, its parameters stand by themselves
    if given.get("partial"):
        asked = fields.get("params", {})
        fields["params"] = asked | {"stochastic_attention": accepting(asked.get("stochastic_attention", {}), True)}
    return fields


def _of_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a RunSpec with one method."""
    methods = names(given.get("method"))
    if len(methods) != 1:
        raise SpecError(
            "--method",
            found=", ".join(methods) or "none",
            expected="one method, for a model of fields",
            remedy="Name one, and compare the runs of several afterwards.",
        )
    fields = {
        n: given[n]
        for n in ("checkpoint", "members", "seed", "max_cases", "bootstrap", "title", "normalisation", "climatology", "student")
        if n in given
    }
    fields |= {n: tuple(given[n]) for n in ("data", "fit", "calibrate") if n in given}
    fields |= {n: mapping(given[n], n) for n in ("params", "architecture") if n in given}
    fields |= {"nu": numbers(given["nu"], "nu")} if "nu" in given else {}
    fields |= {"lead_hours": numbers(given["lead_hours"], "lead-hours", float)} if "lead_hours" in given else {}
    fields |= {n: names(given[n]) for n in ("variables", "read") if n in given}
    fields |= {n: given[n] for n in READING if n in given and n != "read"}
    if given.get("partial"):
        fields["params"] = accepting(fields.get("params", {}), True)
    return fields | {"method": methods[0]}
