"""Make every attention of a torch model stochastic while a context is open (arXiv 2604.19530), and put the model back.

The mode that reaches attention lives in the thread that entered it; nothing global is patched. This project's choices:

- dropout is off, also where a model would drop in evaluation mode (`dropout_p` of a fused call, a functional dropout that
  ignores `training`); the report names such places;
- torch's, NumPy's and Python's global generators, which some models draw masks from, are seeded from (seed, member) at every
  forward and restored on exit. They belong to the process: with several contexts open at once the first saves, the last
  restores, and such a model's own draws repeat only without overlap. Attention's noise has generators of its own;
- gradient mode is left alone: `torch.no_grad` (not `inference_mode`, which breaks models that cache tensors) is the
  caller's; with gradients on, they reach the values, never the choice of keys;
- a site is numbered by call order within one forward of `model`, and each forward is a step of its own in the key of the noise.
  Who calls parts of a model instead says `sa.begin(batch=B, site=first)` before; parts that are called without it (an encoder
  before its decoder's forwards) have a step of their own too, so that no two sites share a key.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import AttentionError
from engine.kernels.attention import check_nu
from engine.kernels.audit import AUDITED, Audit
from engine.kernels.contexts import CALLS, FLAGS, PROCESS
from engine.kernels.mode import AttentionMode
from engine.kernels.noise import key64
from engine.kernels.sites import InterceptionReport, SiteSelection, SiteTracker


class StochasticAttention:
    """Handle of an open context: the `report` of what the last forward met, and `begin`, which names a forward."""

    def __init__(self, tracker: SiteTracker, mode: AttentionMode) -> None:
        self._tracker, self._mode = tracker, mode

    @property
    def report(self) -> InterceptionReport:
        """Sites of the last forward, softmaxes left loose and what they are, dropouts that were switched off."""
        met = self._mode.by_hand.softmaxes
        audited, plain = AUDITED.get(self._tracker.model) or ((), ())
        hidden = dict.fromkeys((*self._mode.by_hand.hidden, *audited))
        loose = [softmax.module for softmax in met if not softmax.consumed]
        loose += [place for text in hidden if (place := text.partition(": ")[0].replace("the model", "")) not in loose]
        unreached = dict.fromkeys([softmax.words for softmax in met if softmax.missed]) | hidden
        other = dict.fromkeys([s.words for s in met if not s.consumed and not s.missed]) | dict.fromkeys(plain)
        tracker = self._tracker
        sites, dropouts = tuple(tracker.sites), tuple(tracker.dropouts)
        return InterceptionReport(sites, tuple(loose), dropouts, tracker.forwards, tuple(unreached), tuple(other))

    def begin(
        self, *, batch: int | None = None, site: int = 0, cases: Sequence[int] | Tensor | None = None, step: int | None = None
    ) -> None:
        """Name the forward that comes next, of the model or of its parts called by hand.

        `cases`, the ids of its rows, instead of those of the context; `step`, its number, instead of the one after the last forward's;
        `batch`, its number of cases, and `site`, the index of its first attention call, for forwards of parts. A loop over batches gives
        what one batch gives with `begin(cases=ids of these rows, step=0)` before each.
        """
        ids = None if cases is None else [int(case) for case in torch.as_tensor(cases).tolist()]
        self._tracker.begin(batch, site, ids, step, announced=True)

    @property
    def reduced(self) -> bool:
        """Whether attention ran under autocast, in less than single precision."""
        return self._mode.reduced


@contextmanager
def stochastic_attention(
    model: nn.Module,
    nu: int | Sequence[int] | None = 4,
    seed: int = 0,
    member: int | Sequence[int] | Tensor = 0,
    cases: Sequence[int] | Tensor | None = None,
    sites: str | Iterable[int | str] | None = None,
    spread: bool = False,
    partial: bool | None = None,
) -> Iterator[StochasticAttention]:
    """Context in which a forward of `model` gives one stochastic member; the model is restored on exit, also after an error.

    Arguments: `nu`, draws a query, 1 to 10^6, or one such number for each attention call in call order (the papers share one
    among all), or None to recompute each call deterministically by the same path; `seed`;
    `member`, one number or one a row; `cases`, ids of the rows (default 0…B-1), B the first dimension of the model's first
    tensor argument; `sites`, None for all, indices, or a glob or regular expression over the calling module's name.
    `spread` starts from one row that all members share (`member` and `cases` have the length of the result): the first
    active call draws every member from one softmax and returns a row for each, and what follows broadcasts. The same
    numbers as repeating the row, at the cost of one up to there; the model must not fix its batch size beforehand.
    Every forward in one context is a step of its own: its noise is independent of the one before, so a rollout of the model into its
    own output is one trajectory of the member. The first forward is step 0; `sa.begin(cases=…, step=…)` names the next one instead
    (a loop over batches: step 0 for each, with the ids of its rows). The same (seed, member, case, site, step) gives the same draws,
    whatever the batch, thread or order; a model's own rounding, which depends on the batch, may move a rare draw.
    `partial` True accepts a model some of whose attention is not reached and stays deterministic; None refuses it unless `sites`
    chooses deliberately; False refuses it always.
    A context reaches the calls of its own model in its own thread, also inside the context of another model; of two contexts on one
    model in one thread the inner one draws.
    Raises ValueError for a `nu` out of range; AttentionError where attention rows are no multiple of the cases, where a
    forward meets no attention at all, none that `sites` selects, or attention that is not reached.
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
    handle = StochasticAttention(tracker, mode)
    first = members if isinstance(members, int) else members[0]
    audit = Audit(tracker, lambda: mode.seen, mode.reaches) if AUDITED.get(model) is None else None
    mode.by_hand.auditing = audit is not None

    def on_forward() -> None:
        mode.by_hand.start()
        PROCESS.seed(key64(seed, first, step=tracker.step))

    def after_forward() -> None:
        if audit is not None:
            AUDITED.put(model, (*audit.found, *mode.by_hand.hidden), mode.by_hand.unnormalised)
        if nu is not None and not (sites is not None if partial is None else partial):
            _refuse_part(model, handle.report)

    tracker.on_forward, tracker.after_forward = on_forward, after_forward
    modules = list(model.modules())
    with PROCESS.held(), FLAGS.off(modules), CALLS.opened(tracker), ExitStack() as open_modes:
        mode.trace.learn_constants(modules)
        try:
            tracker.install()
            open_modes.enter_context(mode)
            if audit is not None:
                open_modes.enter_context(audit)
            yield handle
        finally:
            tracker.remove()
            open_modes.close()
    if tracker.seen and tracker.sites and not tracker.forwards:  # parts called by hand
        after_forward()
    _refuse_nothing_done(tracker, sites, handle.report)


def _refuse_part(model: nn.Module, report: InterceptionReport) -> None:
    """Raise where some attention was reached and some was not: the spread would pass for the model's."""
    if not report.sites or not report.unreached:
        return
    raise AttentionError(
        f"model {type(model).__name__}",
        found=f"{report.hits} attention call(s) reached, and not reached: {'; '.join(report.unreached[:6])}",
        expected="every attention reached, as what is not stays deterministic",
        remedy="Write it with torch's scaled_dot_product_attention, or accept it (--partial; partial=True in Python).",
    )


def _refuse_nothing_done(tracker: SiteTracker, sites: Any, report: InterceptionReport) -> None:
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
        found="no attention call in its forward" + "".join(f"; {text}" for text in (report.unreached + report.no_attention)[:6]),
        expected="at least one attention that can be reached",
        remedy="Inspect the model with inspect_attention: it gives the reason.",
    )
