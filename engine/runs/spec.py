"""What a run computes: one schema from which the form, the command line, the saved file and the key all come."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, field_validator, model_validator

import engine
from engine.errors import SpecError
from engine.kernels.area import REGIONS
from engine.runs.reading import READING, Reading, without_defaults
from engine.runs.tune import NU_MAX, Tune
from engine.settings import DEMO

if TYPE_CHECKING:
    from engine.runs.classify.spec import ClassifySpec

Box = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
POINTS = ("calibration_first", "score_oriented")
VERIFIED = ("nu", "scores", "regions", "thresholds", "maps", "chosen", "posthoc", "posthoc_params")
"""Fields that concern verification alone: a calibration has none of them."""
SINGLE, SEVERAL = ("checkpoint", "student", "normalisation", "climatology"), ("data", "calibrate", "fit")
"""Fields that name one file, and those that name any number."""
BESIDE = ("normalisation.nc", "normalize_mean.npz")
"""Where a checkpoint's normalisation is looked for when none is named: beside it."""


class RunSpec(Reading):
    """A sweep over ν, or one method's run. Equal specs over equal files have equal keys, whatever the files' places.

    `shard_cases` and `title` do not enter the key: they change no number.
    """

    checkpoint: Path = Field(description="the frozen model's weights")
    data: tuple[Path, ...] = Field(min_length=1, description="files that the forecasts are verified on")
    calibrate: tuple[Path, ...] = Field(default=(), description="files on which operating points are chosen; never verified on")
    fit: tuple[Path, ...] = Field(default=(), description="files that a method learns from; never calibrated or verified on")
    student: Path | None = Field(default=None, description="what a method learned before, instead of learning it again")
    normalisation: Path | None = Field(default=None, description="the checkpoint's own normalisation; default: beside the checkpoint")
    climatology: Path | None = Field(default=None, description="climatology for anomaly correlation; default: the checkpoint's")
    architecture: dict[str, Any] = Field(
        default_factory=dict, description="what the checkpoint does not record: variables, num_heads, grid, …"
    )
    method: str = Field(default="stochastic_attention", description="a method of the catalogue")
    params: dict[str, Any] = Field(default_factory=dict, description="the method's own parameters")
    nu: tuple[Annotated[int, Field(ge=1, le=NU_MAX)], ...] = Field(
        default=(1, 2, 4, 8, 16, 32, 64, 256), min_length=1, description="concentrations ν, 1 … 10⁶"
    )
    members: int = Field(default=20, ge=2, le=1000, description="ensemble members M")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of all noise")
    max_cases: int | None = Field(default=None, ge=2, description="at most so many cases, evenly spaced; default: all")
    calibrate_cases: int = Field(default=24, ge=4, description="cases of the calibration split")
    calibrate_members: int = Field(default=4, ge=2, description="members on the calibration split (its scores are unbiased in M)")
    lead_hours: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...] = Field(
        default=(), description="lead times in hours; default: the checkpoint's first"
    )
    variables: tuple[str, ...] = Field(default=(), description="outputs to verify; default: all of the checkpoint's")
    regions: dict[str, Box] = Field(default_factory=dict, description="further regions: name → south, north, west, east in degrees")
    thresholds: tuple[FiniteFloat, ...] = Field(default=(-1.0, 0.0, 1.0), description="events: anomaly above so many standard deviations")
    scores: tuple[str, ...] = Field(default=(), description="scores of the catalogue; default: all that apply")
    maps: bool = Field(default=True, description="store maps of single cases")
    bootstrap: int = Field(default=500, ge=100, le=20_000, description="block-bootstrap replicates")
    shard_cases: int = Field(default=4, ge=1, description="cases between two checkpoints of the run")
    tune: Tune | None = Field(default=None, description="choose ν on the calibration split, instead of verifying over a grid of ν")
    chosen: dict[str, Annotated[int, Field(ge=1, le=NU_MAX)]] = Field(
        default_factory=dict, description="operating points that a calibration found before: calibration_first, score_oriented"
    )
    posthoc: str = Field(default="", description="a post-hoc method that follows the ensemble, fitted on the calibration split")
    posthoc_params: dict[str, Any] = Field(default_factory=dict, description="its parameters")
    title: str = Field(default="", max_length=200, description="a name for people")

    @field_validator("nu")
    @classmethod
    def _ascending(cls, nu: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(nu)))

    @field_validator("regions")
    @classmethod
    def _boxes(cls, regions: dict[str, Box]) -> dict[str, Box]:
        for name, (south, north, _, _) in regions.items():
            if not name.strip() or name in REGIONS:  # rows and pages speak of the default regions by name
                raise ValueError(f"region {name!r}: the name is empty or that of a default region; choose another")
            if not -90 <= south < north <= 90:
                raise ValueError(f"region {name!r}: south {south} and north {north} must be -90 ≤ south < north ≤ 90")
        return regions

    @field_validator("chosen")
    @classmethod
    def _known_points(cls, chosen: dict[str, int]) -> dict[str, int]:
        strange = sorted(set(chosen) - set(POINTS))
        if strange:
            raise ValueError(f"{', '.join(strange)}: the operating points are {' and '.join(POINTS)}")
        return chosen

    @model_validator(mode="before")
    @classmethod
    def _calibrations_verify_nothing(cls, fields: Any) -> Any:
        """What concerns verification is dropped from a calibration, so that what follows from one depends on its key alone."""
        if not isinstance(fields, dict) or fields.get("tune") is None:
            return fields
        lost = [name for name in ("chosen", "posthoc", "posthoc_params") if fields.get(name)]
        if lost:
            raise ValueError(f"{', '.join(lost)} belongs to a sweep, not to a calibration: calibrate first, then sweep with it")
        return {name: value for name, value in fields.items() if name not in VERIFIED}

    @model_validator(mode="after")
    def _with_something_to_learn_from(self) -> "RunSpec":
        needing = "a calibration" if self.tune else f"post-hoc method {self.posthoc}" if self.posthoc else ""
        if needing and not self.gives("calibrate"):
            raise ValueError(f"{needing} needs calibration files (field calibrate, option --calibrate): it never sees what is verified on")
        return self

    @field_validator("architecture")
    @classmethod
    def _facts_only(cls, architecture: dict[str, Any]) -> dict[str, Any]:
        # files are fields of their own, so that their content enters the key
        files = sorted({"normalisation", "climatology"} & set(architecture))
        if files:
            raise ValueError(f"{' and '.join(files)} is a field of the spec itself, not of architecture")
        return architecture

    @field_validator("lead_hours", "variables", "scores", "thresholds")
    @classmethod
    def _each_once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(values))

    def gives(self, split: str) -> bool:
        """Whether files are named for a split ("fit", "calibrate"): by its own field, or as a folder of the tree that `data` is."""
        from engine.data.dataset import splits_of_tree

        return bool(getattr(self, split)) or split in splits_of_tree(self.data)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Every file that the numbers depend on, by role."""
        roles = {role: (path,) for role in SINGLE if (path := getattr(self, role)) is not None}
        return roles | {role: getattr(self, role) for role in SEVERAL}

    def resolved(self) -> "RunSpec":
        """The same with absolute paths, and with the normalisation that lies beside the checkpoint named.

        Only a resolved spec is hashed: a default that is found beside a file is part of what was computed.
        """
        beside = self.normalisation or next((p for p in (self.checkpoint.parent / n for n in BESIDE) if p.exists()), None)
        absolute = {role: tuple(p.resolve() for p in paths) for role, paths in self.files().items()}
        single = {role: absolute[role][0] for role in SINGLE if role in absolute}
        several = {role: absolute[role] for role in SEVERAL}
        return self.model_copy(update={**single, **several, "normalisation": beside.resolve() if beside else None})

    def key(self) -> str:
        """16 hex digits: hash of the canonical spec with the files' contents in place of their names."""
        plain = self.model_dump(mode="json", exclude={"title", "shard_cases", *SINGLE, *SEVERAL})
        plain = without_defaults(self, plain, READING)
        plain["files"] = contents(self)
        plain["engine"] = engine.__version__
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    def command(self) -> str:
        """The command line that computes the same."""
        parts = [f"python -m engine {'calibrate' if self.tune else 'sweep'}", "--checkpoint", shlex.quote(str(self.checkpoint))]
        for option, paths in ((f"--{role}", getattr(self, role)) for role in SEVERAL):
            for path in paths:
                parts += [option, shlex.quote(str(path))]
        parts += [] if self.tune else ["--nu", ",".join(map(str, self.nu)), "--members", str(self.members)]
        parts += ["--seed", str(self.seed)]
        said = {"checkpoint", *SEVERAL, "nu", "seed", "title", "shard_cases", "tune"} | set(VERIFIED if self.tune else ("members",))
        parts += _options(self, RunSpec(checkpoint=self.checkpoint, data=self.data), said)
        return " ".join(parts + (_options(self.tune, Tune(), set()) if self.tune else []))


