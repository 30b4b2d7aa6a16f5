"""Where attention happens in one forward: numbering, the calling module's name, the batch fold, what was switched off."""

import fnmatch
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.errors import AttentionError
from engine.kernels.contexts import CALLS
from engine.kernels.noise import RowKeys


@dataclass(frozen=True)
class Site:
    """One attention call of a forward.

    `index`, its order within the forward; `module`, qualified name of the innermost module that was running;
    `tier`, how it was reached (T1 fused call, T2 multi-head call, T3 softmax written by hand); `query` and `key`, shapes (T3:
    of the factors of the scores); `value`, the shape of what is averaged; `rows_per_case`, attention rows that share a
    case; `active`, whether it is stochastic; `taken_for`, why a softmax written by hand was taken for attention.
    """

    index: int
    module: str
    tier: str
    query: tuple[int, ...]
    key: tuple[int, ...]
    rows_per_case: int
    active: bool
    value: tuple[int, ...] = ()
    taken_for: str = ""


@dataclass(frozen=True)
class InterceptionReport:
    """What the last forward met: its `sites`, `loose` softmaxes (module names), active `dropouts` that were switched off.

    `unreached`, in words with their modules: what is attention, or may be, and stays deterministic; `no_attention`, the softmaxes that
    are none (a classifier's, a router's, a distribution's over fixed values). Each loose softmax is in one of the two.
    """

    sites: tuple[Site, ...]
    loose: tuple[str, ...]
    dropouts: tuple[str, ...]
    forwards: int
    unreached: tuple[str, ...] = ()
    no_attention: tuple[str, ...] = ()

    @property
    def hits(self) -> int:
        """Number of attention calls reached."""
        return len(self.sites)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"hits": self.hits}


class SiteSelection:
    """Which sites are stochastic: None for all, indices, or patterns over the calling module's qualified name.

    A pattern is a glob (`blocks.*`) or a regular expression that matches the whole name; either match counts.
    """

    def __init__(self, sites: str | Iterable[int | str] | None) -> None:
        listed = [sites] if isinstance(sites, str | int) else sites
        self.everything = listed is None
        self.indices = {int(s) for s in listed or () if not isinstance(s, str)}
        self.patterns = [s for s in listed or () if isinstance(s, str)]

    def __contains__(self, place: tuple[int, str]) -> bool:
        """Whether the site `(index, module name)` is selected."""
        index, name = place
        return self.everything or index in self.indices or any(self._matches(p, name) for p in self.patterns)

    @staticmethod
    def _matches(pattern: str, name: str) -> bool:
        if fnmatch.fnmatchcase(name, pattern):
            return True
        try:
            return re.fullmatch(pattern, name) is not None
        except re.error:  # a glob such as `*.attn` is no regular expression
            return False


def batch_axis(model: nn.Module) -> int:
    """Axis of the model's first tensor argument that counts cases: 0, or 1 for torch's own sequence-first modules."""
    inner = model.layers[0] if isinstance(model, nn.TransformerEncoder | nn.TransformerDecoder) else model  # type: ignore[index]
    inner = getattr(inner, "self_attn", inner)
    return 0 if getattr(inner, "batch_first", True) else 1


def first_tensor(values: Iterable[Any]) -> Tensor | None:
    """First tensor among arguments, looking into tuples, lists and dicts."""
    for value in values:
        if isinstance(value, Tensor):
            return value
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        if (found := first_tensor(inner)) is not None:
            return found
    return None


def cases_of(arguments: Sequence[Any], axis: int, lone_matrix: bool) -> int | None:
    """Cases of a forward by its first tensor argument; None where it does not tell: no tensor, too few dimensions, a list of tensors
    whose lengths differ (images of several sizes, say) or that is as long as none of them.
    """
    for value in arguments:
        if isinstance(value, list | tuple) and len(value) > 1 and all(isinstance(x, Tensor) for x in value):
            lengths = {x.shape[axis] if x.dim() > axis else 0 for x in value}
            if len(lengths) > 1:
                return None
        tensor = first_tensor([value])
        if tensor is not None:
            return None if tensor.dim() <= axis or (lone_matrix and tensor.dim() == 2) else tensor.shape[axis]
    return None


