"""What the figures of a calibration share: what there is to select on it, its footer, and logarithmic axes."""

import json
from dataclasses import dataclass
from math import ceil, floor, log2, log10
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from engine.errors import SpecError
from engine.figures._chart import Axis
from engine.figures._charted import Charted
from engine.figures._select import Selection
from engine.figures._style import number
from engine.judging import operating_points

if TYPE_CHECKING:
    import xarray as xr

READINGS = {"scale": "mean scale", "per_example": "example by example", "grid": "the loss itself"}


@dataclass(frozen=True)
class CalibrationSelection(Selection):
    """A calibration speaks of one region, lead time and variable: nothing of these is chosen, all of it is stated."""

    @property
    def units(self) -> str:
        """Units of the variable that the scores speak of."""
        return str(self.verification.attrs.get("unit", ""))

    @property
    def scale_units(self) -> str:
        """What departures and errors are measured in."""
        return str(self.verification.attrs.get("scale_unit", ""))

    @property
    def point(self) -> dict[str, Any]:
        """The calibration-first operating point: ν*, its interval where one is known, and whether it stands at an edge."""
        return operating_points(self.verification).get("calibration_first", {})

    @property
    def warned(self) -> frozenset[str]:
        """Codes of what the calibration warns of."""
        return frozenset(str(w.get("code")) for w in json.loads(self.verification.attrs.get("warnings") or "[]"))

    @property
    def star(self) -> str:
        """`ν = 15 (12 … 19)`."""
        return with_interval(self.nu, *(self.interval or (None, None)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of ν*, or None where none is known."""
        low, high = self.point.get("low"), self.point.get("high")
        return (float(low), float(high)) if low is not None and high is not None and known(low) and known(high) else None

    def measured(self, name: str) -> float:
        """Something measured per ν, at ν*; NaN where it was not measured there."""
        return float(self.verification[name].sel(nu=self.nu)) if self.nu in self.verification["nu"].values else float("nan")

    def footer(self, estimator: str, uncertainty: str, *, members: bool = True) -> str:
        """What every figure of a calibration states: members, cases, estimator, norm, sampling uncertainty, run."""
        attrs = self.verification.attrs
        parts = [f"M = {self.members} members"] if members else []
        parts += [f"{attrs.get('cases', self.verification.sizes.get('case', 0))} calibration cases", estimator, str(attrs.get("norm", ""))]
        return " · ".join([*parts, uncertainty, f"run {self.key}"])

    def bootstrap(self) -> str:
        """How the stored intervals were made."""
        return "95% intervals for dependent cases"


class Calibrated(Charted):
    """A figure that reads a calibration; it has no selections but `narrow` and its own."""

    reads: ClassVar[Literal["verification", "calibration"]] = "calibration"
    nus = 1

    def choose(self, verification: "xr.Dataset", options: dict[str, Any]) -> Selection:
        """The calibration as it is, at its ν*."""
        may = {"narrow", *self.accepts}
        unknown = set(options) - may
        if unknown:
            raise SpecError(
                "figure options",
                found=", ".join(sorted(unknown)),
                expected=", ".join(sorted(may)),
                remedy="Drop the others: a calibration has one region, lead time and variable.",
            )
        if "curve_nu" not in verification:
            raise SpecError(
                f"figure {self.key}",
                found="a sweep's result",
                expected="a calibration",
                remedy="Draw it from a run that chose ν.",
            )
        attrs = verification.attrs
        grid = [int(n) for n in verification["nu"].values]
        nu = int(operating_points(verification).get("calibration_first", {}).get("nu", grid[0]))
        where = (str(attrs.get("region", "global")), float(attrs["lead_hours"]), str(attrs["variable"]))
        return CalibrationSelection(verification, (nu,), *where, {k: v for k, v in options.items() if k in may})


def calibration(s: Selection) -> CalibrationSelection:
    """The selection as what it is for these figures."""
    assert isinstance(s, CalibrationSelection)
    return s


def known(value: Any) -> bool:
    """Whether a number is there: JSON has null, arrays have NaN."""
    return value is not None and bool(np.isfinite(value))


def with_interval(nu: float, low: Any, high: Any) -> str:
    """`ν = 15 (12 … 19)`; without the bracket where no interval is known."""
    text = f"ν = {nu:,.0f}"
    return f"{text} ({low:,.0f} … {high:,.0f})" if known(low) and known(high) else text


def nu_axis(label: str, largest: float) -> Axis:
    """A logarithmic axis from ν = 1 to the largest ν there is, ticks at powers of two; places are log₂ ν."""
    top = max(log2(largest), 1.0)
    step = max(1, ceil(top / 9))
    ticks = list(range(0, floor(top + 1e-9) + 1, step))
    return Axis(label, (-0.03 * top, 1.03 * top), ticks, [f"{2**t:,}" for t in ticks])


def log_axis(label: str, values: np.ndarray, *, above: float = 0.08, below: float = 0.08) -> Axis:
    """A logarithmic axis that holds these positive values, ticks at round numbers; places are log₁₀."""
    logs = np.log10(values[np.isfinite(values) & (values > 0)])
    low, high = (float(logs.min()), float(logs.max())) if logs.size else (-1.0, 0.0)
    narrow = max(0.0, 0.3 - (high - low)) / 2  # at least a factor of two is shown
    low, high = low - narrow, high + narrow
    low, high = low - below * (high - low), high + above * (high - low)
    ticks: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = [m * 10.0**k for k in range(floor(low) - 1, ceil(high) + 1) for m in steps if low <= log10(m * 10.0**k) <= high]
        if len(ticks) >= 4:
            break
    return Axis(label, (low, high), [log10(t) for t in ticks], [tick_text(t) for t in ticks])


def tick_text(value: float) -> str:
    """`0.05`, `20`, `1,500`: a round number without trailing zeros."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if value >= 1e-4 else number(value)
