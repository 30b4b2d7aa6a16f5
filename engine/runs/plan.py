"""What a run will do: the opened model and data, its cases in shards, regions, thresholds; and what it will cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine import registry
from engine.backbones import open_checkpoint
from engine.data import cases as find_cases
from engine.data import open_dataset
from engine.errors import SpecError
from engine.kernels.area import REGIONS, region_mask, region_weights
from engine.labelled import Classifier
from engine.runs import accumulate
from engine.runs.doctor import device
from engine.runs.posthoc import settle
from engine.runs.spec import RunSpec
from engine.safety import memory_limit
from engine.types import Array, Backbone, Case, Dataset, Method, PostHoc, Score

FIELDS_LIMIT = 64 * 2**20
"""Bytes up to which the maps of all cases are stored; beyond, those of evenly spaced cases."""


@dataclass(frozen=True)
class Shard:
    """Cases between two checkpoints of a run; `name` is its file."""

    name: str
    lead: int
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Plan:
    """A spec with everything opened that it names."""

    spec: RunSpec
    backbone: Backbone
    dataset: Dataset
    method: Method
    params: Any
    lead_hours: tuple[float, ...]
    variables: tuple[str, ...]
    cases: tuple[tuple[Case, ...], ...]
    """By lead time."""
    calibrate: tuple[Case, ...]
    regions: Mapping[str, tuple[float, float, float, float]]
    weights: Array
    """`(region, H, W)`, each region's sum 1."""
    thresholds: Mapping[str, tuple[float, ...]]
    spread_edges: Mapping[str, tuple[float, ...]]
    scores: tuple[Score, ...]
    map_cases: frozenset[int]
    nu: tuple[int, ...]
    posthoc: tuple[PostHoc | None, Any] = (None, None)
    """The post-hoc method that follows the ensemble, and its parameters."""
    state: Any = None
    """What the method learned, where it learns."""

    @property
    def outputs(self) -> list[int]:
        """Positions of the verified variables among the backbone's outputs."""
        return [self.backbone.out_variables.index(v) for v in self.variables]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know about the request."""
        named = ", ".join(f"{h:g}" for h in self.backbone.lead_hours)
        strange = [h for h in self.lead_hours if h not in self.backbone.lead_hours]
        return tuple(
            f"lead time {h:g} h is not among those that the checkpoint names ({named} h): it may not be trained for it" for h in strange
        )

    @property
    def has_climatology(self) -> bool:
        """Anomaly scores can be computed."""
        return self.backbone.climatology(self.backbone.prepare(self.dataset, self.cases[0][:1])) is not None

    @property
    def learning(self) -> int:
        """Member forwards on the calibration split at the grid's ν, for operating points and for a post-hoc method."""
        members = self.spec.calibrate_members if self.chooses else 0
        return len(self.calibrate) * len(self.nu) * (members + (self.spec.members if self.posthoc[0] else 0))

    @property
    def chooses(self) -> bool:
        """The operating points are chosen here: there is something to choose, and nothing was chosen before."""
        return bool(self.calibrate) and self.method.uses_nu and not self.spec.chosen

    def shards(self) -> Iterator[Shard]:
        """All shards in order."""
        size = self.spec.shard_cases
        for lead, all_cases in enumerate(self.cases):
            for start in range(0, len(all_cases), size):
                cases = all_cases[start : start + size]
                yield Shard(f"verify-{lead:02d}-{start:06d}-{len(cases)}", lead, cases)

    def work(self, shard: Shard) -> int:
        """Member forwards of a shard: the unit of progress."""
        return len(shard.cases) * len(self.nu) * self.spec.members


