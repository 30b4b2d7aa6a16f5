"""The command line: `python -m engine VERB …`. Every verb has `--json`, which prints one JSON document on stdout and nothing else."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.errors import SpecError
from engine.runs.console import Ticker, answering, box, mapping, names, numbers, score_line, show, writable

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Calibrated probabilistic forecasts from a frozen transformer.")
Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout, nothing else")]
Out = Annotated[Path | None, typer.Option(help="folder that gets the results")]


@app.command()
def doctor(as_json: Json = False) -> None:
    """Device, versions, a real kernel run, writable folders."""
    from engine.runs.doctor import examine

    with answering(as_json):
        found = examine()
        show(found, as_json, "\n".join(f"{'ok  ' if c['ok'] else 'BAD '} {c['name']}: {c['found']}" for c in found["checks"]))
        if not found["ok"]:
            raise typer.Exit(2)


@app.command()
def demo(
    out: Out = None,
    nu: Annotated[str | None, typer.Option(help="other concentrations, like 1,2,4")] = None,
    members: Annotated[int, typer.Option(help="ensemble members")] = 20,
    cases: Annotated[int, typer.Option(help="verification cases")] = 42,
    seed: Annotated[int, typer.Option(help="seed of all noise")] = 0,
    as_json: Json = False,
) -> None:
    """The main job on the embedded default: sweep, choose the operating points, verify, report."""
    from engine.runs.spec import demo_spec

    with answering(as_json):
        changes = {"nu": numbers(nu, "nu")} if nu else {}
        _compute(demo_spec(members=members, max_cases=cases, seed=seed, **changes), out, as_json)


@app.command()
def sweep(
    context: typer.Context,
    checkpoint: Annotated[Path | None, typer.Option(help="the frozen model's weights")] = None,
    data: Annotated[list[Path] | None, typer.Option(help="file to verify on; may be given again")] = None,
    calibrate: Annotated[list[Path] | None, typer.Option(help="file on which operating points are chosen; may be given again")] = None,
    normalisation: Annotated[Path | None, typer.Option(help="the checkpoint's own normalisation; default: beside it")] = None,
    climatology: Annotated[Path | None, typer.Option(help="climatology for anomaly correlation")] = None,
    architecture: Annotated[str | None, typer.Option(help='what the checkpoint does not record, as JSON: {"num_heads": 16, …}')] = None,
    nu: Annotated[str, typer.Option(help="concentrations")] = "1,2,4,8,16,32,64,256",
    members: Annotated[int, typer.Option(help="ensemble members")] = 20,
    seed: Annotated[int, typer.Option(help="seed of all noise")] = 0,
    max_cases: Annotated[int | None, typer.Option(help="at most so many cases, evenly spaced")] = None,
    lead_hours: Annotated[str | None, typer.Option(help="lead times in hours")] = None,
    variables: Annotated[str | None, typer.Option(help="outputs to verify")] = None,
    scores: Annotated[str | None, typer.Option(help="scores of the catalogue")] = None,
    regions: Annotated[str | None, typer.Option(help='further regions as JSON: {"Alps": [43, 49, 5, 16]}')] = None,
    method: Annotated[str, typer.Option(help="a method of the catalogue")] = "stochastic_attention",
    params: Annotated[str | None, typer.Option(help='the method\'s parameters as JSON: {"sites": "blocks.*"}')] = None,
    maps: Annotated[bool, typer.Option(help="store maps of single cases")] = True,
    bootstrap: Annotated[int, typer.Option(help="block-bootstrap replicates")] = 500,
    thresholds: Annotated[str | None, typer.Option(help="events: anomaly above so many standard deviations")] = None,
    calibrate_cases: Annotated[int, typer.Option(help="cases of the calibration split")] = 24,
    calibrate_members: Annotated[int, typer.Option(help="members on the calibration split")] = 4,
    title: Annotated[str, typer.Option(help="a name for people")] = "",
    spec: Annotated[Path | None, typer.Option(help="YAML or JSON file with the spec, instead of options")] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Verify ensembles over a grid of ν."""
    from engine.runs.spec import parse_spec, read_spec

    with answering(as_json):
        if spec is not None:
            given = [n for n in context.params if n not in ("spec", "out", "as_json") and _was_given(context, n)]
            if given:
                beside = ", ".join(f"--{n.replace('_', '-')}" for n in given)
                raise SpecError(
                    "--spec", found=f"also {beside}", expected="the file alone", remedy="Write those into the file, or leave --spec out."
                )
            return _compute(read_spec(spec), out, as_json)
        if checkpoint is None or not data:
            raise SpecError(
                "sweep", found="no --checkpoint or no --data", expected="both, or --spec FILE", remedy="See: python -m engine sweep --help"
            )
        fields: dict[str, Any] = {
            "checkpoint": checkpoint, "data": tuple(data), "calibrate": tuple(calibrate or ()), "normalisation": normalisation,
            "climatology": climatology, "architecture": mapping(architecture, "architecture"), "nu": numbers(nu, "nu"), "members": members,
            "seed": seed, "max_cases": max_cases, "lead_hours": numbers(lead_hours, "lead-hours", float) if lead_hours else (),
            "variables": names(variables), "scores": names(scores), "regions": mapping(regions, "regions"), "method": method,
            "params": mapping(params, "params"), "maps": maps, "bootstrap": bootstrap, "title": title,
            "calibrate_cases": calibrate_cases, "calibrate_members": calibrate_members,
        }  # fmt: skip
        if thresholds:
            fields["thresholds"] = numbers(thresholds, "thresholds", float)
        return _compute(parse_spec(fields), out, as_json)


