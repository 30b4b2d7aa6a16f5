"""MC dropout: the dropout that the model was trained with stays on, and each pass is a member (Gal and Ghahramani 2016).

    x̃ = x · b / (1 − p),   b ~ Bernoulli(1 − p) for each unit

All dropout places or the last one that a forward comes to; everything else (norms above all) in eval mode. Masks are drawn by
hooks on the dropout modules, each from a stream of its own for (seed, member, case, place), places numbered in the order in which
a forward calls them.

What counts as active (our choice): an `nn.Dropout` (1d, 2d, 3d) that a forward really calls, with a rate above 0, its own or the one
given as `rate`. A rate inside a fused call or a functional dropout has no module to hook: where it follows train mode it stays off;
where it drops in eval mode too, as `dropout_p` of a fused attention does, its noise has no key and the model is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.errors import AttentionError, SpecError
from engine.labelled import Classifier, Classifies, Examples, OnProgress
from engine.methods._forwards import by_case, put
from engine.types import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

STREAM = 0xD0
"""Keeps these streams apart from those of attention at a site of the same number."""


class McDropout(Classifies):
    """Dropout at prediction."""

    key = "mc_dropout"
    title = "MC dropout"
    reference = "Gal and Ghahramani (2016), arXiv 1506.02142"
    needs = frozenset({"dropout"})

    class ClassParams(BaseModel):
        """Which places drop, and how often."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        where: Literal["all", "last"] = Field(default="all", description="every dropout of a forward, or the last one only")
        rate: float | None = Field(default=None, gt=0, lt=1, description="dropout rate instead of the trained one")

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
        """Nothing; raises as `classify` does for a model without active dropout, where there is an example to run it on."""
        del seed, report, folder
        examples = calibrate if calibrate is not None and len(calibrate) else fit
        if examples is not None and len(examples):
            active_places(classifier, examples, params)
        return {}

    def classify(
        self, classifier: Classifier, examples: Examples, *, state: "Mapping[str, Tensor]", params: Any, nu: int, members: int, seed: int
    ) -> Array:
        """One softmax a pass, case by case. Raises SpecError for a model with no active dropout, AttentionError for one that drops in
        eval mode by itself.
        """
        del state, nu
        active = active_places(classifier, examples, params) if len(examples) else {}

        def forward(inputs: "dict[str, Tensor]", some: Sequence[int], case: int) -> "Tensor":
            with dropping(classifier.module, active, seed, some, case):
                return classifier.logits(inputs)

        return by_case(classifier, examples, members, forward)


def active_places(classifier: Classifier, examples: Examples, params: McDropout.ClassParams) -> dict[int, float]:
    """Rate of each dropout call that is to drop, by its number in a forward: what one forward of one example really calls."""
    import torch

    from engine.kernels import stochastic_attention

    module = classifier.module
    called: list[nn.Module] = []
    hooks = [m.register_forward_hook(lambda m, args, output: called.append(m)) for m in module.modules() if _is_dropout(m)]
    try:
        with torch.no_grad(), stochastic_attention(module, None) as sa:
            classifier.logits(put(examples.rows(slice(0, 1)).inputs, module))
            leaking = sa.report.dropouts
    finally:
        for hook in hooks:
            hook.remove()
    if leaking:
        raise AttentionError(
            "method 'mc_dropout'",
            found=f"dropout that is active in evaluation mode too, at {', '.join(leaking[:6])}",
            expected="dropout in modules that evaluation mode switches off",
            remedy="Mend the model (pass dropout_p only when self.training): its noise has no seed that a run could repeat.",
        )
    rates = [params.rate or _rate(m) for m in called]
    active = {place: rate for place, rate in enumerate(rates) if rate > 0}
    if not active:
        silent = f"{len(called)} dropout call(s) of rate 0" if called else "no dropout module in its forward"
        raise SpecError(
            "method 'mc_dropout'",
            found=f"a model with no active dropout: {silent}",
            expected="a model trained with dropout",
            remedy="Use stochastic_attention, which needs none" + (", or name a rate." if called else "."),
        )
    return {max(active): active[max(active)]} if params.where == "last" else active


@contextmanager
def dropping(module: "nn.Module", active: Mapping[int, float], seed: int, members: Sequence[int], case: int) -> Iterator[None]:
    """Dropout in one forward of `module`, whose rows are these members of one case; flags and hooks are as before afterwards."""
    flags = [(m, m.training) for m in module.modules()]
    places = iter(range(2**31))

    def hook(m: "nn.Module", args: Any, output: "Tensor") -> "Tensor":
        del args
        place = next(places)
        return _dropped(output, active[place], _per_channel(m), seed, members, case, place) if place in active else output

    hooks = [m.register_forward_hook(hook) for m in module.modules() if _is_dropout(m)]
    try:
        for m, _ in flags:
            m.training = False
        yield
    finally:
        for held in hooks:
            held.remove()
        for m, flag in flags:
            m.training = flag


def _dropped(x: "Tensor", rate: float, per_channel: bool, seed: int, members: Sequence[int], case: int, place: int) -> "Tensor":
    """x · b / (1 − p), rows of a member one after another."""
    import torch

    from engine.kernels.noise import RowKeys, uniforms

    if len(x) % len(members):
        raise SpecError(
            "method 'mc_dropout'",
            found=f"a dropout over {len(x)} rows where {len(members)} are in the batch",
            expected="a multiple, batch first",
            remedy='Drop in the last layer alone, --params \'{"where": "last"}\' (where= in Python), or use another method: '
            "what this dropout drops is shared by the examples of a batch.",
        )
    keys = RowKeys.of(len(x), seed, list(members), [case] * len(members), place)
    shape = (*x.shape[:2], *[1] * (x.dim() - 2)) if per_channel else x.shape
    width = torch.Size(shape[1:]).numel()
    drawn = uniforms(keys.generators(x.device, STREAM), [len(x) // len(members)] * len(members), width, x.device)
    return x * (drawn >= rate).view(shape) / (1 - rate) if rate < 1 else torch.zeros_like(x)


def _is_dropout(module: "nn.Module") -> bool:
    from torch import nn

    return isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d)


def _per_channel(module: "nn.Module") -> bool:
    from torch import nn

    return not isinstance(module, nn.Dropout)


def _rate(module: Any) -> float:
    return float(module.p)


ENTRIES = (McDropout(),)
