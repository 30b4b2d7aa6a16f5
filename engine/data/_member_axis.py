"""Members of a file under one name: a dimension, a scalar number, or a control run beside the perturbed ones."""

import re
from typing import TYPE_CHECKING

import numpy as np

from engine.data._coordinates import AXES, axis_of
from engine.errors import DatasetError

if TYPE_CHECKING:
    import xarray as xr

_CONTROL = re.compile(r"_?(cf|ctl|ctrl|cntl|cntrl|control)_?")
_PERTURBED = re.compile(r"_?(pf|pert|perturbed|ens|ensemble|members?)_?")


def member_axis(data: "xr.Dataset", asked: str, what: str) -> "xr.Dataset":
    """The dimension `asked` as `member`, exactly as if it were called so in the file."""
    if asked not in data.dims and asked not in data.coords:
        raise DatasetError(
            what,
            found=f"dimensions {', '.join(f'{d} ({n})' for d, n in data.sizes.items())}",
            expected=f"a dimension {asked}",
            remedy="Name the member dimension as the file does with --member-dim (member_dim= in Python).",
        )
    other = next((str(d) for d in data.dims if d != asked and axis_of(str(d), _attrs(data, str(d))) == "member"), None)
    if other is not None and data.sizes[other] > 1:
        raise DatasetError(
            what,
            found=f"{asked} ({data.sizes.get(asked, 1)}), and {other} ({data.sizes[other]}) which is a member dimension too",
            expected="one member dimension",
            remedy=f"Select along {other} in the file first.",
        )
    if other is not None:
        data = data.isel({other: 0}, drop=True)
    clash = [n for n in AXES["member"] if n != asked and n in data.coords]
    return data.drop_vars(clash).rename({asked: "member"}) if asked != "member" else data


def _attrs(data: "xr.Dataset", dim: str) -> dict:
    return data[dim].attrs if dim in data.coords else {}


def members_apart(data: "xr.Dataset", what: str, changes: list[str]) -> "xr.Dataset":
    """A scalar member number as a dimension of one, and control variables (`z_cf` beside `z_pf`) among the perturbed members."""
    if "member" not in data.dims:
        scalar = [str(c) for c in data.coords if data[c].ndim == 0 and axis_of(str(c), data[c].attrs) == "member"]
        if not scalar:
            return data
        label = data[scalar[0]].values
        data = data.drop_vars(scalar)
        fields = {n: v.expand_dims("member") for n, v in data.data_vars.items() if {"latitude", "longitude"} <= set(map(str, v.dims))}
        return data.assign(fields).assign_coords(member=("member", np.atleast_1d(label)))
    return _control_variables(data, changes)


def _control_variables(data: "xr.Dataset", changes: list[str]) -> "xr.Dataset":
    import xarray as xr

    for name in map(str, list(data.data_vars)):
        mark = _CONTROL.search(name)
        if mark is None or "member" in data[name].dims:
            continue
        stem = (name[: mark.start()] + name[mark.end() :]).strip("_")
        others = [
            str(n) for n, v in data.data_vars.items() if "member" in v.dims and (n == stem or _PERTURBED.sub("", str(n)).strip("_") == stem)
        ]
        if len(others) != 1 or set(data[others[0]].dims) - {"member"} != set(data[name].dims):
            continue
        perturbed = data[others[0]]
        labels = perturbed["member"].values if "member" in perturbed.coords else np.arange(1, perturbed.sizes["member"] + 1)
        label = free_label(labels)
        control = data[name].expand_dims("member").assign_coords(member=[label])
        joined = xr.concat(
            [control.assign_attrs(perturbed.attrs), perturbed.assign_coords(member=labels)],
            "member",
            join="exact",
            combine_attrs="override",
        )
        data = data.drop_vars([name, others[0]]).drop_vars("member", errors="ignore").assign({stem: joined.rename(stem)})
        changes.append(f"{name} is member {label} beside the {len(labels)} of {others[0]}: a control run")
    return data


def free_label(labels: np.ndarray) -> object:
    """A control's number: 0 where no member has it, else one more than the largest; `control` among names."""
    if not np.issubdtype(labels.dtype, np.number):
        return "control"
    return labels.dtype.type(0) if 0 not in labels else labels.dtype.type(labels.max() + 1)
