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
Fit = Annotated[list[Path] | None, typer.Option(help="file that methods learn from; may be given again")]
Student = Annotated[Path | None, typer.Option(help="what a method learned before: a student of a model of fields")]
Outside = Annotated[list[str] | None, typer.Option(help="out-of-distribution examples, as name=path; may be given again")]
States = Annotated[list[str] | None, typer.Option("--state", help="a state that was learned before, as entry=path; may be given again")]
Methods = Annotated[
    str | None,
    typer.Option("--method", help="methods with commas between: director,director:no_noise,kep_svgp:2,stochastic_attention:16,…"),
]