class SiteTracker:
    """State of a forward under interception; installs hooks on the model to know module names and where forwards begin."""

    def __init__(
        self,
        model: nn.Module,
        cases: Sequence[int] | None,
        members: int | Sequence[int],
        selection: SiteSelection,
        seed: int,
        *,
        spread: bool = False,
    ) -> None:
        """Track forwards of `model`; nothing is hooked before `install`."""
        self.model, self.selection, self.seed = model, selection, seed
        self.cases, self.members, self.spread = cases, members, spread
        self.axis = batch_axis(model)
        self.thread, self.covered = threading.get_ident(), 0
        self.step, self._used, self._announced = 0, False, False
        self._default_cases = cases
        self.running: list[str] = []
        self.sites: list[Site] = []
        self.dropouts: dict[str, None] = {}
        self.forwards, self.seen, self.active, self.offset = 0, 0, 0, 0
        self.batch: int | None = None
        self._together = spread
        self._hooks: list[Any] = []

    def install(self) -> None:
        """Hook every module; `remove` takes the hooks off again."""
        for name, module in self.model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            self._hooks.append(module.register_forward_pre_hook(self._entering(name, module is self.model), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._leaving, always_call=True))
        self.on_forward()

    def remove(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @property
    def module(self) -> str:
        """Qualified name of the innermost module that is running; empty at the top."""
        return self.running[-1] if self.running else ""

    def begin(
        self,
        batch: int | None = None,
        site: int = 0,
        cases: Sequence[int] | None = None,
        step: int | None = None,
        *,
        announced: bool = False,
    ) -> None:
        """Start a forward of `batch` cases whose first attention call has index `site`; without a `step`, the one after the last.

        `announced` says that the caller names it: a forward of the whole model that follows at once is this one.
        """
        self.step = step if step is not None else self.step + self._used
        self.sites, self.offset, self.batch = [], site, batch
        self.cases = self._default_cases if cases is None else cases
        self._together = self.spread
        self._used, self._announced = not announced, announced
        self.on_forward()

    def place(
        self, tier: str, query: Sequence[int], key: Sequence[int], rows: int, value: Sequence[int] = (), taken_for: str = ""
    ) -> tuple[Site, tuple[RowKeys, ...]]:
        """Number one attention call whose batch has `rows` rows; its site and the keys of its noise.

        One set of keys, or at the first active site of a spread forward one for each member: until then all members are
        the same row.
        """
        self._used, self._announced = True, False
        if CALLS.ambiguous:
            raise AttentionError(
                "attention outside the modules of any model",
                found="contexts open on several models, none of which is running",
                expected="calls of a module of one of them",
                remedy="Close the other contexts first, or call the model itself.",
            )
        cases = self.cases
        if cases is None and not isinstance(self.members, int):
            cases = range(len(self.members))
        count = 1 if self._together else len(cases) if cases is not None else self.batch or rows
        index, name = self.offset + len(self.sites), self.module
        active = (index, name) in self.selection
        if rows % count and active:
            raise AttentionError(
                f"attention call {index} in {name or 'the model'}",
                found=f"{rows} attention rows for {count} cases",
                expected="a multiple of the number of cases, batch-major",
                remedy="Give the case ids (cases= in Python), one for each example of the batch. Where the cases share a row (a learned "
                "query that sees no input), attend to one another (grouped series) or are packed together, no draw belongs to one of "
                "them: leave this call out with sites=.",
            )
        site = Site(index, name, tier, tuple(query), tuple(key), rows // count, active, tuple(value), taken_for)
        self.sites.append(site)
        self.seen += 1
        self.active += site.active
        if not active:
            return site, (RowKeys.of(1, self.seed, 0, [0], index, self.step),)
        if self._together and cases is not None and not isinstance(self.members, int):
            self._together = False
            pairs = zip(self.members, cases, strict=True)
            return site, tuple(RowKeys.of(rows, self.seed, member, [case], index, self.step) for member, case in pairs)
        if self._together:
            return site, (RowKeys.of(rows, self.seed, 0, [0], index, self.step),)
        return site, (RowKeys.of(rows, self.seed, self.members, range(count) if cases is None else cases, index, self.step),)

    def note_dropout(self, function: str) -> None:
        """Remember a dropout that was active in evaluation mode."""
        self.dropouts[f"{self.module}:{function}"] = None

    @property
    def _deaf(self) -> bool:
        """Whether a hook's call is not this context's: made in another thread, or taken by an inner context on the same model."""
        return self.covered > 0 or threading.get_ident() != self.thread

    def _entering(self, name: str, top: bool) -> Any:
        def hook(module: nn.Module, args: tuple, kwargs: dict | None = None) -> None:
            if self._deaf:
                return
            if top and not self.running:
                self._start(module, args, kwargs or {})
            if not self.running:
                CALLS.running.append(self)
            self.running.append(name)

        return hook

    def _start(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        """A forward of the whole model: a step of its own, or the one that was announced."""
        self.forwards += 1
        batch = cases_of([*args, *kwargs.values()], self.axis, isinstance(module, nn.MultiheadAttention))
        if self._announced:
            self.batch, self._used, self._announced = self.batch or batch, True, False
        else:
            self.begin(batch)

    def _leaving(self, module: nn.Module, args: tuple, output: Any = None) -> None:
        if self._deaf or not self.running:
            return
        self.running.pop()
        if not self.running:
            CALLS.running.remove(self)
            if module is self.model and output is not None:
                self.batch = None  # what follows outside the model is no longer these cases
                self.after_forward()

    def after_forward(self) -> None:
        """Called when a forward of the whole model has ended without an error; replaced by the interceptor."""

    def on_forward(self) -> None:
        """Called when a forward of the whole model begins; replaced by the interceptor."""
