"""What happens in a forward below the functions that an `AttentionMode` sees: TorchScript, kernels of other libraries, operators.

A `TorchDispatchMode` sees every operator of a forward, whoever called it. It is on in a model's first forward under interception, and
its findings are kept with the model: no attention stays without a name, and later forwards pay nothing.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from engine.kernels.contexts import CALLS
from engine.kernels.sites import SiteTracker
from engine.kernels.unreachable import BY_CALL

_SOFTMAXES = frozenset({"_softmax", "_safe_softmax", "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "softmax"})
_FUSED = "scaled_dot_product"
OWN = frozenset(
    "aten prim prims profiler quantized torchvision torchaudio c10d c10d_functional _c10d_functional debugprims mkldnn "
    "mkl mkldnn_prepacked onednn rngprims inductor _quantized quantized_decomposed torchao fbgemm image xla sparse "
    "static_runtime higher_order".split()
)
"""Namespaces of operators that hold no attention beside torch's own."""


class Audit(TorchDispatchMode):
    """Names softmaxes and fused attention that are called while `seen()` is not one of the functions that are reached."""

    supports_higher_order_operators = True

    def __init__(self, tracker: SiteTracker, seen: Callable[[], str | None], reached: Callable[[str], bool]) -> None:
        super().__init__()
        self._tracker, self._seen, self._reached = tracker, seen, reached
        self.found: dict[str, None] = {}
        self._profiles: list[Any] = []

    def __enter__(self) -> "Audit":
        """Look at the operators and at the functions that are called."""
        self._profiles.append(sys.getprofile())
        if self._profiles[-1] is None:  # a profiler of the caller's keeps its place
            sys.setprofile(self._called)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Look no longer."""
        super().__exit__(*error)
        if self._profiles.pop() is None:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "c_call"):
            return
        name = frame.f_code.co_name if event == "call" else getattr(arg, "__name__", "")
        if name in BY_CALL and CALLS.belongs(self._tracker):
            self.found[f"{self._tracker.module or 'the model'}: {BY_CALL[name]}"] = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Name what is not reached, and run everything as it is."""
        name = getattr(func, "__name__", str(func)).partition(".")[0]
        if (name in _SOFTMAXES or _FUSED in name or name == "_log_softmax") and CALLS.belongs(self._tracker):
            seen = self._seen()
            if seen is None or (name != "_log_softmax" and not self._reached(seen)):
                where = "TorchScript or compiled code" if seen is None else seen
                self.found[f"{self._tracker.module or 'the model'}: {name.strip('_')} inside {where}, which cannot be intercepted"] = None
        with torch._C.DisableTorchFunction():
            return func(*args, **(kwargs or {}))


def custom_operator(func: Any) -> str | None:
    """The name of an operator that somebody else registered; None for torch's own and its companions'."""
    space = getattr(func, "namespace", None)
    return None if not isinstance(space, str) or space in OWN else f"{space}::{func.__name__.partition('.')[0]}"


Texts = tuple[str, ...]


class _Kept:
    """Findings by model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: weakref.WeakKeyDictionary[nn.Module, tuple[Texts, Texts]] = weakref.WeakKeyDictionary()

    def get(self, model: nn.Module) -> tuple[Texts, Texts] | None:
        """What was not reached in the model's first forward, and what is no softmax; None before it."""
        with self._lock:
            return self._found.get(model)

    def put(self, model: nn.Module, unreached: Iterable[str], other: Iterable[str]) -> None:
        """Keep the findings of a forward."""
        with self._lock:
            self._found[model] = tuple(dict.fromkeys(unreached)), tuple(dict.fromkeys(other))


AUDITED = _Kept()
