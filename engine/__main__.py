"""The command line: `python -m engine VERB …`. Every verb has `--json`, which prints one JSON document on stdout and nothing else."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import SpecError
from engine.runs import options
from engine.runs.console import answering, box, mapping, names, numbers, score_text, show
from engine.runs.told import tell
from engine.runs.verbs import accepting, calibrate_here, compute_here, reading, spec_alone, was_given

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Calibrated probabilistic forecasts from a frozen transformer.")


@app.command()
def doctor(as_json: options.Json = False) -> None:
    """Device, versions, a real kernel run, writable folders."""
    from engine.runs.doctor import examine

    with answering(as_json):
        found = examine()
        show(found, as_json, "\n".join(f"{'ok  ' if c['ok'] else 'BAD '} {c['name']}: {c['found']}" for c in found["checks"]))
        if not found["ok"]:
            raise typer.Exit(2)


@app.command()
def demo(
    out: options.Out = None,
    nu: Annotated[str | None, typer.Option(help="other concentrations, like 1,2,4")] = None,
    members: Annotated[int, typer.Option(help="ensemble members")] = 20,
    cases: Annotated[int, typer.Option(help="verification cases")] = 42,
    seed: Annotated[int, typer.Option(help="seed of all noise")] = 0,
    as_json: options.Json = False,
) -> None:
    """The main job on the embedded default: sweep, choose the operating points, verify, report."""
    from engine.runs.spec import demo_spec

    with answering(as_json):
        changes = {"nu": numbers(nu, "nu")} if nu else {}
        compute_here(demo_spec(members=members, max_cases=cases, seed=seed, **changes), out, as_json)


@app.command()
def sweep(
    context: typer.Context,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    calibrate: options.Calibrate = None,
    fit: options.Fit = None,
    student: options.Student = None,
    normalisation: options.Normalisation = None,
    climatology: options.Climatology = None,
    architecture: options.Architecture = None,
    nu: Annotated[str, typer.Option(help="concentrations")] = "1,2,4,8,16,32,64,256",
    members: options.Members = 20,
    seed: options.Seed = 0,
    max_cases: options.MaxCases = None,
    lead_hours: options.LeadHours = None,
    variables: options.Variables = None,
    rename: options.Rename = None,
    read: options.Read = None,
    calendar: options.Calendar = None,
    select: options.Select = None,
    missing: options.Missing = None,
    step_hours: options.StepHours = None,
    scores: Annotated[str | None, typer.Option(help="scores of the catalogue")] = None,
    regions: Annotated[str | None, typer.Option(help='further regions as JSON: {"Alps": [43, 49, 5, 16]}')] = None,
    method: options.MethodName = "stochastic_attention",
    params: options.Params = None,
    partial: options.Partial = False,
    maps: Annotated[bool, typer.Option(help="store maps of single cases")] = True,
    bootstrap: options.Bootstrap = 500,
    thresholds: Annotated[str | None, typer.Option(help="events: anomaly above so many standard deviations")] = None,
    calibrate_cases: options.CalibrateCases = 24,
    calibrate_members: options.CalibrateMembers = 4,
    chosen: Annotated[str | None, typer.Option(help='operating points found before, as JSON: {"calibration_first": 15}')] = None,
    posthoc: Annotated[str, typer.Option(help="a post-hoc method that follows the ensemble, fitted on the calibration files")] = "",
    posthoc_params: Annotated[str | None, typer.Option(help="its parameters as JSON")] = None,
    title: options.Title = "",
    spec: options.SpecFile = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Verify ensembles over a grid of ν."""
    from engine.runs.spec import parse_spec

    with answering(as_json):
        if spec is not None:
            return compute_here(spec_alone(context, spec), out, as_json)
        if checkpoint is None or not data:
            raise SpecError(
                "sweep", found="no --checkpoint or no --data", expected="both, or --spec FILE", remedy="See: python -m engine sweep --help"
            )
        fields: dict[str, Any] = {
            "checkpoint": checkpoint, "data": tuple(data), "calibrate": tuple(calibrate or ()), "fit": tuple(fit or ()),
            "student": student, "normalisation": normalisation, "climatology": climatology,
            "architecture": mapping(architecture, "architecture"), "nu": numbers(nu, "nu"), "members": members,
            "seed": seed, "max_cases": max_cases, "lead_hours": numbers(lead_hours, "lead-hours", float) if lead_hours else (),
            "variables": names(variables), "scores": names(scores), "regions": mapping(regions, "regions"), "method": method,
            "params": accepting(mapping(params, "params"), partial), "maps": maps, "bootstrap": bootstrap, "title": title,
            "calibrate_cases": calibrate_cases, "calibrate_members": calibrate_members, "chosen": mapping(chosen, "chosen"),
            "posthoc": posthoc, "posthoc_params": mapping(posthoc_params, "posthoc-params"),
        } | reading(rename, read, calendar, select, step_hours, missing)  # fmt: skip
        if thresholds:
            fields["thresholds"] = numbers(thresholds, "thresholds", float)
        return compute_here(parse_spec(fields), out, as_json)