AnySpec: TypeAlias = "RunSpec | ClassifySpec"


def _options(model: BaseModel, defaults: BaseModel, said: set[str]) -> list[str]:
    """What differs from the defaults, as options of the command line."""
    parts: list[str] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        if name in said or value == getattr(defaults, name):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            parts.append(f"--{option}" if value else f"--no-{option}")
            continue
        text = ",".join(map(str, value)) if isinstance(value, tuple) else json.dumps(value) if isinstance(value, dict) else str(value)
        parts += [f"--{option}", shlex.quote(text)]
    return parts


def contents(spec: "AnySpec") -> dict[str, list[str]]:
    """Hashes of every file that the numbers depend on, by role."""
    return {role: [content_hash(p) for p in _read_with(paths)] for role, paths in spec.files().items()}


def content_hash(path: Path) -> str:
    """sha256 over a file's bytes, or over names and bytes of a folder's files; cached by size and time of change."""
    from engine.data._fingerprint import content_hash as of_file

    if not path.exists():
        raise SpecError(f"file {path}", found="nothing there", expected="a file or a folder", remedy="Check the path.")
    try:
        return of_file(path)
    except OSError as fault:
        raise SpecError(
            f"file {path}", found=str(fault), expected="a file that can be read", remedy="Check the file's and the folder's rights."
        ) from fault


