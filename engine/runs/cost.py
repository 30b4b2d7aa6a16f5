"""What a run will cost in time, from a forward that was measured here: said before anything runs, and following what is asked for.

A sweep computes what precedes the first sampled attention once a case, batches the members behind it, and costs more at larger ν, since
each query makes more draws. So the time of an ensemble is measured at a few ν, as a part that each call costs and a part
that each member costs, and read between them over ln ν. Scoring is measured on numbers of the model's own grid.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.runs.spec import RunSpec
from engine.runs.tune import Tune

if TYPE_CHECKING:
    import xarray as xr

MEASURED = (1, 16, 64, 256, 512)
"""ν at which ensembles are timed: one in each regime of the sampling, and the ends of what is usually swept."""
CLOCKS = (time.perf_counter, time.process_time)
"""The wall clock's, and the processor's."""
FEW, MORE = 2, 6
"""Members of the two ensembles that tell the cost of a call from the cost of a member."""
PATIENCE = 20.0
"""Seconds that measuring may take; a model whose one forward is slow is measured at fewer ν."""
START = 12.0
"""Seconds in which a worker starts, imports, opens its files and writes its results, measured on two cores; the same for all runs."""
PASSES = 75
"""Ensembles of a calibration with the default tuner on the demo, from the first design to the last look at each score's ν."""


@dataclass(frozen=True)
class Cost:
    """Seconds: `forward` of one case by the frozen model, `call` of an ensemble without its members, `member` by ν, `scoring` of one
    member of one variable.
    """

    forward: float
    call: float
    member: Mapping[int, float]
    scoring: float

    def at(self, nu: int) -> float:
        """Seconds of one more member at ν; beyond what was measured, as at the nearest that was."""
        known = sorted(self.member)
        return float(np.interp(np.log(nu), np.log(known), [self.member[n] for n in known]))

    def as_dict(self) -> dict[str, Any]:
        """As `inspect` prints it."""
        return {"forward": self.forward, "call": self.call, "member": {str(n): s for n, s in self.member.items()}, "scoring": self.scoring}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Cost":
        """From what `inspect` printed."""
        member = {int(n): float(s) for n, s in found["member"].items()}
        return cls(float(found["forward"]), float(found["call"]), member, float(found["scoring"]))


def sweep_seconds(
    cost: Cost, *, nu: Sequence[int], members: int, cases: int, leads: int = 1, variables: int = 1, calibrate_cases: int = 0,
    calibrate_members: int = 0,
) -> float:  # fmt: skip
    """Seconds of a sweep: ensembles of each case at each ν and their scores, and before them those of the calibration cases."""
    verified = sum(cost.call + members * (cost.at(n) + variables * cost.scoring) for n in nu)
    chosen_on = sum(cost.call + calibrate_members * (cost.at(n) + variables * cost.scoring) for n in nu) if calibrate_cases else 0.0
    return START + leads * cases * (2 * cost.forward + verified) + calibrate_cases * (2 * cost.forward + chosen_on)


def calibration_seconds(cost: Cost, *, cases: int, members: int, nu_max: int, per_layer: bool = False) -> float:
    """Seconds of a calibration: ensembles of each case at the ν that the tuner looks at, spread over ln ν up to the largest."""
    nus = np.unique(np.geomspace(1, nu_max, 12).round().astype(int))
    mean = float(np.mean([cost.call + members * (cost.at(int(n)) + cost.scoring) for n in nus]))
    return START + cases * (2 * cost.forward + PASSES * (4 if per_layer else 1) * mean)


def undisturbed(what: Callable[[], Any], clocks: Sequence[Callable[[], float]] = CLOCKS) -> float:
    """Seconds of a computation on a machine that does nothing else: by the wall clock or by the processor's, whichever is less.

    Beside other work the wall clock also counts what the others do, and the processor's does not; with several threads the
    processor's counts each of them, and the wall clock does not.
    """
    began = [clock() for clock in clocks]
    what()
    return min(clock() - start for clock, start in zip(clocks, began, strict=True))


def measured(
    forward: float,
    ensemble: Callable[[int, int], Any],
    scored: Callable[[int], Any],
    clocks: Sequence[Callable[[], float]] = CLOCKS,
) -> Cost:
    """The cost of a model: `ensemble(members, nu)` draws one, `scored(members)` scores one of one variable."""

    def seconds(what: Callable[[], Any]) -> float:
        return undisturbed(what, clocks)

    ensemble(FEW, MEASURED[0])  # the first pays for libraries that start up
    few = seconds(lambda: ensemble(FEW, MEASURED[1]))
    afford = max(1, int(PATIENCE / max(few * MORE / FEW, 1e-9)))
    nus = MEASURED if afford >= len(MEASURED) else MEASURED[1:2]
    again = 2 if afford >= 2 * len(MEASURED) else 1  # the least of two: what else the machine does only ever adds
    more = {nu: min(seconds(lambda nu=nu: ensemble(MORE, nu)) for _ in range(again)) for nu in nus}
    middle = more[MEASURED[1]]
    each = max((middle - few) / (MORE - FEW), middle / MORE / 4)  # a clock that stutters must not make members free
    call = max(0.0, middle - MORE * each)
    scored(MORE)
    return Cost(forward, call, {nu: max(s - call, s / 4) / MORE for nu, s in more.items()}, seconds(lambda: scored(MORE)) / MORE)


def of_run(seconds: Mapping[int, float], *, cases: int, members: int) -> Cost:
    """The cost that a finished sweep itself measured: its seconds by ν, for ensembles alone; scoring as a sixth of that (on the demo)."""
    member = {nu: s / max(1, cases * members) for nu, s in seconds.items()}
    least = min(member.values())
    return Cost(least, 0.0, member, least / 6)


def calibration_estimate(verification: "xr.Dataset", spec: Mapping[str, Any], tune: Mapping[str, Any]) -> float:
    """Seconds of the calibration that goes with a finished sweep, by the time that the sweep's own ensembles took."""
    taken = {int(n): float(s) for n, s in zip(verification["nu"].values, verification["seconds"].values, strict=True)}
    leads = verification.sizes.get("lead_time", 1)
    cost = of_run(taken, cases=int(verification.attrs["cases"]) * leads, members=int(verification.attrs["members"]))
    fields = RunSpec.model_fields
    cases, members = (int(spec.get(n, fields[n].default)) for n in ("calibrate_cases", "calibrate_members"))
    nu_max, layers = int(tune.get("nu_max", Tune.model_fields["nu_max"].default)), bool(tune.get("per_layer"))
    return calibration_seconds(cost, cases=cases, members=members, nu_max=nu_max, per_layer=layers)


def estimate(plan: Mapping[str, Any], fields: Mapping[str, Any]) -> float:
    """Seconds of what a form asks for, by the `plan` of an `inspect` document: `fields` are those of a `RunSpec`, defaults left out."""
    default = {name: info.get_default(call_default_factory=True) for name, info in RunSpec.model_fields.items() if not info.is_required()}
    asked = default | dict(fields)
    cost = Cost.from_dict(plan["cost"])
    cases, chosen_on = int(plan.get("cases") or 0), int(plan.get("calibrate_cases") or 0)
    return sweep_seconds(
        cost,
        nu=[int(n) for n in asked["nu"]],
        members=int(asked["members"]),
        cases=min(cases, int(asked["max_cases"] or cases)),
        leads=len(asked["lead_hours"]) or 1,
        variables=len(asked["variables"]) or int(plan.get("variables") or 1),
        calibrate_cases=min(chosen_on, int(asked["calibrate_cases"])),
        calibrate_members=int(asked["calibrate_members"]),
    )
