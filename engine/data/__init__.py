"""Readers of gridded and of labelled data, one file each, and what they have in common.

Importing this package imports no reader and no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.data.dataset import cases, open_dataset, open_fields
    from engine.data.labelled import open_labelled

__all__ = ["cases", "open_dataset", "open_fields", "open_labelled"]


def __getattr__(name: str) -> Any:
    """The public functions, imported on first use because they need xarray or a reader's library."""
    if name in __all__:
        return getattr(import_module(f"engine.data.{'labelled' if name == 'open_labelled' else 'dataset'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