def make_plan(spec: RunSpec) -> Plan:
    """Open what the spec names and settle its defaults. Raises with the first thing that does not fit."""
    makers = registry.entries("methods")
    known = [key for key, entry in makers.items() if isinstance(entry, Method) and not getattr(entry, "single", 0)]
    method: Any = makers.get(spec.method)
    if method is None:
        raise SpecError(
            f"method {spec.method!r}",
            found="no method of this name",
            expected=f"one of {', '.join(known)}",
            remedy="Choose among these; controls like director:no_noise are of classifications alone.",
        )
    if isinstance(method, PostHoc):
        raise SpecError(
            f"method {method.key!r}",
            found="a post-hoc method, which follows an ensemble",
            expected="a method that makes one",
            remedy=f"Name the method that makes the ensemble, and verify with: python -m engine sweep --posthoc {method.key}",
        )
    if not isinstance(method, Method):
        raise SpecError(
            f"method {spec.method!r}",
            found="a classification method; this model forecasts fields",
            expected="a method that gives an ensemble of fields",
            remedy=f"Use {' or '.join(sorted(known))}.",
        )
    if getattr(method, "single", False):
        raise SpecError(
            f"method {method.key!r}",
            found="one forecast and no ensemble",
            expected="a method that gives an ensemble",
            remedy="Run such a method: every run verifies the deterministic forecast beside it (rmse_deterministic, acc_deterministic).",
        )
    double = bool(spec.fit and spec.student)
    if "training" in method.needs and (double or not (spec.student or spec.gives("fit"))):
        raise SpecError(
            f"method {method.key!r}",
            found="both fit data and a student" if double else "no fit data and no student",
            expected="files to learn from, or the file of what was learned before",
            remedy="Name one of them: --fit FILE … or --student FILE.",
        )
    if "training" not in method.needs and (spec.fit or spec.student):
        raise SpecError(
            f"method {method.key!r}", found="fit data or a student", expected="neither: this method learns nothing", remedy="Leave it out."
        )
    params = _params(method, spec.params)
    posthoc = settle(spec.posthoc, spec.posthoc_params) if spec.posthoc else (None, None)
    paths = {name: getattr(spec, name) for name in ("normalisation", "climatology") if getattr(spec, name)}
    backbone = open_checkpoint(spec.checkpoint, **spec.architecture, **paths)
    if isinstance(backbone, Classifier):
        raise SpecError(
            f"checkpoint {spec.checkpoint.name}",
            found="a classifier",
            expected="a model of fields",
            remedy="Classifiers are run on the page Classify, or by: python -m engine run --checkpoint … --data …",
        )
    backbone.module.to(device())
    dataset = open_dataset(spec.data, calibrate=spec.calibrate or None, fit=spec.fit or None, **spec.roles())
    leads = spec.lead_hours or backbone.lead_hours[:1]
    variables = spec.variables or backbone.out_variables
    unknown = [v for v in variables if v not in backbone.out_variables]
    if unknown:
        raise SpecError(
            "variables",
            found=", ".join(unknown),
            expected=f"outputs of the model: {', '.join(backbone.out_variables)}",
            remedy="Choose among these.",
        )
    nu = spec.nu if method.uses_nu else spec.nu[:1]
    by_lead = _cases(dataset, tuple(leads), spec.max_cases)
    calibrate = tuple(find_cases(dataset, leads[0], "calibrate", spec.calibrate_cases)) if "calibrate" in dataset.splits else ()
    latitude, longitude = dataset.fields["latitude"].values, dataset.fields["longitude"].values
    # a default region that the grid does not reach is left out; one that the user drew and that is empty is an error
    regions = {n: box for n, box in REGIONS.items() if region_mask(latitude, longitude, box).any()} | spec.regions
    scale = dict(zip(backbone.out_variables, backbone.output_sd, strict=True))
    thresholds = {v: tuple(float(t * scale[v]) for t in spec.thresholds) for v in variables}
    edges = {v: tuple(float(e * scale[v]) for e in np.geomspace(0.01, 4, 40)) for v in variables}
    plan = Plan(
        spec, backbone, dataset, method, params, tuple(leads), tuple(variables), by_lead, calibrate, regions,
        region_weights(latitude, longitude, regions), thresholds, edges, (),
        _map_cases(spec, by_lead, len(nu), len(variables), dataset.grid), nu, posthoc,
    )  # fmt: skip
    _refuse_what_does_not_fit(plan)
    return replace(plan, scores=_scores(spec, plan.has_climatology))


