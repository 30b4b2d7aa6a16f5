"""Classification: labelled data, classifiers, what a method must do for them, and their scores. Importing it never costs torch.

The parallel of `engine.types` for class labels: cases are examples (an image, a sentence, a row of a table), the observed is a
class, the forecast a probability for each class. Cases are independent of each other, so that bootstraps resample single cases.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from engine.types import Array, Better

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from engine.stack import Stack

Kind = Literal["images", "text", "table"]
OnProgress = Callable[[int, int, str], None]
"""`report(done, total, message)`."""


@dataclass(frozen=True)
class Labelled:
    """Labelled examples as they were brought.

    `inputs`: images `(case, height, width, channel)` uint8; texts as a 1-D array of str; table rows `(case, column)` float32.
    `labels` `(case,)` int64, positions in `classes`; −1 where a label is unknown (out-of-distribution examples). `changes` says in
    plain words what was converted on the way in. `fingerprint` is a hash of the content.
    """

    kind: Kind
    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    title: str = ""
    changes: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()
    fingerprint: str = ""

    def __post_init__(self) -> None:
        """Refuse parts that disagree: a reader's fault, not a user's."""
        if len(self.inputs) != len(self.labels):
            raise ValueError(f"{len(self.inputs)} inputs for {len(self.labels)} labels")
        if len(self.labels) and not -1 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise ValueError(f"labels {self.labels.min()} … {self.labels.max()} for {len(self.classes)} classes")

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def rows(self, which: NDArray[np.integer[Any]] | slice) -> "Labelled":
        """Some of the examples, in the order asked for."""
        return replace(self, inputs=self.inputs[which], labels=self.labels[which])


@dataclass(frozen=True)
class Examples:
    """What a classifier sees: named tensors with the case first, labels `(case,)` int64 (−1 unknown), ids that key the noise."""

    inputs: "Mapping[str, Tensor]"
    labels: "Tensor"
    ids: tuple[int, ...]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.ids)

    def rows(self, which: Any) -> "Examples":
        """Some of the examples: a list of positions or a slice."""
        ids = self.ids[which] if isinstance(which, slice) else tuple(self.ids[int(i)] for i in which)
        return Examples({name: value[which] for name, value in self.inputs.items()}, self.labels[which], ids)

    def batches(self, size: int) -> "Iterator[Examples]":
        """Consecutive parts of at most `size` examples."""
        for start in range(0, len(self), size):
            yield self.rows(slice(start, start + size))


class Classifier(ABC):
    """A frozen classifier: "run forward", "where attention happens", and how its stack is cut.

    `module` is a plain `torch.nn.Module` in eval mode without gradients. Wherever a `module` argument may be given, it is one of
    the same class with other weights (a copy, another member of an ensemble, one whose attention was replaced).
    """

    key: ClassVar[str]
    title: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    module: "torch.nn.Module"
    kind: Kind
    classes: tuple[str, ...]
    revision: str
    """Hash of the weights and of the architecture."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Format, parameters, key table, recorded facts: what `inspect` prints."""

    @abstractmethod
    def sites(self) -> tuple[str, ...]:
        """Qualified module name of each attention call, in call order."""

    @abstractmethod
    def prepare(self, labelled: Labelled, first_id: int = 0) -> Examples:
        """Normalise or tokenise; ids count up from `first_id`. Raises DatasetError where kind, size or classes do not fit."""

    @abstractmethod
    def logits(self, inputs: "Mapping[str, Tensor]", module: "torch.nn.Module | None" = None) -> "Tensor":
        """`(case, class)`, gradients as the caller has them switched; `module` in place of the frozen one."""

    @abstractmethod
    def fresh(self, seed: int) -> "torch.nn.Module":
        """The same architecture with newly drawn weights, in train mode, with gradients."""

    @abstractmethod
    def stack(self, module: "torch.nn.Module | None" = None) -> "Stack":
        """The module's stack as transitions; `stack().forward(inputs)` equals `logits(inputs)`.

        Raises AttentionError where this architecture cannot be cut.
        """


