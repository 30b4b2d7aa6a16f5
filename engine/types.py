"""The contracts between the engine's parts. Importing this module costs NumPy and pydantic, never torch.

Dimension names everywhere: member, case, init_time, lead_time, valid_time, variable, latitude, longitude, level.
Arrays inside are plain; labels and units live at the border (xarray).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

if TYPE_CHECKING:  # heavy at import time, and needed for annotations only
    import torch
    import xarray as xr

Array = NDArray[np.floating[Any]]
Better = Literal["lower", "higher", "nominal"]


@dataclass(frozen=True)
class Dataset:
    """Gridded data ready for a model: canonical names and units, north to south, longitude 0 … 360.

    `fields` holds each variable as `(time, latitude, longitude)`, opened lazily. `splits` maps a split ("fit",
    "calibrate", "verify") to the positions on `time` that it may use as *initial and valid* times: splits never share a
    time, so that tuning never sees what verification scores. `changes` says in plain words what was converted on the way
    in (units, orientation, names). `fingerprint` is a hash of the content of the files and of the roles.
    """

    fields: "xr.Dataset"
    splits: Mapping[str, NDArray[np.int64]]
    task: Literal["fields"] = "fields"
    changes: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    fingerprint: str = ""

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.fields.sizes["latitude"], self.fields.sizes["longitude"]

    @property
    def units(self) -> dict[str, str]:
        """Units by variable."""
        return {str(name): str(v.attrs.get("units", "1")) for name, v in self.fields.data_vars.items()}


@dataclass(frozen=True)
class Case:
    """One forecast to make: positions on the dataset's `time`, and an id that keys the noise (never its place in a batch)."""

    id: int
    init: int
    valid: int
    lead_hours: float
    init_time: str
    valid_time: str


@dataclass(frozen=True)
class Batch:
    """What a model sees: normalised `inputs` `(case, variable, H, W)`, `observed` `(case, variable, H, W)` in physical
    units, and the cases. Validated when built, the only form that backbones get.
    """

    inputs: "torch.Tensor"
    observed: Array
    cases: tuple[Case, ...]
    day_of_year: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Refuse a batch whose parts disagree."""
        n = len(self.cases)
        if self.inputs.ndim != 4 or self.observed.ndim != 4 or self.inputs.shape[0] != n or self.observed.shape[0] != n:
            raise ValueError(f"batch of {n} cases with inputs {tuple(self.inputs.shape)} and observed {self.observed.shape}")


class Backbone(ABC):
    """A frozen model: "run forward", "where attention happens", and the border between physical and normalised units.

    Sites are numbered in the order in which one forward calls attention. `prefix` computes what precedes the first
    active site, once for all members and every ν; `suffix` goes on from there, and with the interception's `spread` the
    first active site turns the one row into one row per member.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]]

    module: "torch.nn.Module"
    revision: str
    """Hash of the weights and of the architecture that was named."""
    in_variables: tuple[str, ...]
    out_variables: tuple[str, ...]
    out_units: tuple[str, ...]
    lead_hours: tuple[float, ...]
    grid: tuple[int, int]

    @property
    @abstractmethod
    def output_sd(self) -> Array:
        """Standard deviation that each output is normalised by, `(variable,)` in `out_units`: the scale of its anomalies."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Format, parameters, key table, recorded facts: what `inspect` prints."""

    @abstractmethod
    def sites(self) -> tuple[str, ...]:
        """Qualified module name of each attention call, in call order."""

    @abstractmethod
    def prepare(self, dataset: Dataset, cases: Sequence[Case]) -> Batch:
        """Read and normalise these cases."""

    @abstractmethod
    def prefix(self, batch: Batch, first_site: int) -> Any:
        """The state just before attention call `first_site`."""

    @abstractmethod
    def suffix(self, state: Any, first_site: int) -> "torch.Tensor":
        """From that state to the normalised output `(rows, variable, H, W)`."""

    @abstractmethod
    def physical(self, output: "torch.Tensor", batch: Batch) -> Array:
        """Normalised output to physical units, `(rows, variable, H, W)` float32; rows are members of the batch's cases."""

    @abstractmethod
    def climatology(self, batch: Batch) -> Array | None:
        """Climatology at the valid times in physical units, `(case, variable, H, W)`, or None where none was given."""


