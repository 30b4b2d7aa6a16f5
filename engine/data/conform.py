"""The one canonical form: `<quantity>_<hPa>` variables on `(time, latitude, longitude)`, canonical units, all changes said.

Latitude runs north to south, longitude 0 … 360 west to east, values are float32 and lazy. Member, initial and lead time
dimensions of forecast files stay, under the engine's names.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from engine import lexicon
from engine.data._coordinates import order_times, orient, rename_axes
from engine.data._expver import merge_versions
from engine.data._levels import height_of
from engine.data._levels import levels as levels_of
from engine.data._member_axis import member_axis, members_apart
from engine.data._missing import Mask, mask_of
from engine.data._rename import all_found, names_in, renamed
from engine.data._times import settle_times
from engine.data._units import Settled, sample, settle_units
from engine.data._valid import on_valid_times
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

ENTRIES: tuple[Any, ...] = ()
"""No reader: what all readers share."""

_KEPT = ("member", "init_time", "lead_time", "time", "latitude", "longitude")
_CHUNK = 2**20
"""Bytes of one variable that are read at a time."""


def conform(
    data: "xr.Dataset",
    what: str = "dataset",
    *,
    rename: Mapping[str, str] | None = None,
    variables: Sequence[str] | None = None,
    member_dim: str | None = None,
    strict: bool = True,
    missing: float | None = None,
) -> "tuple[xr.Dataset, tuple[str, ...]]":
    """The dataset in canonical form, and in plain words what was changed.

    `rename` maps the file's names, also of coordinates, to canonical ones where the lexicon cannot know; `variables` keeps
    only these; `member_dim` is the members' dimension where its name does not tell;
    `strict` False is for scoring: times may be plain numbers and values outside what is usual are kept as labelled.
    `missing` is a value that the file uses for missing ones without saying so, in the file's units (NaN: there is none).
    Fields carry `file_units`, and `difference` (converted without an offset) or `as_labelled` (not usual, kept) where so.
    Raises DatasetError for grids, times or units that cannot be settled.
    """
    import xarray as xr

    changes: list[str] = list(data.attrs.get("reader_notes", ()))
    if rename:
        all_found(rename, [names_in(data)], what)
        data = renamed(data, rename, what, changes)
    if member_dim is not None:
        data = member_axis(data, member_dim, what)
    data = rename_axes(merge_versions(data, what, changes), what, changes)
    if not strict:
        data = members_apart(data, what, changes)
    data = orient(settle_times(data, what, changes), what, changes)
    data = order_times(data, what, changes, numbered=not strict)
    if strict and data.sizes.get("lead_time", 1) == 1:  # analyses, or the same step of each forecast: a time series
        data = on_valid_times(data, what, changes, forecast=False).drop_vars(["init_time", "lead_time"], errors="ignore")
    fields = _named(_as_asked(data, variables or ()), what, changes, strict)
    if variables is not None:
        fields = _chosen(fields, variables, what)
    result: dict[str, xr.DataArray] = {}
    for key in dict.fromkeys(str(field.attrs["file_variable"]) for field in fields.values()):
        levels = {name: field for name, field in fields.items() if field.attrs["file_variable"] == key}
        first = next(iter(levels.values()))
        mask, said = mask_of(first, missing, what)
        looked = {name: sample(field, mask) for name, field in levels.items()}
        settled = settle_units(key, first.attrs, looked, what, strict=strict)
        changes += said + settled.said
        for name, field in levels.items():
            final = lexicon.named_for(name, settled.units)
            if final in result:
                raise DatasetError(
                    what,
                    found=f"two variables that are both {final}",
                    expected="one",
                    remedy="Choose one by its name in the file with --read (variables= in Python), or drop one from the file.",
                )
            result[final] = _converted(field, final, settled, mask, changes)
    attrs = {k: str(v)[:500] for k, v in data.attrs.items() if k in ("title", "source", "institution")}
    return xr.Dataset({str(k): v.rename(k).transpose(*(d for d in _KEPT if d in v.dims)) for k, v in result.items()}, attrs=attrs), tuple(
        changes
    )


def _converted(field: "xr.DataArray", final: str, settled: Settled, mask: Mask | None, changes: list[str]) -> "xr.DataArray":
    """The field in its canonical units: missing where the file says so, converted, and lazy."""
    target = lexicon.units_of(final) or settled.units
    how = lexicon.conversion(settled.units, target, difference=settled.difference, gravity=False)
    if how is None:
        raise ValueError(f"{final}: {settled.units!r} was settled, and does not convert to {target!r}")
    lazy = _lazy(field)
    for step in (mask, how[1] if how[0] else None):
        if step is not None:
            lazy = lazy.map_blocks(step, dtype=lazy.dtype if np.issubdtype(lazy.dtype, np.floating) else np.float64)
    lazy = lazy.astype(np.float32)
    if how[0]:
        changes.append(f"{final}: {settled.units} to {target}, {how[0]}")
    file_name = str(field.attrs.get("file_name", field.name))
    if final != field.name and file_name != final:
        changes.append(f"{file_name} is {final}")
    out = field.copy(deep=False, data=lazy)
    out.attrs = {"units": target, "long_name": lexicon.title_of(final), "file_units": settled.units}
    out.attrs |= {name: field.attrs[name] for name in ("height", "height_units") if name in field.attrs}
    out.attrs |= {name: 1 for name in ("difference", "as_labelled") if getattr(settled, name)}
    out.encoding = {}
    return out


def _lazy(field: "xr.DataArray") -> Any:
    """The field's values as a dask array, in pieces of about 1 MB along time and its other leading dimensions."""
    size = field.sizes["latitude"] * field.sizes["longitude"] * 4
    pieces: dict[Any, int] = {d: 1 for d in field.dims} | {"latitude": -1, "longitude": -1}
    along = next((d for d in ("time", "init_time") if d in field.dims), None)
    if along is not None:
        stored = int(field.encoding.get("preferred_chunks", {}).get("time", 1) or 1)
        # a multiple of what is stored together: half a chunk costs as much as a whole one
        pieces[along] = stored * max(1, _CHUNK // (size * stored))
    # the bare variable under a name of its own: naming it by content would read and pickle every coordinate
    chunked: Any = field.variable.chunk(pieces, name=f"field-{uuid4().hex}").data
    return chunked


def _as_asked(data: "xr.Dataset", variables: Sequence[str]) -> "xr.Dataset":
    """Without variables that mean the same as one that was asked for by the file's own name: of two such it is the one."""
    own = {v for v in variables if v in data.data_vars}
    meant = {lexicon.canonical(v) or v for v in own}
    return data.drop_vars([n for n in map(str, data.data_vars) if n not in own and (lexicon.canonical(n) or n) in meant])


def _chosen(fields: "dict[str, xr.DataArray]", variables: Sequence[str], what: str) -> "dict[str, xr.DataArray]":
    wanted = {lexicon.canonical(v) or v: v for v in variables}
    family = {n.replace("geopotential_height", "geopotential"): n for n in fields}
    kept = {}
    for name, asked in wanted.items():
        own = {n for n, f in fields.items() if str(f.attrs["file_name"]).partition(" at ")[0] == asked}
        if own and name not in fields:  # the file's own name of a variable on several levels means all of them
            kept |= {n: fields[n] for n in fields if n in own}
            continue
        found = name if name in fields else family.get(name.replace("geopotential_height", "geopotential"))
        if found is None:
            raise DatasetError(
                what, found=", ".join(sorted(fields)), expected=asked, remedy="Choose among the variables that the file has."
            )
        kept[found] = fields[found]
    return kept


def _named(data: "xr.Dataset", what: str, changes: list[str], strict: bool) -> "dict[str, xr.DataArray]":
    """Fields by canonical name, levels taken apart; what is no field on the grid is left out and said."""
    fields: dict[str, xr.DataArray] = {}
    left: list[str] = []
    for key in data.data_vars:
        field = data[key]
        if not {"latitude", "longitude"} <= set(field.dims) or field.dtype.kind not in "iuf":
            left.append(str(key))
            continue
        single = [d for d in field.dims if d not in (*_KEPT, "level") and field.sizes[d] == 1]
        field = field.isel({d: 0 for d in single})
        extra = [d for d in field.dims if d not in (*_KEPT, "level")]
        if extra:
            left.append(f"{key} (dimension {', '.join(map(str, extra))}: select along it first)")
            continue
        parts = levels_of(field, what, changes)
        if isinstance(parts, str):
            left.append(f"{key} ({parts}: not pressure; interpolate, or select one level first)")
            continue
        place = height_of(field)
        for level, part in parts:
            name = _name(str(key), field.attrs, level)
            part = part.drop_vars([c for c in part.coords if c not in part.dims and (strict or c not in ("init_time", "lead_time"))])
            part.attrs = {**field.attrs, "file_name": str(key) if level is None else f"{key} at {level:g} hPa", "file_variable": str(key)}
            part.attrs |= place
            if name in fields:
                raise DatasetError(
                    what,
                    found=f"{key} and {fields[name].attrs['file_name']}, which are both {name}",
                    expected="one variable of that name",
                    remedy="Choose one by its name in the file with --read (variables= in Python), "
                    "or rename one with --rename (rename= in Python).",
                )
            fields[name] = part.rename(name)
    if left:
        changes.append("left out, not fields on the grid: " + ", ".join(left))
    if not fields:
        strange = sorted({str(d) for v in data.data_vars.values() for d in v.dims} - {*_KEPT, "level"})
        raise DatasetError(
            what,
            found=f"variables {', '.join(left or map(str, data.data_vars)) or 'none'}" + (f" on {', '.join(strange)}" if strange else ""),
            expected="at least one field with latitude and longitude, on pressure levels where it has levels",
            remedy=f"Select along {', '.join(strange)} in the file." if strange else "Choose a file with gridded fields.",
        )
    return fields


def _name(key: str, attrs: dict, level: float | None) -> str:
    known = lexicon.identify(key)
    if known is None:
        standard = str(attrs.get("standard_name", ""))
        by_standard = [q for q in lexicon.QUANTITIES if q.standard_name == standard and q.surface is (level is None)]
        known = (
            (by_standard[0], None)
            if (len(by_standard) == 1 and standard not in ("latitude", "eastward_wind", "northward_wind", "air_temperature"))
            or (by_standard and level is not None)
            else None
        )
    if known is None:
        return key if level is None else f"{key}_{level:g}"
    quantity, named = known
    if named is None and level is None and not quantity.surface:
        attr = next(
            (
                attrs[k]
                for k in ("level", "pressure_level", "GRIB_level")
                if k in attrs and str(attrs.get("GRIB_typeOfLevel", "isobaricInhPa")).startswith("isobaric")
            ),
            None,
        )
        try:
            level = float(np.asarray(attr)) if attr is not None else None
        except ValueError:
            level = float(digits) if (digits := "".join(c for c in str(attr) if c.isdigit())) else None
    number = named if named is not None else level
    return quantity.stem if number is None or quantity.surface else f"{quantity.stem}_{number:g}"