def _read_with(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files, and those that are read with one of them unnamed: the upstream normalisation is a pair."""
    names = ("normalize_mean.npz", "normalize_std.npz")
    pairs = [p.with_name(other) for p in paths if p.name in names for other in names if other != p.name]
    return (*paths, *(p for p in pairs if p.exists()))


def kind_of_spec(fields: Any) -> "type[AnySpec]":
    """The schema that fields are meant for: a classification where their `task` says so, else a run on fields."""
    if isinstance(fields, dict) and fields.get("task") == "classification":
        from engine.runs.classify.spec import ClassifySpec

        return ClassifySpec
    return RunSpec


def spec_from_json(text: str) -> "AnySpec":
    """A spec as a run's row keeps it. Raises ValueError (pydantic's ValidationError is one)."""
    fields = json.loads(text)
    return kind_of_spec(fields).model_validate_json(text)


def parse_spec(fields: dict[str, Any]) -> Any:
    """A spec from plain fields, of the kind that they ask for; every fault is named with its field."""
    schema = kind_of_spec(fields)
    try:
        return schema.model_validate(fields)
    except ValidationError as fault:
        first, count = fault.errors()[0], len(fault.errors())
        said = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # each field is right by itself, and together they are not
            raise SpecError(
                "request", found=said, expected="fields that fit together", remedy="Mend or leave out what is named."
            ) from fault
        where = ".".join(str(p) for p in first["loc"])
        known: Any = Tune if first["loc"][:1] == ("tune",) and len(first["loc"]) > 1 else schema
        info = known.model_fields.get(str(first["loc"][1 if known is Tune else 0]))
        expected = (info.description if info else None) or "a field of the spec"
        raise SpecError(
            f"spec field {where!r}",
            found=repr(first.get("input"))[:120],
            expected=expected,
            remedy=f"{said}." + (f" {count} fields need mending." if count > 1 else ""),
        ) from fault


def demo_spec(**changes: Any) -> RunSpec:
    """The demo: PlaSim T21 climate-model data, 72 h Z500, from the files under `assets/demo`; read like any upload."""
    fields = {
        "checkpoint": DEMO / "climax.safetensors",
        "data": (DEMO / "verify.nc",),
        "calibrate": (DEMO / "calibrate.nc",),
        "variables": ("geopotential_height_500",),
        "max_cases": 42,
        "calibrate_cases": 18,
        "title": "Demo: PlaSim T21 climate-model data, Z500 at 72 h",
    }
    return parse_spec(fields | changes)


def director_demo_spec(**changes: Any) -> RunSpec:
    """The demo's forecasts by its DIRECTOR student as shipped, to be set beside those of stochastic attention."""
    fields = {
        "method": "director",
        "student": DEMO / "director.safetensors",
        "nu": (1,),
        "calibrate": (),
        "title": "DIRECTOR on the demo: PlaSim T21 climate-model data, Z500 at 72 h",
    }
    return demo_spec(**(fields | changes))


def read_spec(path: Path) -> Any:
    """A spec of either kind from a YAML or JSON file (JSON is YAML); paths in it are relative to the file."""
    import yaml

    try:
        fields = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise SpecError(
            f"spec file {path}", found=str(fault)[:200], expected="a YAML file with the spec's fields", remedy="Mend the file."
        ) from fault
    if not isinstance(fields, dict):
        raise SpecError(
            f"spec file {path}", found=type(fields).__name__, expected="fields and values", remedy="Start with: checkpoint: FILE"
        )
    if kind_of_spec(fields) is not RunSpec:
        return parse_spec(fields).placed(lambda named: path.parent / named)
    # placed before anything is judged: what a folder holds decides whether there is something to calibrate on
    for role in (*SINGLE, *SEVERAL):
        named = fields.get(role)
        if isinstance(named, str) and role in SINGLE:
            fields[role] = str(path.parent / named)
        elif isinstance(named, list | tuple) and all(isinstance(n, str) for n in named):
            fields[role] = [str(path.parent / n) for n in named]
    return parse_spec(fields)
