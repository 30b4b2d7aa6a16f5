"""What a classification run computes: one schema from which form, command line, saved file and key come; the parallel of `RunSpec`."""

import hashlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

import engine
from engine.runs.classify.entries import CONTROLS, TEACHER, Entry, parse_entry
from engine.runs.reading import LABELLED_READING, LabelledReading, without_defaults
from engine.runs.spec import contents
from engine.runs.tune import NU_MAX

GRID = (1, 2, 4, 8, 16, 32, 64, 128)
PLACES = ("checkpoint", "data", "fit", "calibrate", "outside", "states")
"""Fields that hold paths: their files' contents enter the key in place of their names."""


class ClassifySpec(LabelledReading):
    """One frozen classifier, one verification set, several methods. Equal specs over equal files have equal keys, wherever they lie.

    `shard_cases` and `title` do not enter the key: they change no number.
    """

    task: Literal["classification"] = Field(default="classification", description="classification")
    checkpoint: Path = Field(description="the frozen classifier's weights")
    data: tuple[Path, ...] = Field(min_length=1, description="labelled files that the forecasts are verified on")
    fit: tuple[Path, ...] = Field(default=(), description="labelled files that methods learn from; never verified on")
    calibrate: tuple[Path, ...] = Field(default=(), description="labelled files for temperatures, ν and early stopping; never verified on")
    outside: dict[str, Path] = Field(default_factory=dict, description="out-of-distribution sets: name → file")
    architecture: dict[str, Any] = Field(default_factory=dict, description="what the checkpoint does not record: num_heads, classes, …")
    entries: tuple[str, ...] = Field(default=(TEACHER,), min_length=1, description="methods, with :variant where one stands several times")
    params: dict[str, dict[str, Any]] = Field(default_factory=dict, description="parameters by entry, or by method for all its entries")
    states: dict[str, Path] = Field(default_factory=dict, description="states that were learned before: entry → safetensors")
    nu: tuple[Annotated[int, Field(ge=1, le=NU_MAX)], ...] = Field(
        default=GRID, min_length=1, description="ν of stochastic attention; of several, calibration NLL chooses"
    )
    members: int = Field(default=10, ge=1, le=1000, description="members (sampled forwards, paths) of sampled methods")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of all noise and of all learning")
    corruptions: tuple[str, ...] = Field(default=(), description="corruptions of the images on which robustness is shown; default: none")
    severities: tuple[Annotated[int, Field(ge=1, le=5)], ...] = Field(default=(1, 2, 3, 4, 5), description="severities 1 … 5")
    max_cases: int | None = Field(default=None, ge=2, description="at most so many examples of each set, evenly spaced; default: all")
    examples: int = Field(default=24, ge=0, le=500, description="examples that are kept to be shown one by one")
    bootstrap: int = Field(default=500, ge=100, le=20_000, description="bootstrap replicates over examples")
    shard_cases: int = Field(default=250, ge=1, description="examples between two checkpoints of the run")
    title: str = Field(default="", max_length=200, description="a name for people")

    @field_validator("nu", "severities")
    @classmethod
    def _ascending(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(values)))

    @field_validator("corruptions")
    @classmethod
    def _each_once(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values))

    @field_validator("entries")
    @classmethod
    def _known_entries(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(parse_entry(name).name for name in dict.fromkeys(names))

    @field_validator("outside")
    @classmethod
    def _named(cls, outside: dict[str, Path]) -> dict[str, Path]:
        strange = [n for n in outside if not n.strip() or len(n) > 80]
        if strange:
            raise ValueError(f"out-of-distribution set {strange[0][:80]!r}: a name of 1 to 80 characters is needed")
        return outside

    @model_validator(mode="after")
    def _about_its_entries(self) -> "ClassifySpec":
        parsed = self.parsed
        known = {name for e in parsed for name in (e.name, e.state_name)}
        if lost := sorted(set(self.states) - known):
            raise ValueError(f"states of {', '.join(lost)}: the run has the entries {', '.join(self.entries)}")
        if lost := sorted(set(self.params) - known - {e.method for e in parsed}):
            raise ValueError(f"params of {', '.join(lost)}: the run has the entries {', '.join(self.entries)}")
        return self

    @property
    def parsed(self) -> tuple[Entry, ...]:
        """The entries, taken apart."""
        return tuple(parse_entry(name) for name in self.entries)

    @property
    def against(self) -> tuple[str, ...]:
        """Entries that the others are compared with: the frozen model, then the controls that are there."""
        controls = [f"{method}:{variant}" for method, variants in CONTROLS.items() for variant in variants]
        return tuple(name for name in (TEACHER, *controls) if name in self.entries)

    def state_of(self, entry: Entry) -> Path | None:
        """The file of the entry's state, where one was brought."""
        return self.states.get(entry.name, self.states.get(entry.state_name))

    def files(self) -> dict[str, tuple[Path, ...]]:
        """Every file that the numbers depend on, by role."""
        roles = {"checkpoint": (self.checkpoint,), "data": self.data, "fit": self.fit, "calibrate": self.calibrate}
        roles |= {f"outside:{name}": (path,) for name, path in self.outside.items()}
        return roles | {f"state:{name}": (path,) for name, path in self.states.items()}

    def placed(self, place: Callable[[Path], Path]) -> "ClassifySpec":
        """The same with every path replaced by `place(path)`."""
        several = {n: tuple(place(p) for p in getattr(self, n)) for n in ("data", "fit", "calibrate")}
        named = {n: {key: place(p) for key, p in getattr(self, n).items()} for n in ("outside", "states")}
        return self.model_copy(update={"checkpoint": place(self.checkpoint), **several, **named})

    def resolved(self) -> "ClassifySpec":
        """The same with absolute paths."""
        return self.placed(lambda path: path.resolve())

    def key(self) -> str:
        """16 hex digits: hash of the canonical spec with the files' contents in place of their names."""
        plain = self.model_dump(mode="json", exclude={"title", "shard_cases", *PLACES})
        plain = without_defaults(self, plain, ("encoding", "size"))
        plain["files"] = contents(self)
        plain["engine"] = engine.__version__
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    def command(self) -> str:
        """The command line that computes the same."""
        parts = ["python -m engine run --method", shlex.quote(",".join(self.entries)), "--checkpoint", shlex.quote(str(self.checkpoint))]
        for option in ("data", "fit", "calibrate"):
            parts += [word for path in getattr(self, option) for word in (f"--{option}", shlex.quote(str(path)))]
        for option, named in (("outside", self.outside), ("state", self.states)):
            parts += [word for name, path in named.items() for word in (f"--{option}", shlex.quote(f"{name}={path}"))]
        fields = type(self).model_fields
        parts += ["--members", str(self.members), "--seed", str(self.seed)]
        for name in ("nu", "params", "architecture", *LABELLED_READING, "corruptions", "severities", "max_cases", "examples", "bootstrap"):
            value, field = getattr(self, name), fields[name]
            if value == field.get_default(call_default_factory=True):
                continue
            text = ",".join(map(str, value)) if isinstance(value, tuple) else json.dumps(value) if isinstance(value, dict) else str(value)
            parts += [f"--{name.replace('_', '-')}", shlex.quote(text)]
        return " ".join(parts)
