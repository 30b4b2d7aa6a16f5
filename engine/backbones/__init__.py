"""Frozen models behind one interface; importing this package does not import torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.backbones._open import inspect_checkpoint, open_checkpoint, write_checkpoint

__all__ = ["inspect_checkpoint", "open_checkpoint", "write_checkpoint"]


def __getattr__(name: str) -> Any:
    """The public functions, imported on first use because they need torch."""
    if name in __all__:
        from engine.backbones import _open

        return getattr(_open, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
