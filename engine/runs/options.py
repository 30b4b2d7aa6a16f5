"""Options that verbs of the command line share: their types and help, once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout, nothing else")]
Out = Annotated[Path | None, typer.Option(help="folder that gets the results")]
SpecFile = Annotated[Path | None, typer.Option(help="YAML or JSON file with the spec, instead of options")]
Title = Annotated[str, typer.Option(help="a name for people")]
Checkpoint = Annotated[Path | None, typer.Option(help="the frozen model's weights")]
Data = Annotated[list[Path] | None, typer.Option(help="file to verify on; may be given again")]
Calibrate = Annotated[list[Path] | None, typer.Option(help="file on which operating points are chosen; may be given again")]
Normalisation = Annotated[Path | None, typer.Option(help="the checkpoint's own normalisation; default: beside it")]
Climatology = Annotated[Path | None, typer.Option(help="climatology for anomaly correlation")]
Architecture = Annotated[str | None, typer.Option(help='what the checkpoint does not record, as JSON: {"num_heads": 16, …}')]
Members = Annotated[int, typer.Option(help="ensemble members")]
Seed = Annotated[int, typer.Option(help="seed of all noise")]
MaxCases = Annotated[int | None, typer.Option(help="at most so many cases, evenly spaced")]
LeadHours = Annotated[str | None, typer.Option(help="lead times in hours")]
Variables = Annotated[str | None, typer.Option(help="outputs to verify")]
MethodName = Annotated[str, typer.Option(help="a method of the catalogue")]
Params = Annotated[str | None, typer.Option(help='the method\'s parameters as JSON: {"sites": "blocks.*"}')]
Bootstrap = Annotated[int, typer.Option(help="block-bootstrap replicates")]
CalibrateCases = Annotated[int, typer.Option(help="cases of the calibration split")]
CalibrateMembers = Annotated[int, typer.Option(help="members on the calibration split")]
Rename = Annotated[str | None, typer.Option(help="what the files' own names stand for: z=geopotential_500,t=temperature_850, or JSON")]
Read = Annotated[str | None, typer.Option(help="variables of the files to read; default: all")]
ReadHere = Annotated[str | None, typer.Option("--read", "--variables", help="variables of the files to read; default: all")]
"""Of verbs that choose no outputs of a model, where `--variables` can mean nothing else."""
Calendar = Annotated[str | None, typer.Option(help="calendar to convert to, where the files' differ: standard, noleap or 360_day")]
Select = Annotated[str | None, typer.Option(help="which GRIB messages to read, by key: typeOfLevel=isobaricInhPa,level=500/850")]
Missing = Annotated[float | None, typer.Option(help="a value that stands for missing ones, where no attribute says so, like -999")]
StepHours = Annotated[float | None, typer.Option(help="hours between two times of files that record none (ClimaX shards)")]
TextColumn = Annotated[str | None, typer.Option("--text", help="column of the text, where a table's is not recognised")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="column of the label, where a table's is not recognised")]
Encoding = Annotated[str | None, typer.Option(help="encoding of text that is not UTF-8: latin-1, cp1252, utf-16, …")]
Size = Annotated[str | None, typer.Option(help="height and width in pixels to bring images of several sizes to, like 28x28")]
Fit = Annotated[list[Path] | None, typer.Option(help="file that methods learn from; may be given again")]
Student = Annotated[Path | None, typer.Option(help="what a method learned before: a student of a model of fields")]
Outside = Annotated[list[str] | None, typer.Option(help="out-of-distribution examples, as name=path; may be given again")]
States = Annotated[list[str] | None, typer.Option("--state", help="a state that was learned before, as entry=path; may be given again")]
Methods = Annotated[
    str | None,
    typer.Option("--method", help="methods with commas between: director,director:no_noise,kep_svgp:2,stochastic_attention:16,…"),
]
Partial = Annotated[bool, typer.Option("--partial", help="accept a model some of whose attention is not reached and stays deterministic")]