def _was_given(context: typer.Context, name: str) -> bool:
    """On the command line, not by default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _compute(spec: Any, out: Path | None, as_json: bool) -> None:
    """Run in this process, copy the results to `out`, print the rows."""
    from engine.runs import jobs, rows, store
    from engine.runs.report import write_report

    if out is not None:  # before hours of work, not after them
        with writable(out):
            out.mkdir(parents=True, exist_ok=True)
    verification = jobs.run(spec, Ticker())
    key = verification.attrs["key"]
    if out is not None:
        with writable(out):
            kept = [n for n in ("verification.nc", "fields.nc", "spec.json") if (store.folder(key) / n).exists()]
            for name in kept:
                shutil.copy2(store.folder(key) / name, out / name)
        write_report(verification, out / "report.html")
        print(f"written to {out}: {', '.join([*kept, 'report.html'])}", file=sys.stderr)
    document = rows.document(verification)
    show(document, as_json, rows.table(document))


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
    as_json: Json = False,
) -> None:
    """Preflight: format, backbone, keys, sites, replay error, units, grid, calendar, missing values, memory."""
    from engine.runs.inspect import inspect_files, inspection_text

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
    climatology: Annotated[Path | None, typer.Option(help="climatology, for anomaly scores and for thresholds above it")] = None,
    thresholds: Annotated[str | None, typer.Option(help="events: more than so much (above the climatology, where one is given)")] = None,
    lead_time: Annotated[float | None, typer.Option(help="lead time in hours, where the forecast holds several")] = None,
    region: Annotated[str | None, typer.Option(help="a default region's name, or a box as JSON: [south, north, west, east]")] = None,
    seed: Annotated[int, typer.Option(help="seed of the bootstrap", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Verify an ensemble from anywhere against observations: no model needed."""
    from engine.runs.score import score_files

    with answering(as_json):
        found = score_files(
            forecast,
            observed,
            names(scores),
            member_dim=member_dim,
            variable=variable,
            climatology=climatology,
            thresholds=numbers(thresholds, "thresholds", float) if thresholds else (),
            lead_time=lead_time,
            region=box(region, "region"),
            seed=seed,
            say=lambda line: print(line, file=sys.stderr),
        )
        show(found, as_json, "\n".join(score_line(n, v) for n, v in found.items()))


@app.command()
def report(run: str, out: Annotated[Path, typer.Option(help="file to write")] = Path("report.html"), as_json: Json = False) -> None:
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
    as_json: Json = False,
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


@app.command()
def benchmark(
    what: Annotated[str, typer.Argument(help="attention, sweep or scoring")],
    data: Annotated[Path | None, typer.Option(help="folder with the benchmark's data, where it needs one")] = None,
    as_json: Json = False,
) -> None:
    """Measure: ratios of interleaved runs in one process, medians."""
    from engine.runs.benchmarks import measure, measured_text

    with answering(as_json):
        found = measure(what, data)
        show(found, as_json, measured_text(found))


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
