"""Frozen models behind one interface; importing this package does not import torch."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.backbones._encoder_file import write_encoder
    from engine.backbones._open import inspect_checkpoint, open_checkpoint, tasks_of, write_checkpoint, write_classifier
    from engine.backbones._stack_of import stack_of
    from engine.backbones.text_encoder import make_vocabulary, new_text_encoder
    from engine.backbones.vit import new_vit

__all__ = [
    "inspect_checkpoint",
    "make_vocabulary",
    "new_text_encoder",
    "new_vit",
    "open_checkpoint",
    "stack_of",
    "tasks_of",
    "write_checkpoint",
    "write_classifier",
    "write_encoder",
]

_WHERE = {
    "new_vit": "vit",
    "new_text_encoder": "text_encoder",
    "make_vocabulary": "text_encoder",
    "stack_of": "_stack_of",
    "write_encoder": "_encoder_file",
}


def __getattr__(name: str) -> Any:
    """The public functions, imported on first use because they need torch."""
    if name in __all__:
        return getattr(importlib.import_module(f"engine.backbones.{_WHERE.get(name, '_open')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
