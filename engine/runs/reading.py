"""How files are to be read, where they do not say it themselves: the fields that a spec, the form and the command line share.

Fields of data on a grid are `Reading`'s, those of labelled data `LabelledReading`'s. What is left at its default enters no key, so
that a spec without them is the spec that it was.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, field_validator

from engine.errors import SpecError

Read = TypeVar("Read", bound=BaseModel)


class Reading(BaseModel):
    """Files of fields: names, calendar and time step that the files lack or that differ between them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rename: dict[str, str] = Field(
        default_factory=dict,
        description="what the files' own names stand for, like z=geopotential_500,t=temperature_850",
        examples=["z=geopotential_500, t=temperature_850"],
    )
    read: tuple[str, ...] = Field(default=(), description="variables of the files to read; default: all")
    calendar: Literal["standard", "noleap", "360_day"] | None = Field(
        default=None, description="calendar to convert to, where the files' differ: standard, noleap or 360_day"
    )
    select: dict[str, str] = Field(
        default_factory=dict,
        description="which messages of GRIB files to read, by their keys: typeOfLevel=isobaricInhPa,level=500/850",
        examples=["typeOfLevel=isobaricInhPa, level=500/850"],
    )
    missing: float | None = Field(
        default=None, description="a value that stands for missing ones, where no attribute of the files says so, like -999"
    )
    step_hours: Annotated[FiniteFloat, Field(gt=0)] | None = Field(
        default=None, description="hours between two times of files that record none (ClimaX shards)"
    )

    @field_validator("rename", "select", mode="before")
    @classmethod
    def _pairs(cls, given: Any) -> Any:
        return pairs_of(given)

    def roles(self) -> dict[str, Any]:
        """What `open_dataset` is told, by its own names; only what was said."""
        said = {"rename": self.rename, "variables": self.read, "calendar": self.calendar}
        said |= {"select": self.select, "step_hours": self.step_hours}
        known = {name: value for name, value in said.items() if value}
        return known if self.missing is None else known | {"missing": self.missing}  # 0 says something too


READING = tuple(Reading.model_fields)
"""Names of the fields of `Reading`."""


def pairs_of(given: Any) -> Any:
    """`a=b, c=d`, or a JSON object, as a mapping; what is no text is left to the schema. Raises ValueError."""
    if not isinstance(given, str):
        return given
    if given.lstrip().startswith("{"):
        return json.loads(given)
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in given.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            raise ValueError(f"{part[:60]!r} is no pair: write name=what it is, with commas between, like z=geopotential_500")
        if name in found:
            raise ValueError(f"{name!r} stands twice")
        found[name] = value
    return found


class LabelledReading(BaseModel):
    """Labelled files: columns of a table, encoding of text, size of images."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str | None = Field(default=None, description="column of the text, where a table's is not recognised")
    label: str | None = Field(default=None, description="column of the label, where a table's is not recognised")
    encoding: str | None = Field(default=None, description="encoding of text that is not UTF-8: latin-1, cp1252, utf-16, …")
    size: tuple[Annotated[int, Field(ge=1, le=4096)], Annotated[int, Field(ge=1, le=4096)]] | None = Field(
        default=None, description="height and width in pixels to bring images of several sizes to"
    )

    @field_validator("text", "label", "encoding", mode="before")
    @classmethod
    def _nothing_is_none(cls, given: Any) -> Any:
        return given or None  # an empty field of a form

    @field_validator("size", mode="before")
    @classmethod
    def _sides(cls, given: Any) -> Any:
        if isinstance(given, str):  # 28, 28 × 28, 28x32
            parts = [p.strip() for p in given.lower().replace("×", "x").replace(",", "x").split("x") if p.strip()]
            return (parts * 2 if len(parts) == 1 else parts) or None
        return given or None

    def roles(self) -> dict[str, Any]:
        """What `open_labelled` is told; only what was said."""
        return {name: value for name in LABELLED_READING if (value := getattr(self, name)) is not None}


LABELLED_READING = tuple(LabelledReading.model_fields)
"""Names of the fields of `LabelledReading`."""


def parse_reading(kind: type[Read], given: dict[str, Any]) -> Read:
    """These fields, or a refusal that names the first one at fault, what it stands for and how it is written."""
    try:
        return kind.model_validate(given)
    except ValidationError as fault:
        first = fault.errors()[0]
        name = str(first["loc"][0])
        raise SpecError(
            f"option {name}",
            found=repr(first.get("input"))[:120],
            expected=str(kind.model_fields[name].description),
            remedy=f"{first['msg'].removeprefix('Value error, ')}.",
        ) from fault


def as_options(fields: Mapping[str, Any]) -> list[str]:
    """Fields of a `Reading` or a `LabelledReading` as words of the command line; what says nothing is left out."""
    words: list[str] = []
    for name, value in fields.items():
        if name not in READING + LABELLED_READING:
            raise TypeError(f"{name!r} says nothing of how files are read")
        if value or (value == 0 and not isinstance(value, bool)):
            text = json.dumps(value) if isinstance(value, dict) else ",".join(map(str, value)) if isinstance(value, tuple | list) else value
            words += [f"--{name.replace('_', '-')}", str(text)]
    return words


def without_defaults(model: BaseModel, plain: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """A canonical spec without those of these fields that are as they would be anyway."""
    fields = type(model).model_fields
    same = {n for n in names if getattr(model, n) == fields[n].get_default(call_default_factory=True)}
    return {name: value for name, value in plain.items() if name not in same}