class Classifies(ABC):
    """The classification half of a method: `learn` once, `classify` any number of examples.

    A state is a flat mapping of tensors (numbers as 0-d tensors), stored as safetensors: never objects. `learn` sees the fit and the
    calibrate split, never what is verified. It reports progress, keeps checkpoints in `folder` where one is given and resumes
    from them; equal arguments give equal states.
    """

    key: str
    title: str
    reference: str
    needs: frozenset[str] = frozenset()
    """Of "dropout", "training" (fit data), "calibration"."""
    uses_nu: bool = False
    sampled: bool = True
    """False: one forward, and the same answer whatever `members` says."""
    ClassParams: type[BaseModel]

    def check(self, classifier: Classifier, params: Any) -> None:
        """Raise EngineError where these parameters do not fit the model; asked before anything is computed. Nothing, unless a method
        says otherwise.
        """
        del classifier, params

    def learn(
        self,
        classifier: Classifier,
        fit: Examples | None,
        calibrate: Examples | None,
        *,
        params: Any,
        seed: int,
        report: OnProgress = lambda done, total, message: None,
        folder: Path | None = None,
    ) -> "dict[str, Tensor]":
        """Nothing to learn, unless a method says otherwise."""
        del classifier, fit, calibrate, params, seed, report, folder
        return {}

    @abstractmethod
    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """Probabilities `(member, case, class)` float32, one softmax a member; noise keyed by (seed, member, case, site)."""

    def parameters(self, classifier: Classifier, state: "Mapping[str, Tensor]") -> int:
        """Numbers that inference needs: those of the frozen model and of the state, unless a method says otherwise."""
        return sum(p.numel() for p in classifier.module.parameters()) + sum(t.numel() for t in state.values())


@dataclass(frozen=True, eq=False)
class ClassView:
    """Forecasts beside labels, with what several scores share computed once.

    `probabilities` `(case, class)` sum to 1 (of a sampled classifier: the mean of the members' softmaxes); `labels` `(case,)`.
    `weights` `(case,)`: how often each case counts (bootstrap replicates are counts); default 1.
    `outside`: probabilities `(case', class)` of out-of-distribution examples, for the detection scores.
    """

    probabilities: Array
    labels: NDArray[np.int64]
    weights: Array = field(default_factory=lambda: np.zeros(0))
    outside: Array | None = None
    outside_weights: Array = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def w(self) -> Array:
        """Weights, ones where none were given."""
        return self.weights if len(self.weights) else np.ones(len(self.labels))

    @cached_property
    def w_outside(self) -> Array:
        """Weights of the outside examples, ones where none were given."""
        return self.outside_weights if len(self.outside_weights) else np.ones(0 if self.outside is None else len(self.outside))

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Most probable class; the first of equals."""
        return self.probabilities.argmax(-1)

    @cached_property
    def confidence(self) -> Array:
        """Greatest probability."""
        return self.probabilities.max(-1)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the most probable class is the observed one."""
        return self.predicted == self.labels


class ClassScore(ABC):
    """One score of class probabilities; entries of the family `scoring`, beside `Score`.

    `value` is a function of a weighted sample, so that a bootstrap gives counts as weights and resamples nothing else.
    """

    key: str
    title: str
    symbol: str
    unit: str = "1"
    range: tuple[float, float] = (0.0, 1.0)
    perfect: float = 0.0
    better: Better = "lower"
    reference: str = ""
    estimator: str = ""
    """Rule that is part of the name shown, e.g. "15 equal-width bins (lo, hi]"."""
    needs: frozenset[str] = frozenset()
    """"outside": the view must carry out-of-distribution examples."""
    headline: bool = False
    profile: bool = False
    """`value` gives a dict of arrays (a curve, a decomposition), not one number."""

    @abstractmethod
    def value(self, view: ClassView) -> float | dict[str, Any]:
        """The score; NaN where it is not defined (AUROC without a single failure)."""