@dataclass(frozen=True, eq=False)
class EnsembleView:
    """Members beside what was observed, with what several scores share computed once.

    `members` `(member, case, *event)` and `observed` `(case, *event)`, same units. A NaN member is a missing member; a
    NaN in `observed` makes the point invalid. `climatology` broadcasts against `observed`. Everything derived is float64
    where it is a sum, and has the shape `(case, *event)` unless said.
    """

    members: Array
    observed: Array
    climatology: Array | None = None
    reference: Array | None = None
    """The deterministic forecast `(case, *event)`, for scores that compare with it."""
    thresholds: tuple[float, ...] = ()
    """Thresholds of the exceedance scores, on `observed - climatology` (climatology 0 where None)."""
    spread_edges: tuple[float, ...] = ()
    """Inner bin edges of the spread-skill diagram, on the spread √((M+1)/M · variance), ascending, unit of the variable."""
    intervals: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    """Central intervals that a post-hoc method gives: level in percent → lower and upper end `(case, *event)`, in place of the
    members' own linear quantiles in coverage and width. NaN ends: no interval is known at that level, and neither are its scores."""
    spread_factor: float = 1.0
    """The members were spread about their own mean by this factor after they were drawn. They are then no independent draws of one law,
    which the fair CRPS takes them for and allows for; what counts members (ranks, coverage, spread) speaks of them as they are."""
    _memo: dict[tuple[str, int], Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, weights: Array, compute: "Callable[[EnsembleView, Array], Any]") -> Any:
        """`compute(self, weights)`, kept under `name` for this weights array: scores that share a statistic pay for it once."""
        key = (name, id(weights))
        if key not in self._memo:
            self._memo[key] = (weights, compute(self, weights))  # holding the weights keeps their id from being reused
        return self._memo[key][1]

    @cached_property
    def complete(self) -> bool:
        """No member is missing anywhere."""
        return not np.isnan(self.members).any()

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """Effective member count at each point."""
        if self.complete:
            return np.full(self.members.shape[1:], len(self.members), dtype=np.int64)
        return len(self.members) - np.count_nonzero(np.isnan(self.members), axis=0)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Points that can be scored: observed, and at least two members (one, of a single-member forecast).

        The same points for every score, so that scores in one table speak of the same places.
        """
        return ~np.isnan(self.observed) & (self.count >= min(2, len(self.members)))

    @cached_property
    def ordered(self) -> Array:
        """Members in ascending order (NaN last), `(member, case, *event)`: a view of memory in which members are adjacent."""
        adjacent = np.ascontiguousarray(np.moveaxis(self.members, 0, -1))
        if np.shares_memory(adjacent, self.members):
            adjacent = adjacent.copy()
        adjacent.sort(axis=-1)
        return np.moveaxis(adjacent, -1, 0)

    @cached_property
    def mean(self) -> Array:
        """Ensemble mean."""
        if self.complete:
            return np.add.reduce(self.members, axis=0, dtype=np.float64) / len(self.members)
        total = np.add.reduce(np.where(np.isnan(self.members), 0, self.members), axis=0, dtype=np.float64)
        return np.where(self.count > 0, total / np.maximum(self.count, 1), np.nan)

    @cached_property
    def variance(self) -> Array:
        """Ensemble variance, ddof = 1; NaN with fewer than two members."""
        squares = np.zeros(self.members.shape[1:])
        for member in self.members:  # member by member: no float64 copy of the whole ensemble
            deviation = member - self.mean
            if not self.complete:
                deviation = np.where(np.isnan(member), 0.0, deviation)
            squares += deviation * deviation
        return np.where(self.count > 1, squares / np.maximum(self.count - 1, 1), np.nan)

    @cached_property
    def error2(self) -> Array:
        """Squared error of the ensemble mean."""
        return (self.mean - self.observed) ** 2

    @cached_property
    def below(self) -> NDArray[np.int64]:
        """Number of members below the observation."""
        return np.asarray(np.count_nonzero(self.members < self.observed, axis=0), dtype=np.int64)

    @cached_property
    def equal(self) -> NDArray[np.int64]:
        """Number of members equal to the observation."""
        return np.asarray(np.count_nonzero(self.members == self.observed, axis=0), dtype=np.int64)


class Score(ABC):
    """One score in two parts, so that batches, workers, regions and lead times merge by addition.

    `statistics` gives, per case and region, area-weighted means over the valid points; the engine averages them over
    cases (weight: the share of valid area) and `combine` turns means into the value. A bootstrap resamples the stored
    per-case statistics. Both parts are vectorised: `combine` gets arrays with any leading shape.

    `unit`: "variable" (that of the forecast variable), "1", or a literal unit. `better`: lower, higher, or nominal (then
    `perfect` is the nominal value). `headline`: shown in tables and on the curve, the others fold away.
    """

    key: str
    title: str
    symbol: str
    unit: str = "variable"
    range: tuple[float, float] = (0.0, float("inf"))
    perfect: float = 0.0
    better: Better = "lower"
    reference: str = ""
    estimator: str = ""
    min_members: int = 1
    needs: frozenset[str] = frozenset()
    """Of "climatology", "reference", "thresholds": what the view must carry."""
    headline: bool = False
    optional: bool = False
    """Costs more than all the others together: computed only where it is asked for by name."""
    profile: bool = False
    """`combine` gives curves (a trailing axis: rank, threshold, bin) instead of one number a selection."""

    @abstractmethod
    def statistics(self, view: EnsembleView, weights: Array) -> dict[str, Array]:
        """Means by case and region.

        `weights` `(region, *space)`, non-negative, where `space` is the trailing part of the event (for fields: the view
        holds one variable, event = space). Returns arrays `(case, region, *k)`; NaN where a region has no valid point.
        A name means the same quantity in every score: what two scores share is stored once.
        """

    @abstractmethod
    def combine(self, means: Mapping[str, Array]) -> Array | dict[str, Array]:
        """Value from means: arrays `(..., *k)` to `(...)`; a dict of such for a decomposition."""


@dataclass(frozen=True)
class Ensemble:
    """A sampled forecast in physical units: `members` `(member, case, variable, H, W)`."""

    members: Array

    @property
    def mean(self) -> Array:
        """Mean over members, `(case, variable, H, W)`."""
        return self.members.mean(axis=0)


class Method(ABC):
    """A way to a probabilistic forecast from a frozen backbone.

    `fit` learns what the method needs from the fit and calibrate splits (never from verify) and returns its state, which
    sweeps and further members reuse. `predict` makes one ensemble for one batch; `shared` is a dictionary that lives as
    long as the batch, for what does not depend on ν (the deterministic prefix).
    """

    key: str
    title: str
    reference: str
    needs: frozenset[str] = frozenset()
    """Of "dropout", "training", "calibration": what must be there; the catalogue greys out what cannot work."""
    uses_nu: bool = False
    Params: type[BaseModel]

    def fit(
        self, backbone: Backbone, dataset: Dataset, params: Any, *, cases: Sequence[Case] = (), seed: int = 0,
        report: Callable[[int, int, str], None] = lambda done, total, message: None, folder: Path | None = None, state: Path | None = None,
    ) -> Any:  # fmt: skip
        """What `predict` gets as its state, learned on the fit split's `cases` (resumable in `folder`), or read from the file `state`.

        Nothing to learn, unless a method says otherwise.
        """
        del backbone, dataset, params, cases, seed, report, folder, state

    @abstractmethod
    def predict(
        self, backbone: Backbone, batch: Batch, *, state: Any, params: Any, nu: int, members: int, seed: int, shared: dict[str, Any]
    ) -> Ensemble:
        """One ensemble of `members` for each case of the batch."""


class PostHoc(ABC):
    """A correction that follows any ensemble, learned on the calibration split only; one state for each variable and ν.

    Shapes: members `(member, case, *space)` of one variable, `*space` `(H, W)` or empty for scalars; weights `(region, *space)` as
    from `engine.kernels.area.region_weights`, the first region being the one that is learned on unless the method says otherwise.
    A state is a dictionary of plain arrays (numbers or text, never objects): it is stored as npz.
    """

    key: str
    title: str
    reference: str
    guarantee: str
    """One plain sentence: what holds, and what breaks it."""
    Params: type[BaseModel]

    @abstractmethod
    def fit(self, ensemble: EnsembleView, weights: Array, params: Any) -> dict[str, NDArray[Any]]:
        """The state, from the calibration split's ensembles. Raises an EngineError where nothing can be learned from them."""

    @abstractmethod
    def apply(self, members: Array, state: Mapping[str, NDArray[Any]], params: Any, weights: Array) -> Array:
        """Members after the correction, of the same shape and type; a missing member stays missing."""

    def intervals(
        self, members: Array, state: Mapping[str, NDArray[Any]], params: Any, weights: Array
    ) -> Mapping[int, tuple[Array, Array]]:
        """Intervals from the members before `apply`, in place of theirs: level in percent → lower, upper `(case, *space)`. None here."""
        del members, state, params, weights
        return {}

    def spread_factor(self, state: Mapping[str, NDArray[Any]], params: Any) -> float:
        """The factor by which `apply` spreads members about their own mean, for the scores that must know; 1 where it does not."""
        del state, params
        return 1.0

    @abstractmethod
    def report(self, state: Mapping[str, NDArray[Any]], params: Any) -> str:
        """One or two sentences: by what rule the state came about, its numbers, and what it leaves out."""


