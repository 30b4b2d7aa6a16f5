"""How methods run a classifier: known labels, logits in batches of a fixed size, one case's members in one forward.

What is drawn is keyed by case, but a matrix product's last bits depend on its number of rows, and rounding can move a rare draw.
Sampled methods therefore run case by case, the members of a case together in groups of a fixed size: their results do not depend on
what else is in the batch, bit for bit. What is not sampled runs in batches, where rounding stays rounding (about 1e-7).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import DatasetError, EngineError
from engine.labelled import Classifier, Examples
from engine.types import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCH = 128
"""Examples a forward; fixed, and never taken from the machine."""
MEMBERS_A_CALL = 16
"""Members of one case that share a forward; fixed likewise."""


def known(examples: Examples | None, split: str, kind: type[EngineError] = DatasetError, least: int = 1) -> Examples:
    """The examples whose label is known; raises `kind` where there are fewer than `least`."""
    labels = np.zeros(0, np.int64) if examples is None else examples.labels.cpu().numpy()
    at = np.flatnonzero(labels >= 0)
    if examples is None or len(at) < least:
        raise kind(
            split,
            found="none" if examples is None else f"{len(at)} labelled examples",
            expected=f"at least {least} labelled example{'s' if least > 1 else ''}",
            remedy=f"Bring labelled examples for the {split}.",
        )
    return examples if len(at) == len(labels) else examples.rows(at.tolist())


def put(inputs: "Mapping[str, Tensor]", module: "nn.Module") -> "dict[str, Tensor]":
    """Inputs on the device of the module's weights."""
    device = next(module.parameters()).device
    return {name: value.to(device) for name, value in inputs.items()}


def logits(classifier: Classifier, examples: Examples, module: "nn.Module | None" = None) -> NDArray[np.float64]:
    """`(case, class)` float64, without gradients, in batches of `BATCH`."""
    import torch

    used = classifier.module if module is None else module
    with torch.no_grad():
        parts = [classifier.logits(put(b.inputs, used), module).double().cpu() for b in examples.batches(BATCH)]
    return torch.cat(parts).numpy() if parts else np.zeros((0, len(classifier.classes)))


def softmax(values: NDArray[np.float64]) -> Array:
    """Softmax over the last axis, float32."""
    shifted = np.exp(values - values.max(-1, keepdims=True))
    return (shifted / shifted.sum(-1, keepdims=True)).astype(np.float32)


def by_case(
    classifier: Classifier, examples: Examples, members: int, forward: "Callable[[dict[str, Tensor], Sequence[int], int], Tensor]"
) -> Array:
    """Probabilities `(member, case, class)` of a sampled method.

    `forward(inputs, members, id)` gives the logits `(len(members), class)` of one case, whose inputs are repeated for each member.
    """
    import torch

    out = np.empty((members, len(examples), len(classifier.classes)), np.float32)
    with torch.no_grad():
        for i, one in enumerate(examples.batches(1)):
            inputs = put(one.inputs, classifier.module)
            for group in _groups(members):
                rows = {name: value.repeat_interleave(len(group), 0) for name, value in inputs.items()}
                out[group.start : group.stop, i] = softmax(forward(rows, group, one.ids[0]).double().cpu().numpy())
    return out


def _groups(members: int) -> Iterable[range]:
    return (range(start, min(members, start + MEMBERS_A_CALL)) for start in range(0, members, MEMBERS_A_CALL))


def nll_by_case(probabilities: Array, labels: Any) -> NDArray[np.float64]:
    """−log of the members' mean probability of the observed class, `(case,)`; a probability below float32's least normal counts as that."""
    observed = np.asarray(labels)
    mean = probabilities.mean(0, dtype=np.float64)[np.arange(len(observed)), observed]
    return -np.log(np.maximum(mean, np.finfo(np.float32).tiny))