def _cases(dataset: Dataset, leads: tuple[float, ...], limit: int | None) -> tuple[tuple[Case, ...], ...]:
    """Cases by lead time; with several lead times the same initial times for all, so that they compare and share their labels."""
    if len(leads) == 1:
        return (tuple(find_cases(dataset, leads[0], "verify", limit)),)
    every = [{c.init: c for c in find_cases(dataset, lead, "verify")} for lead in leads]
    common = sorted(set.intersection(*(set(cases) for cases in every)))
    if not common:
        raise SpecError(
            "lead_hours",
            found=", ".join(f"{lead:g}" for lead in leads),
            expected="lead times that some initial time has in common",
            remedy="Bring a longer period, or run the lead times one by one.",
        )
    if limit is not None and limit < len(common):
        common = [common[i] for i in np.linspace(0, len(common) - 1, limit).round().astype(int)]
    return tuple(tuple(cases[init] for init in common) for cases in every)


def _params(method: Method, given: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return method.Params(**given)
    except ValidationError as fault:
        known = ", ".join(method.Params.model_fields) or "none"
        raise SpecError(
            f"params of {method.key}", found=str(given), expected=f"fields: {known}", remedy=fault.errors()[0]["msg"]
        ) from fault


def _scores(spec: RunSpec, climatology: bool) -> tuple[Score, ...]:
    if spec.scores:
        return accumulate.chosen(spec.scores)
    known = [s for s in registry.entries("scoring").values() if isinstance(s, Score)]  # the others score class probabilities
    absent = (set() if climatology else {"climatology"}) | (set() if spec.thresholds else {"thresholds"})
    return tuple(s for s in known if not s.optional and s.min_members <= spec.members and not s.needs & absent)


def _map_cases(spec: RunSpec, by_lead: tuple[tuple[Case, ...], ...], nus: int, variables: int, grid: tuple[int, int]) -> frozenset[int]:
    if not spec.maps:
        return frozenset()
    from engine.runs.verification import FAN

    a_case = (nus * (len(FAN) + 1) + 2) * variables * grid[0] * grid[1] * 4
    chosen = []
    for cases in by_lead:
        most = max(1, int(FIELDS_LIMIT // (a_case * len(by_lead))))
        at = np.unique(np.linspace(0, len(cases) - 1, min(most, len(cases))).round().astype(int))
        chosen += [cases[i].id for i in at]
    return frozenset(chosen)


def memory_needed(backbone: Backbone, *, members: int, nu: int, variables: int, shard_cases: int) -> int:
    """Bytes at the peak: weights, one case's members at every layer's width, one ensemble in float64 and its copies.

    `nu` and `variables` are counts. What `inspect` says beforehand is what a run is refused by.
    """
    weights = sum(p.numel() * p.element_size() for p in backbone.module.parameters())
    points = backbone.grid[0] * backbone.grid[1]
    ensemble = members * len(backbone.out_variables) * points * 4
    inputs = len(backbone.in_variables) * points * 4 * shard_cases
    maps = nu * variables * points * 8 * (members + 12)
    return int(weights * 1.1 + ensemble * 8 + inputs * 3 + maps + 4e8)


def _refuse_what_does_not_fit(plan: Plan) -> None:
    spec = plan.spec
    need = memory_needed(plan.backbone, members=spec.members, nu=len(plan.nu), variables=len(plan.variables), shard_cases=spec.shard_cases)
    if plan.posthoc[0]:  # it learns from all calibration cases of one ν together
        points = plan.backbone.grid[0] * plan.backbone.grid[1]
        need += len(plan.calibrate) * (spec.members * len(plan.backbone.out_variables) * 4 + spec.members * 20) * points
    limit = memory_limit()
    if need > limit:
        raise SpecError(
            "memory",
            found=f"{need / 2**30:.1f} GiB needed",
            expected=f"at most {limit / 2**30:.1f} GiB",
            remedy="Fewer members, fewer ν, fewer calibrate_cases for a post-hoc method, or NUSCOPE_MEMORY_LIMIT.",
        )