class Figure(ABC):
    """One figure: drawn for the screen by plotly and for export by matplotlib, both from the same tidy data.

    `data` reads a Verification and gives the table behind the picture (what the CSV export holds); `screen` and `page`
    draw it. `describe` is the text alternative: one or two sentences with the numbers that the picture shows.
    Options (`nu`, `region`, `lead_time`, `variable`, …) are named selections on the Verification, never computations.
    """

    key: str
    title: str
    reads: ClassVar[Literal["verification", "calibration", "classification"]] = "verification"
    """Which result it is drawn from: a sweep's Verification, a calibration, or a classification."""

    @abstractmethod
    def data(self, verification: "xr.Dataset", **select: Any) -> Any:
        """The tidy table (`pandas.DataFrame`) or field (`xr.Dataset`) behind the picture."""

    @abstractmethod
    def screen(self, verification: "xr.Dataset", *, dark: bool = False, **select: Any) -> Any:
        """A `plotly.graph_objects.Figure`."""

    @abstractmethod
    def page(self, verification: "xr.Dataset", *, dark: bool = False, **select: Any) -> Any:
        """A `matplotlib.figure.Figure` (never pyplot: its state is shared between sessions)."""

    @abstractmethod
    def describe(self, verification: "xr.Dataset", **select: Any) -> str:
        """The text alternative."""
