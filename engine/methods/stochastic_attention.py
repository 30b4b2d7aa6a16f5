"""Stochastic attention: each attention averages ν keys drawn from its own softmax (arXiv 2604.19530).

    W ~ Multinomial(ν, π),  output = Wᵀ V / ν,  E = πᵀV,  Cov = (1/ν) Vᵀ (diag π − ππᵀ) V

Weights frozen, no retraining. The mean is kept layer by layer only: the network's bias is O(1/ν) and its spread
O(ν^−½) [derived], so both are reported. A classifier's member is the softmax of one stochastic pass; they are averaged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from engine.errors import CalibrationError, SpecError
from engine.kernels.bootstrap import resample
from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.methods._forwards import by_case, known, nll_by_case
from engine.types import Array, Backbone, Batch, Ensemble, Method

if TYPE_CHECKING:
    from torch import Tensor

TOKENS_A_CALL = 2560
"""Members share one forward until it has about so many tokens: beyond that a larger batch gains nothing on a CPU.

Fixed, and never taken from the machine: the number of rows in a matrix product may change its last bits.
"""
REPLICATES = 400
"""Bootstrap replicates behind a standard error of the NLL."""


class StochasticAttention(Method, Classifies):
    """Sampling in every attention call, or in those that a pattern names."""

    key = "stochastic_attention"
    title = "Stochastic attention"
    reference = "arXiv 2604.19530"
    uses_nu = True

    class ClassParams(BaseModel):
        """Which attention calls are sampled."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        sites: str | None = Field(default=None, description="pattern over the attention modules' names, e.g. blocks.*; default: all")
        partial: bool = Field(default=False, description="accept a model some of whose attention is not reached and stays deterministic")

    class Params(ClassParams):
        """Which attention calls are sampled, and which of them differ from the shared ν."""

        nu_of: dict[str, Annotated[int, Field(ge=1, le=10**6)]] = Field(
            default_factory=dict,
            description="ν of the attention modules that a pattern names, instead of the shared one; the first that matches",
        )

    def predict(
        self, backbone: Backbone, batch: Batch, *, state: Any, params: Any, nu: int, members: int, seed: int, shared: dict[str, Any]
    ) -> Ensemble:
        """Case by case, so that no case's numbers depend on its neighbours in the batch."""
        del state
        active = active_sites(backbone.sites(), params.sites)
        draws = nu_by_site(backbone.sites(), nu, params.nu_of)
        partial = params.partial or params.sites is not None
        rows = [self._case(backbone, batch, i, active, draws, members, seed, shared, partial) for i in range(len(batch.cases))]
        return Ensemble(np.stack(rows, axis=1))

    def _case(
        self,
        backbone: Backbone,
        batch: Batch,
        i: int,
        active: tuple[int, ...],
        nu: int | tuple[int, ...],
        members: int,
        seed: int,
        shared: dict[str, Any],
        partial: bool,
    ) -> np.ndarray:
        import torch

        from engine.kernels import stochastic_attention

        one = Batch(batch.inputs[i : i + 1], batch.observed[i : i + 1], batch.cases[i : i + 1], batch.day_of_year[i : i + 1])
        first = active[0]
        with torch.no_grad():
            name = f"prefix of row {i} up to site {first}"
            if name not in shared:
                shared[name] = backbone.prefix(one, first)
            at_once = max(1, TOKENS_A_CALL // tokens(backbone))
            parts = []
            for start in range(0, members, at_once):
                some = list(range(start, min(members, start + at_once)))
                ids = [one.cases[0].id] * len(some)
                with stochastic_attention(backbone.module, nu, seed, some, ids, sites=active, spread=True, partial=partial) as sa:
                    sa.begin(batch=len(some), site=first)
                    parts.append(backbone.suffix(shared[name], first))
            return backbone.physical(torch.cat(parts), one)

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """Case by case, so that no case's numbers depend on its neighbours in the batch; the noise is keyed by the examples' ids."""
        del state
        from engine.kernels import stochastic_attention

        active, partial = active_sites(classifier.sites(), params.sites), params.partial or params.sites is not None

        def forward(inputs: "dict[str, Tensor]", some: Sequence[int], case: int) -> "Tensor":
            with stochastic_attention(classifier.module, nu, seed, list(some), [case] * len(some), sites=active, partial=partial):
                return classifier.logits(inputs)

        return by_case(classifier, examples, members, forward)


def choose_nu(
    classifier: Classifier,
    calibrate: Examples | None,
    grid: Sequence[int],
    members: int,
    seed: int,
    params: StochasticAttention.ClassParams,
    report: OnProgress = lambda done, total, message: None,
    keep: "Callable[[int, Callable[[], Array]], Array]" = lambda nu, make: make(),
) -> tuple[int, list[dict[str, float]]]:
    """The ν of least NLL of the mean softmax on the calibration split, and the table behind it.

    The rule is our choice: the papers choose no ν for classes. `grid`: ν to look at (1, 2, 4, …, 256). Rows of the table: `nu`, `nll`
    (nats a case), `nll_error` (bootstrap standard error over cases). All ν see the same examples; of equals the larger is taken. An
    answer at an end of the grid says that the least lies there or beyond. `keep(nu, make)` gives the NLL by case at ν: what was kept, or
    what `make()` computes. Raises CalibrationError without labelled examples,
    SpecError for an empty grid.
    """
    if not grid:
        raise SpecError("grid of ν", found="no ν", expected="at least one", remedy="Name some: 1, 2, 4, … 256.")
    examples = known(calibrate, "calibration split", CalibrationError)
    labels, method = examples.labels.cpu().numpy(), StochasticAttention()
    counts = resample(len(examples), 1, REPLICATES, seed)
    table = []
    for done, nu in enumerate(sorted(set(grid))):
        report(done, len(set(grid)), f"ν = {nu} on the calibration split")

        def make(nu: int = nu) -> Array:
            drawn = method.classify(classifier, examples, state={}, params=params, nu=nu, members=members, seed=seed)
            return nll_by_case(drawn, labels)

        nll = keep(nu, make)
        error = float((counts @ nll / len(nll)).std(ddof=1))
        table.append({"nu": nu, "nll": float(nll.mean()), "nll_error": error})
    report(len(table), len(table), "ν chosen")
    return min(table, key=lambda row: (row["nll"], -row["nu"]))["nu"], table


def tokens(backbone: Backbone) -> int:
    """Tokens of one member in the backbone's attention: places of its patch grid."""
    return math.prod(backbone.grid) // getattr(backbone.module, "patch", 1) ** 2


def active_sites(names: tuple[str, ...], pattern: str | None) -> tuple[int, ...]:
    """Numbers of the attention calls whose module's name matches the shell pattern."""
    from fnmatch import fnmatchcase

    chosen = tuple(i for i, name in enumerate(names) if pattern is None or fnmatchcase(name, pattern))
    if not chosen:
        raise SpecError(
            "params.sites",
            found=f"{pattern!r}, which matches none",
            expected=f"a pattern over {', '.join(names[:12])}",
            remedy="Try '*' or 'blocks.*'.",
        )
    return chosen


def nu_by_site(names: tuple[str, ...], shared: int, nu_of: dict[str, int]) -> int | tuple[int, ...]:
    """ν of each attention call: that of the first pattern that matches its module's name, else the shared one."""
    from fnmatch import fnmatchcase

    idle = [p for p in nu_of if not any(fnmatchcase(name, p) for name in names)]
    if idle:
        raise SpecError(
            "params.nu_of",
            found=f"{idle[0]!r}, which matches none",
            expected=f"patterns over {', '.join(names[:12])}",
            remedy="Mend the pattern, or leave it out.",
        )
    if not nu_of:
        return shared
    return tuple(next((nu for p, nu in nu_of.items() if fnmatchcase(name, p)), shared) for name in names)


def free_sites(names: tuple[str, ...], params: StochasticAttention.Params) -> tuple[str, ...]:
    """Modules of the attention calls that the shared ν reaches: sampled, and not given a ν of their own by `nu_of`."""
    from fnmatch import fnmatchcase

    sampled = (names[i] for i in active_sites(names, params.sites))
    return tuple(name for name in sampled if not any(fnmatchcase(name, pattern) for pattern in params.nu_of))


ENTRIES = (StochasticAttention(),)
