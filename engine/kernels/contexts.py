"""What open contexts share: the process's global generators, the models' flags, and each thread's calls.

A context reaches the calls of its own model alone, in its own thread: of the contexts of a thread that one whose model's forward is
running innermost. Flags of a module are saved by the first context that holds it and restored by the last, whatever the thread.
"""

import random
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from engine.kernels.sites import SiteTracker


class Calls(threading.local):
    """One thread's open contexts, in the order they were opened, and those whose model is running, innermost last."""

    def __init__(self) -> None:
        self.open: list[SiteTracker] = []
        self.running: list[SiteTracker] = []

    @contextmanager
    def opened(self, tracker: "SiteTracker") -> Iterator[None]:
        """Hold a context; of two on one model the inner one takes the calls."""
        covered = [each for each in self.open if each.model is tracker.model]
        for each in covered:
            each.covered += 1
        self.open.append(tracker)
        try:
            yield
        finally:
            self.open.remove(tracker)
            for each in covered:
                each.covered -= 1

    def belongs(self, tracker: "SiteTracker") -> bool:
        """Whether a call that is made now is the tracker's: of the model that runs, else of the last context that was opened."""
        return (self.running or self.open)[-1] is tracker

    @property
    def ambiguous(self) -> bool:
        """Whether contexts on several models are open and none of these models is running."""
        return not self.running and len({id(each.model) for each in self.open}) > 1


CALLS = Calls()


class _Flags:
    """The `training` flags of modules that open contexts hold in evaluation mode."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[nn.Module, bool, int]] = {}  # module, its flag before, contexts that hold it

    @contextmanager
    def off(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Hold modules in evaluation mode; not by `eval()`, which exported programs refuse and some models override."""
        held = list(modules)
        with self._lock:
            for module in held:
                _, flag, count = self._held.get(id(module), (module, module.training, 0))
                self._held[id(module)] = (module, flag, count + 1)
                module.training = False
        try:
            yield
        finally:
            with self._lock:
                for module in held:
                    _, flag, count = self._held.pop(id(module))
                    if count > 1:
                        self._held[id(module)] = (module, flag, count - 1)
                    else:
                        module.training = flag


FLAGS = _Flags()


class ProcessState:
    """Global generators and the compiler's stance: saved by the first context of the process, restored by the last."""

    def __init__(self) -> None:
        self._lock, self._depth, self._undo = threading.Lock(), 0, ExitStack()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the process's state while a context is open."""
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


PROCESS = ProcessState()
