"""Pure array maths: attention sampling and interception, scores' kernels, surrogates. No input or output.

The names below are found on first use, so that `import engine.kernels` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.kernels.attention import sample_attention, sample_attention_members
    from engine.kernels.inspect import inspect_attention
    from engine.kernels.intercept import stochastic_attention

__all__ = ["inspect_attention", "sample_attention", "sample_attention_members", "stochastic_attention"]

_HOMES = {
    "sample_attention": "attention",
    "sample_attention_members": "attention",
    "stochastic_attention": "intercept",
    "inspect_attention": "inspect",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds `name` when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