@app.command()
def calibrate(
    context: typer.Context,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    calibrate: options.Calibrate = None,
    normalisation: options.Normalisation = None,
    climatology: options.Climatology = None,
    architecture: options.Architecture = None,
    members: options.Members = 20,
    seed: options.Seed = 0,
    max_cases: options.MaxCases = None,
    lead_hours: options.LeadHours = None,
    variables: options.Variables = None,
    rename: options.Rename = None,
    read: options.Read = None,
    calendar: options.Calendar = None,
    select: options.Select = None,
    missing: options.Missing = None,
    step_hours: options.StepHours = None,
    method: options.MethodName = "stochastic_attention",
    params: options.Params = None,
    partial: options.Partial = False,
    bootstrap: options.Bootstrap = 500,
    calibrate_cases: options.CalibrateCases = 24,
    calibrate_members: options.CalibrateMembers = 4,
    objective: Annotated[str, typer.Option(help="scale, per_example, grid; or w1_pit, crps_fair, coverage_95, nll_gaussian")] = "scale",
    nu_max: Annotated[int, typer.Option(help="largest ν that may be chosen")] = 512,
    norm: Annotated[str, typer.Option(help="units of the scales: normalised or physical")] = "normalised",
    area_weighted: Annotated[bool, typer.Option(help="weigh points by their area in the scales")] = True,
    norm_variables: Annotated[str | None, typer.Option(help="variables in the scales; default: all that are verified")] = None,
    initial: Annotated[int, typer.Option(help="passes of the first, log-spaced design")] = 10,
    draws: Annotated[int, typer.Option(help="posterior draws a round")] = 100,
    per_round: Annotated[int, typer.Option(help="passes a round")] = 10,
    tolerance: Annotated[float, typer.Option(help="loss ratio below which the tuner stops")] = 1.03,
    rounds: Annotated[int, typer.Option(help="rounds at most")] = 50,
    score_calls: Annotated[int, typer.Option(help="further ν that each score's search may evaluate")] = 5,
    per_layer: Annotated[bool, typer.Option(help="also search a ν for each block of layers")] = False,
    per_layer_objective: Annotated[str, typer.Option(help="crps_fair, w1_pit or nll_gaussian")] = "crps_fair",
    verify: Annotated[bool, typer.Option(help="afterwards verify at both points (and the layers' ν) on the data")] = False,
    title: options.Title = "",
    spec: options.SpecFile = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """ν*, both operating points, the surrogate's fit. Without a checkpoint: on the embedded demo."""
    from engine.runs.calibration import calibration_spec
    from engine.runs.spec import demo_spec, parse_spec

    with answering(as_json):
        if spec is not None:
            asked = spec_alone(context, spec, also=("verify",))
            return calibrate_here(asked if asked.tune else calibration_spec(asked), verify, out, as_json)
        tune: dict[str, Any] = {
            "objective": objective, "nu_max": nu_max, "norm": norm, "area_weighted": area_weighted, "norm_variables": names(norm_variables),
            "initial": initial, "draws": draws, "per_round": per_round, "tolerance": tolerance, "rounds": rounds,
            "score_calls": score_calls, "per_layer": per_layer, "per_layer_objective": per_layer_objective,
        }  # fmt: skip
        fields: dict[str, Any] = {
            "normalisation": normalisation, "climatology": climatology, "architecture": mapping(architecture, "architecture"),
            "members": members, "seed": seed, "max_cases": max_cases, "variables": names(variables), "method": method,
            "lead_hours": numbers(lead_hours, "lead-hours", float) if lead_hours else (),
            "params": accepting(mapping(params, "params"), partial),
            "bootstrap": bootstrap, "title": title, "calibrate_cases": calibrate_cases, "calibrate_members": calibrate_members,
        } | reading(rename, read, calendar, select, step_hours, missing)  # fmt: skip
        if checkpoint is None and not data and not calibrate:
            tell("no checkpoint named: the embedded demo is calibrated")
            given = {n: v for n, v in fields.items() if was_given(context, n)}
            return calibrate_here(calibration_spec(demo_spec(**given), **tune), verify, out, as_json)
        if checkpoint is None or not data:  # whether there is anything to calibrate on, a tree of splits included, the spec asks
            raise SpecError(
                "calibrate",
                found=", ".join(f"no --{n}" for n, v in (("checkpoint", checkpoint), ("data", data)) if not v),
                expected="a checkpoint, files to calibrate on, and files to verify on later",
                remedy="Name all three, or none for the demo; or --spec FILE.",
            )
        fields |= {"checkpoint": checkpoint, "data": tuple(data), "calibrate": tuple(calibrate or ())}
        return calibrate_here(parse_spec(fields | {"tune": tune}), verify, out, as_json)


@app.command()
def run(
    context: typer.Context,
    method: options.Methods = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    fit: options.Fit = None,
    calibrate: options.Calibrate = None,
    outside: options.Outside = None,
    state: options.States = None,
    params: Annotated[str | None, typer.Option(help='parameters by entry as JSON: {"director": {"epochs": 20}}')] = None,
    partial: options.Partial = False,
    members: Annotated[int | None, typer.Option(help="members of sampled methods; default: 10, of fields 20")] = None,
    nu: Annotated[str | None, typer.Option(help="ν of stochastic attention; of several, the calibration files choose (classes)")] = None,
    seed: options.Seed = 0,
    corruptions: Annotated[str, typer.Option(help="corruptions of the images with commas between, or none")] = "none",
    severities: Annotated[str, typer.Option(help="their severities, of 1 … 5")] = "1,2,3,4,5",
    max_cases: options.MaxCases = None,
    examples: Annotated[int, typer.Option(help="examples that are kept to be shown one by one")] = 24,
    bootstrap: options.Bootstrap = 500,
    architecture: options.Architecture = None,
    text: options.TextColumn = None,
    label: options.LabelColumn = None,
    encoding: options.Encoding = None,
    size: options.Size = None,
    normalisation: options.Normalisation = None,
    climatology: options.Climatology = None,
    variables: options.Variables = None,
    rename: options.Rename = None,
    read: options.Read = None,
    calendar: options.Calendar = None,
    select: options.Select = None,
    missing: options.Missing = None,
    step_hours: options.StepHours = None,
    lead_hours: options.LeadHours = None,
    student: options.Student = None,
    title: options.Title = "",
    spec: options.SpecFile = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Run methods of the catalogue: several on a classifier, one on a model of fields; without a checkpoint the image demo."""
    from engine.runs.verbs import run_spec

    with answering(as_json):
        if spec is not None:
            return compute_here(spec_alone(context, spec), out, as_json)
        given = {n: v for n, v in locals().items() if n in context.params and was_given(context, n)}
        return compute_here(run_spec(given), out, as_json)


@app.command()
def inspect(
    checkpoint: Path,
    data: Annotated[list[Path] | None, typer.Argument(help="data to check against it")] = None,
    calibrate: Annotated[list[Path] | None, typer.Option(help="calibration data to check too")] = None,
    normalisation: Annotated[Path | None, typer.Option(help="the checkpoint's own normalisation")] = None,
    climatology: Annotated[Path | None, typer.Option(help="climatology")] = None,
    architecture: Annotated[str | None, typer.Option(help='what the checkpoint does not record, as JSON: {"num_heads": 16, …}')] = None,
    num_heads: Annotated[int | None, typer.Option(help="attention heads (no checkpoint of ClimaX records them)")] = None,
    members: Annotated[int, typer.Option(help="members to plan for", min=2)] = 20,
    rename: options.Rename = None,
    read: options.ReadHere = None,
    calendar: options.Calendar = None,
    select: options.Select = None,
    missing: options.Missing = None,
    step_hours: options.StepHours = None,
    text: options.TextColumn = None,
    label: options.LabelColumn = None,
    encoding: options.Encoding = None,
    size: options.Size = None,
    partial: options.Partial = False,
    as_json: options.Json = False,
) -> None:
    """Preflight: format, backbone, keys, sites, replay error, units, grid, calendar, missing values, memory."""
    from engine.runs.inspect import inspect_files, inspection_text
    from engine.runs.reading import LabelledReading, Reading, parse_reading

    with answering(as_json):
        facts = mapping(architecture, "architecture") | ({"num_heads": num_heads} if num_heads is not None else {})
        found = inspect_files(
            checkpoint,
            tuple(data or ()),
            calibrate=tuple(calibrate or ()),
            normalisation=normalisation,
            climatology=climatology,
            members=members,
            architecture=facts,
            reading=parse_reading(Reading, reading(rename, read, calendar, select, step_hours, missing)),
            labelled=parse_reading(LabelledReading, {"text": text, "label": label, "encoding": encoding, "size": size}),
            partial=partial,
        )
        show(found, as_json, inspection_text(found))
        if found["refusal"]:
            raise typer.Exit(2)


@app.command()
def score(
    forecast: Annotated[list[Path], typer.Option(help="ensemble, NetCDF or Zarr; may be given again")],
    observed: Annotated[list[Path], typer.Option(help="observations on the same grid; may be given again")],
    scores: Annotated[str, typer.Option(help="scores of the catalogue")] = "crps_fair,w1_pit,coverage_95,width_95,rmse,spread_skill_ratio",
    member_dim: Annotated[str | None, typer.Option(help="name of the member dimension, where it is not recognised")] = None,
    variable: Annotated[str | None, typer.Option(help="variable, where there are several")] = None,
    rename: options.Rename = None,
    read: options.ReadHere = None,
    calendar: options.Calendar = None,
    select: options.Select = None,
    missing: options.Missing = None,
    climatology: Annotated[Path | None, typer.Option(help="climatology, for anomaly scores and for thresholds above it")] = None,
    thresholds: Annotated[str | None, typer.Option(help="events: more than so much (above the climatology, where one is given)")] = None,
    lead_time: Annotated[float | None, typer.Option(help="lead time in hours, where the forecast holds several")] = None,
    region: Annotated[str | None, typer.Option(help="a default region's name, or a box as JSON: [south, north, west, east]")] = None,
    seed: Annotated[int, typer.Option(help="seed of the bootstrap", min=0)] = 0,
    as_json: options.Json = False,
) -> None:
    """Verify an ensemble from anywhere against observations: no model needed."""
    from engine.runs.reading import Reading, parse_reading
    from engine.runs.score import score_files

    with answering(as_json):
        found = score_files(
            forecast,
            observed,
            names(scores),
            member_dim=member_dim,
            variable=variable,
            climatology=climatology,
            **parse_reading(Reading, reading(rename, read, calendar, select, None, missing)).roles(),
            thresholds=numbers(thresholds, "thresholds", float) if thresholds else (),
            lead_time=lead_time,
            region=box(region, "region"),
            seed=seed,
            say=tell,
        )
        show(found, as_json, score_text(found))


@app.command()
def report(run: str, out: Annotated[Path, typer.Option(help="file to write")] = Path("report.html"), as_json: options.Json = False) -> None:
    """One self-contained HTML file of a run."""
    from engine.runs.jobs import result
    from engine.runs.report import write_report

    with answering(as_json):
        write_report(result(run), out)
        show({"run": run, "written": str(out.resolve()), "bytes": out.stat().st_size}, as_json, f"written: {out}")


@app.command()
def runs(
    action: Annotated[str, typer.Argument(help="list, show, cancel, resume or remove")] = "list",
    key: Annotated[str | None, typer.Argument(help="the run's key")] = None,
    as_json: options.Json = False,
) -> None:
    """List runs; show, cancel, resume or remove one."""
    from engine.runs import jobs

    with answering(as_json):
        acts = {"cancel": jobs.cancel, "resume": jobs.resume, "remove": jobs.remove}
        if action not in {"list", "show", *acts}:
            raise SpecError("runs", found=f"action {action!r}", expected="list, show, cancel, resume or remove", remedy="Use one of these.")
        if action != "list" and key is None:
            raise SpecError(f"runs {action}", found="no key", expected="the run's key", remedy="See: python -m engine runs list")
        if action in acts and key:
            acts[action](key)
        known = [vars(p) | {"share": p.share} for p in (jobs.runs() if action in ("list", "remove") or not key else [jobs.progress(key)])]
        lines = [f"{p['key']}  {p['status']:9}  {p['share']:4.0%}  {p['title']}" for p in known]
        show({"runs": known} if action in ("list", "remove") else known[0], as_json, "\n".join(lines) or "no runs yet")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def benchmark(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="attention, coverage, director, scoring or sweep")],
    data: Annotated[Path | None, typer.Option(help="folder with the benchmark's data, where it needs one")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure: ratios of interleaved runs in one process, medians. Further options are the benchmark's own, like --seeds 3."""
    from engine.runs.benchmarks import measure, measured_text

    with answering(as_json):
        found = measure(what, data, context.args)
        show(found, as_json, measured_text(found, what))


def main() -> int:
    """Run a verb; a command line that cannot be understood is a refusal too, and answers in the form that was asked for."""
    try:
        return app(standalone_mode=False) or 0
    except typer.TyperException as misuse:
        told = misuse.format_message()
        if "--json" in sys.argv:
            error = {"what": "command line", "found": told, "expected": "a verb and its options", "remedy": "See: python -m engine --help"}
            print(json.dumps({"error": error}, ensure_ascii=False))
        else:
            print(f"{told}\nSee: python -m engine --help", file=sys.stderr)
        return 2
    except typer.Abort:
        return 2


if __name__ == "__main__":
    sys.exit(main())
