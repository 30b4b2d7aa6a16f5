"""Readers of gridded data, one file each, and what they have in common. Importing this package imports no reader and no torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.data.dataset import cases, open_dataset, open_fields

__all__ = ["cases", "open_dataset", "open_fields"]


def __getattr__(name: str) -> Any:
    """The public functions, imported on first use because they need xarray."""
    if name in __all__:
        from engine.data import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
