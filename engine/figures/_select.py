"""Named selections on a Verification: which ν, region, lead time, variable; what is not there is refused with what there is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import SpecError
from engine.figures._style import percent
from engine.formatting import between as between
from engine.judging import aim, operating_points
from engine.lexicon import at_nu, has_nu, title_of

if TYPE_CHECKING:
    import xarray as xr

COMMON = frozenset({"nu", "region", "lead_time", "variable", "narrow"})


@dataclass(frozen=True)
class Selection:
    """One choice on one Verification; `options` are the figure's own."""

    verification: "xr.Dataset"
    nus: tuple[int, ...]
    region: str
    lead_time: float
    variable: str
    options: Mapping[str, Any]

    @property
    def nu(self) -> int:
        """The (first) ν looked at."""
        return self.nus[0]

    @property
    def units(self) -> str:
        """Units of the variable."""
        return str(self.verification["unit"].sel(variable=self.variable).item())

    @property
    def members(self) -> int:
        """M."""
        return int(self.verification.attrs["members"])

    @property
    def nominal(self) -> float:
        """What a perfect ensemble of this M covers with its 95% interval."""
        return float(self.verification.attrs.get("nominal_95", np.nan))

    @property
    def perfect(self) -> str:
        """What the 95% interval should hold, named in a picture."""
        promised = "promises" in aim(self.verification.attrs)[1]
        return f"promised: {percent(self.nominal)}" if promised else f"perfect (Gaussian) at M = {self.members}: {percent(self.nominal, 1)}"

    def at(self, name: str, **more: Any) -> "xr.DataArray":
        """A variable of the Verification at this region, lead time and variable, for all ν unless `more` says which."""
        if name not in self.verification:
            raise SpecError(
                f"verification {self.key}",
                found=f"no {name}",
                expected="a run that stored it",
                remedy="Run it again with this score or map.",
            )
        array = self.verification[name]
        where = {"region": self.region, "lead_time": self.lead_time, "variable": self.variable} | more
        return array.sel({k: v for k, v in where.items() if k in array.dims})

    @property
    def key(self) -> str:
        """The run's short key."""
        return str(self.verification.attrs.get("key", ""))[:8]

    @property
    def points(self) -> dict[str, dict[str, Any]]:
        """The operating points for what is looked at, each with what it was chosen for (`engine.judging.operating_points`)."""
        return operating_points(self.verification, variable=self.variable, region=self.region, lead_time=self.lead_time)

    @property
    def uses_nu(self) -> bool:
        """Whether the run's method has a ν."""
        return has_nu(self.verification.attrs)

    def label(self, nu: int) -> str:
        """`ν = 4`, or the method's name where a run has no ν."""
        return at_nu(self.verification.attrs, nu)

    @property
    def looked_at(self) -> str:
        """What a sentence begins with: `At ν = 4`, or `With DIRECTOR`."""
        return f"{'At' if self.uses_nu else 'With'} {self.label(self.nu)}"

    def subject(self, *, region: bool = True, nu: bool = True) -> str:
        """`Z500 geopotential height, 72 h ahead, global, ν = 4`."""
        parts = [title_of(self.variable), f"{self.lead_time:g} h ahead", *([self.region] if region else [])]
        return ", ".join(parts + ([" and ".join(self.label(n) for n in self.nus)] if nu else []))

    def footer(self, estimator: str, uncertainty: str, *, members: bool = True) -> str:
        """What every figure states: members, cases, estimator, valid share, sampling uncertainty, run."""
        valid = percent(float(self.at("valid_fraction")), 1) if "valid_fraction" in self.verification else "unknown share"
        parts = [f"M = {self.members} members"] if members else []
        parts += [
            f"{self.verification.attrs.get('cases', self.verification.sizes.get('case', 0))} cases",
            estimator,
            f"{valid} of the data valid",
            uncertainty,
        ]
        return " · ".join([*parts, f"run {self.key}"])

    def bootstrap(self) -> str:
        """How the stored intervals were made."""
        attrs = self.verification.attrs
        if "independent_cases" not in attrs:  # a run of an earlier version
            return f"95% block bootstrap over cases (blocks of {attrs.get('block_length', '?')}, {attrs.get('bootstrap', '?')} draws)"
        return f"95% intervals for dependent cases (worth {attrs['independent_cases']:.0f} independent)"


def score_name(verification: "xr.Dataset", *names: str) -> str:
    """The first of these scores that the run stored."""
    for name in names:
        if name in verification:
            return name
    raise SpecError(
        "verification",
        found=f"none of {', '.join(names)}",
        expected="a run with that score",
        remedy="Run it again with this score switched on.",
    )


def select(verification: "xr.Dataset", options: Mapping[str, Any], accepts: Iterable[str] = ()) -> Selection:
    """Check the options and fill in what was not said: first region, lead time and variable; ν of the calibration-first point."""
    unknown = set(options) - COMMON - set(accepts)
    if unknown:
        raise SpecError(
            "figure options", found=", ".join(sorted(unknown)), expected=", ".join(sorted(COMMON | set(accepts))), remedy="Drop the others."
        )
    chosen: dict[str, Any] = {}
    for name in ("region", "lead_time", "variable"):
        have = verification[name].values.tolist()
        value = options.get(name)
        chosen[name] = have[0] if value is None else value
        if chosen[name] not in have:
            raise SpecError(
                f"figure option {name}", found=repr(value), expected=f"one of {', '.join(map(str, have))}", remedy="Choose one of these."
            )
    grid = [int(n) for n in verification["nu"].values]
    nu = options.get("nu")
    if nu is None:
        first = operating_points(verification, **chosen).get("calibration_first", {}).get("nu")
        nu = first if first in grid else grid[0]
    nus = tuple(dict.fromkeys(int(n) for n in (nu if isinstance(nu, list | tuple | np.ndarray) else (nu,))))
    if not 1 <= len(nus) <= 2 or not set(nus) <= set(grid):
        raise SpecError(
            "figure option nu", found=str(nu), expected=f"one or two of {', '.join(map(str, grid))}", remedy="Choose ν of this run's grid."
        )
    own = {k: v for k, v in options.items() if k in set(accepts) | {"narrow"}}
    return Selection(verification, nus, chosen["region"], chosen["lead_time"], chosen["variable"], own)


def positions(nus: Iterable[int]) -> list[float]:
    """Where each ν stands on a logarithmic axis; in order of the grid where one is not positive."""
    values = [float(n) for n in nus]
    return [float(np.log2(n)) for n in values] if min(values) > 0 else [float(i) for i in range(len(values))]
