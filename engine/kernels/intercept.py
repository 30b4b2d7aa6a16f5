"""Make every attention of a torch model stochastic while a context is open (arXiv 2604.19530), and put the model back.

The mode that reaches attention lives in the thread that entered it; nothing global is patched. This project's choices:

- dropout is off, also where a model would drop in evaluation mode (`dropout_p` of a fused call, a functional dropout that
  ignores `training`); the report names such places;
- torch's, NumPy's and Python's global generators, which some models draw masks from, are seeded from (seed, member) at every
  forward and restored on exit. They belong to the process: with several contexts open at once the first saves, the last
  restores, and such a model's own draws repeat only without overlap. Attention's noise has generators of its own;
- gradient mode is left alone: `torch.no_grad` (not `inference_mode`, which breaks models that cache tensors) is the
  caller's; with gradients on, they reach the values, never the choice of keys;
- a site is numbered by call order within one forward of `model`. Who calls parts of a model instead says
  `sa.begin(batch=B, site=first)` before.
"""

import random
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine.errors import AttentionError
from engine.kernels.attention import check_nu
from engine.kernels.mode import AttentionMode
from engine.kernels.noise import key64
from engine.kernels.sites import InterceptionReport, SiteSelection, SiteTracker


class StochasticAttention:
    """Handle of an open context: the `report` of what the last forward met, and `begin` for forwards of parts."""

    def __init__(self, tracker: SiteTracker, mode: AttentionMode) -> None:
        self._tracker, self._mode = tracker, mode

    @property
    def report(self) -> InterceptionReport:
        """Sites of the last forward, softmaxes left loose, dropouts that were switched off."""
        loose = tuple(softmax.module for softmax in self._mode.softmaxes if not softmax.consumed)
        return InterceptionReport(tuple(self._tracker.sites), loose, tuple(self._tracker.dropouts), self._tracker.forwards)

    def begin(self, *, batch: int | None = None, site: int = 0) -> None:
        """Start a forward by hand: `batch` cases, whose first attention call has index `site`."""
        self._tracker.begin(batch, site)
        self._tracker.on_forward()


class _ProcessState:
    """Global generators and the compiler's stance: saved by the first context of the process, restored by the last."""

    def __init__(self) -> None:
        self._lock, self._depth, self._undo = threading.Lock(), 0, ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._depth == 0:
                self._save()
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._undo.close()

    def _save(self) -> None:
        self._undo.callback(random.setstate, random.getstate())
        self._undo.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002 (the legacy global is what models use)
        self._undo.callback(torch.set_rng_state, torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._undo.callback(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
        if "torch._dynamo" in sys.modules:  # else nothing is compiled, and importing it takes seconds
            self._undo.enter_context(torch.compiler.set_stance("force_eager"))

    @staticmethod
    def seed(key: int) -> None:
        """Seed the global generators; a context must be open."""
        random.seed(key)
        np.random.seed(key % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(key)
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(key)


_PROCESS = _ProcessState()


@contextmanager
def stochastic_attention(
    model: nn.Module,
    nu: int | Sequence[int] | None = 4,
    seed: int = 0,
    member: int | Sequence[int] | Tensor = 0,
    cases: Sequence[int] | Tensor | None = None,
    sites: str | Iterable[int | str] | None = None,
    spread: bool = False,
) -> Iterator[StochasticAttention]:
    """Context in which a forward of `model` gives one stochastic member; the model is restored on exit, also after an error.

    Arguments: `nu`, draws a query, 1 to 10^6, or one such number for each attention call in call order (the papers share one
    among all), or None to recompute each call deterministically by the same path; `seed`;
    `member`, one number or one a row; `cases`, ids of the rows (default 0…B-1), B the first dimension of the model's first
    tensor argument; `sites`, None for all, indices, or a glob or regular expression over the calling module's name.
    `spread` starts from one row that all members share (`member` and `cases` have the length of the result): the first
    active call draws every member from one softmax and returns a row for each, and what follows broadcasts. The same
    numbers as repeating the row, at the cost of one up to there; the model must not fix its batch size beforehand.
    The same (seed, member, case, site) gives the same draws, whatever the batch, thread or order.
    Raises ValueError for a `nu` out of range; AttentionError where attention rows are no multiple of the cases, where a
    forward meets no attention at all, or none that `sites` selects.
    """
    for each in nu if isinstance(nu, Sequence) else (nu,):
        check_nu(each)
    if isinstance(nu, Sequence) and not nu:
        raise ValueError("nu is an empty sequence; give one number, or one for each attention call")
    members = member if isinstance(member, int) else [int(m) for m in torch.as_tensor(member).flatten().tolist()]
    members = members[0] if isinstance(member, Tensor) and member.dim() == 0 and not isinstance(members, int) else members
    ids = None if cases is None else [int(case) for case in torch.as_tensor(cases).tolist()]
    tracker = SiteTracker(model, ids, members, SiteSelection(sites), seed, spread=spread)
    mode = AttentionMode(tracker, nu)
    key = key64(seed, members if isinstance(members, int) else members[0])

    def on_forward() -> None:
        mode.softmaxes.clear()
        _PROCESS.seed(key)

    tracker.on_forward = on_forward
    training = [(module, module.training) for module in model.modules()]
    with _PROCESS.held():
        try:
            for module, _ in training:  # not model.eval(): exported programs refuse it, and some override it with side effects
                module.training = False
            tracker.install()
            _PROCESS.seed(key)
            with mode:
                yield StochasticAttention(tracker, mode)
        finally:
            tracker.remove()
            for module, flag in training:
                module.training = flag
    _refuse_nothing_done(tracker, sites)


def _refuse_nothing_done(tracker: SiteTracker, sites: Any) -> None:
    """Raise where forwards ran and none of their attention was stochastic: the results would pass for an ensemble."""
    if not tracker.forwards or tracker.active:
        return
    if tracker.seen:
        names = ", ".join(sorted({site.module or "the model" for site in tracker.sites}))
        raise AttentionError(
            f"sites {sites!r}",
            found=f"none of the {tracker.seen} attention calls selected; they are in {names}",
            expected="at least one stochastic attention call",
            remedy="Choose site indices or a pattern that matches one of these module names.",
        )
    raise AttentionError(
        f"model {type(tracker.model).__name__}",
        found="no attention call in its forward",
        expected="at least one attention that can be reached",
        remedy="Inspect the model with inspect_attention: it gives the reason.",
    )
