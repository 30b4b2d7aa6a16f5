"""Spectra of members beside the observed one: summed over cases while members are at hand, written into the Verification.

    spectrum_observed, spectrum_deterministic   (lead_time, variable, wavenumber)       mean power over cases
    spectrum_members, _low, _high               (nu, lead_time, variable, wavenumber)   mean over cases of the members' median, least
                                                                                        and greatest power

Only where the longitudes go round the globe: elsewhere rows are not periodic, and nothing is stored.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.kernels.spectrum import zonal_spectrum
from engine.runs.gridsums import add_exactly
from engine.runs.plan import Plan, Shard
from engine.types import Array

PREFIX = "spectrum/"


def goes_round(longitude: Array) -> bool:
    """Equal steps that close the circle."""
    steps = np.diff(longitude)
    return len(longitude) > 3 and np.allclose(steps, steps[0], rtol=1e-3) and bool(abs(abs(steps[0]) * len(longitude) - 360) < 1e-2 * 360)


class Spectra:
    """Sums over the cases of one shard, by variable and ν."""

    def __init__(self, plan: Plan) -> None:
        self.latitude = plan.dataset.fields["latitude"].values
        self.wanted = goes_round(plan.dataset.fields["longitude"].values)
        self.sums: dict[str, NDArray] = {}

    def add(self, name: str, power: NDArray) -> None:
        """One case's power; a case with a row missing everywhere counts as none."""
        if not np.isfinite(power).all():
            return
        for part, value in ((name, power), (f"{name}#", np.ones(1))):
            # with what rounding takes kept beside, so that a sum does not depend on the shards
            add_exactly(self.sums.setdefault(part, np.zeros((2, *value.shape))), value)

    def case(self, variable: str, observed: Array, single: Array) -> None:
        """The observed field and the frozen forecast, `(H, W)` each."""
        if self.wanted:
            self.add(f"observed/{variable}", zonal_spectrum(observed, self.latitude))
            self.add(f"deterministic/{variable}", zonal_spectrum(single, self.latitude))

    def members(self, nu: int, variable: str, members: Array) -> None:
        """The members of one case, `(member, H, W)`, after any post-hoc step."""
        if self.wanted:
            power = zonal_spectrum(members, self.latitude)
            self.add(f"{nu}/{variable}", np.stack([np.median(power, axis=0), power.min(0), power.max(0)]))

    def arrays(self) -> dict[str, NDArray]:
        """What the shard's file keeps."""
        return {f"{PREFIX}{name}": np.asarray(value) for name, value in self.sums.items()}


def spectra(plan: Plan, shards: Sequence[Shard], files: Mapping[str, Path]) -> dict[str, Any]:
    """Variables of the Verification (dimensions, values); nothing where no shard kept any."""
    sums: dict[tuple[int, str], NDArray] = {}
    for shard in shards:
        with np.load(files[shard.name], allow_pickle=False) as file:
            for name in (n for n in file.files if n.startswith(PREFIX)):
                total = sums.setdefault((shard.lead, name.removeprefix(PREFIX)), np.zeros_like(file[name]))
                add_exactly(total, file[name][0])
                total[1] += file[name][1]
    if not sums:
        return {}
    count = plan.dataset.grid[1] // 2 + 1

    def mean(lead: int, name: str, rows: int) -> NDArray:
        if (lead, name) not in sums:
            return np.full((rows, count), np.nan)
        return np.reshape(sums[lead, name].sum(0), (rows, count)) / sums[lead, f"{name}#"].sum(0)

    leads, variables = range(len(plan.lead_hours)), plan.variables
    found: dict[str, Any] = {}
    for part in ("observed", "deterministic"):
        values = np.stack([np.stack([mean(lead, f"{part}/{v}", 1)[0] for v in variables]) for lead in leads])
        found[f"spectrum_{part}"] = (("lead_time", "variable", "wavenumber"), values)
    drawn = np.stack([np.stack([np.stack([mean(lead, f"{nu}/{v}", 3) for v in variables]) for lead in leads]) for nu in plan.nu])
    for k, end in enumerate(("", "_low", "_high")):
        found[f"spectrum_members{end}"] = (("nu", "lead_time", "variable", "wavenumber"), drawn[:, :, :, k])
    return found
