"""Which map can be drawn, where its numbers come from, and how it is coloured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import SpecError
from engine.figures._select import Selection
from engine.figures._style import BATLOW, diverging
from engine.types import Array

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Kind:
    """One kind of map: `single` ones show one case of fields.nc, the others all cases of the Verification."""

    title: str
    single: bool
    scale: str = "magnitude"
    pure: bool = False
    uses_nu: bool = True
    estimator: str = "means over all cases, equal weights"
    hint: str = ""


_QUANTILES = "interval between linear quantiles"
_SIDES = "blue: forecast too low, red: too high"
KINDS = {
    "observed": Kind("Observed", True, uses_nu=False, estimator="observed, no estimate"),
    "mean": Kind("Ensemble mean", True, estimator="mean over members"),
    "deterministic": Kind("Unperturbed model", True, uses_nu=False, estimator="one deterministic forecast"),
    "lower": Kind("Lower end of the 95% interval", True, estimator=_QUANTILES),
    "upper": Kind("Upper end of the 95% interval", True, estimator=_QUANTILES),
    "width": Kind("Width of the 95% interval", True, "from_zero", estimator=_QUANTILES),
    "error": Kind("Ensemble mean minus observed", True, "difference", estimator="mean over members", hint=_SIDES),
    "coverage": Kind(
        "How often the interval held the observation",
        False,
        "coverage",
        pure=True,
        estimator=_QUANTILES,
        hint="blue: too seldom, red: more often than perfect",
    ),
    "bias": Kind("Mean error of the ensemble mean", False, "difference", hint=_SIDES),
    "rmse": Kind("Root mean squared error of the ensemble mean", False, "from_zero"),
    "spread": Kind("Ensemble spread", False, "from_zero"),
    "mean_width": Kind("Mean width of the 95% interval", False, "from_zero", estimator=_QUANTILES),
    "valid": Kind("Share of cases with an observation", False, "share", pure=True, uses_nu=False),
}
_SLICES = {"observed": "observed", "deterministic": "deterministic", "mean": "mean", "lower": "quantiles", "upper": "quantiles"}
_MAPS = {
    "coverage": "coverage_map",
    "bias": "bias_map",
    "rmse": "rmse_map",
    "spread": "spread_map",
    "mean_width": "width_map",
    "valid": "valid_map",
}


def kind_of(s: Selection) -> Kind:
    """The kind that `which` names."""
    which = s.options.get("which") or "coverage"
    if which not in KINDS:
        raise SpecError("figure option which", found=repr(which), expected=f"one of {', '.join(KINDS)}", remedy="Choose one of these.")
    return KINDS[which]


def _case(fields: "xr.Dataset", case: Any) -> int:
    """Position of a case given as position or as init_time."""
    n = fields.sizes["map_case"]
    if isinstance(case, str):
        times = fields["init_time"].values.astype(str).tolist()
        if case not in times:
            raise SpecError(
                "figure option case", found=case, expected=f"one of {n} init times, {times[0]} … {times[-1]}", remedy="Choose one of these."
            )
        return times.index(case)
    at = int(case or 0)
    if not 0 <= at < n:
        raise SpecError("figure option case", found=str(at), expected=f"0 … {n - 1}", remedy="Choose one of the stored cases.")
    return at


def _slice(fields: "xr.Dataset", name: str, s: Selection, case: int, quantile: float | None = None) -> Array:
    array = fields[name].sel(
        {k: v for k, v in {"lead_time": s.lead_time, "variable": s.variable, "nu": s.nu}.items() if k in fields[name].dims}
    )
    array = array.isel(map_case=case)
    return np.asarray((array if quantile is None else array.sel(quantile=quantile, method="nearest")).values, float)


def read(s: Selection) -> "xr.Dataset":
    """The field that is asked for, with what it is in its attributes; one slice of fields.nc is read, no more."""
    import xarray as xr

    kind = kind_of(s)
    which = s.options.get("which") or "coverage"
    fields = s.options.get("fields")
    attrs: dict[str, Any] = {"title": kind.title, "units": "1" if kind.pure else s.units, "variable": s.variable, "lead_time": s.lead_time}
    if kind.uses_nu:
        attrs["nu"] = s.nu
    if kind.single:
        if fields is None:
            raise SpecError(
                f"map {which!r}",
                found="no fields",
                expected="fields=, the opened fields.nc of the run",
                remedy="Run it again with maps switched on, or choose a map over all cases.",
            )
        case = _case(fields, s.options.get("case"))
        then = fields["observed"].sel(lead_time=s.lead_time).isel(map_case=case)
        attrs |= {"init_time": str(then["init_time"].values), "valid_time": str(then["valid_time"].values)}
        if which == "width":
            values = _slice(fields, "quantiles", s, case, 0.975) - _slice(fields, "quantiles", s, case, 0.025)
        elif which == "error":
            values = _slice(fields, "mean", s, case) - _slice(fields, "observed", s, case)
        else:
            values = _slice(fields, _SLICES[which], s, case, {"lower": 0.025, "upper": 0.975}.get(which))
    else:
        more = {"nu": s.nu}
        if which == "coverage":
            more["level"] = attrs["level"] = int(s.options.get("level") or 95)
            if more["level"] not in s.verification["level"].values.tolist():
                raise SpecError(
                    "figure option level",
                    found=str(more["level"]),
                    expected=f"one of {s.verification['level'].values.tolist()}",
                    remedy="Choose one of these.",
                )
        values = np.asarray(s.at(_MAPS[which], **more).values, float)
    source = fields if kind.single and fields is not None else s.verification
    coords = {
        name: (name, source[name].values.astype(float), {"units": units})
        for name, units in (("latitude", "degrees_north"), ("longitude", "degrees_east"))
    }
    return xr.Dataset({which: (("latitude", "longitude"), values, {"units": attrs["units"], "long_name": kind.title})}, coords, attrs)


def shared_range(*fields: Any, centre: float | None = None) -> tuple[float, float]:
    """One colour range for maps that are compared (arrays or what `FieldMap.data` gives); symmetric about `centre` where given."""
    arrays = [np.asarray(next(iter(f.data_vars.values())) if hasattr(f, "data_vars") else f, float) for f in fields]
    finite = np.concatenate([a[np.isfinite(a)] for a in arrays] or [np.zeros(0)])
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    if centre is not None:
        reach = max(high - centre, centre - low) or 1.0
        return centre - reach, centre + reach
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def colours(data: "xr.Dataset", s: Selection) -> tuple[Sequence[str], tuple[float, float]]:
    """Colour scale and its range: batlow for magnitudes, vik centred for differences and for coverage about its perfect value."""
    kind = kind_of(s)
    limits: Sequence[float] | None = s.options.get("limits")
    (low, high) = (
        (float(limits[0]), float(limits[1]))
        if limits is not None
        else shared_range(data, centre=0.0 if kind.scale == "difference" else None)
    )
    if kind.scale == "difference":
        return diverging(low, high, 0.0), (low, high)
    if kind.scale == "coverage":
        target = perfect(data, s)
        low, high = (low, high) if limits is not None else (min(low, target - 0.05), 1.0)
        return diverging(low, high, target), (low, high)
    if kind.scale == "share":
        return BATLOW, (0.0, 1.0)
    return BATLOW, (0.0, high) if kind.scale == "from_zero" and limits is None else (low, high)


def perfect(data: "xr.Dataset", s: Selection) -> float:
    """Coverage of a perfect ensemble: of this M for 95%, the level itself for the others."""
    level = int(data.attrs.get("level", 95))
    return s.nominal if level == 95 and np.isfinite(s.nominal) else level / 100
