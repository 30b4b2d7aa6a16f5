"""Attention that torch functions do not reveal, known by name: what it is and what to do instead."""

import re
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Unreachable:
    """A finding: its text, and whether it stands in place of the model's softmax attention (not merely beside it)."""

    text: str
    replaces_attention: bool


_BY_CLASS = (  # pattern over "module path.class name", what it is
    (r"auto_?correlation|autoformer", "Autoformer's autocorrelation picks time lags, not keys: there are no weights to draw from"),
    (r"(^|[._])coat($|[._])|factorat(t|n)", "CoaT's factorised attention normalises keys over positions: it has no weights per query"),
    (r"^chronos\.chronos2.*Group", "Chronos-2's group attention attends across the series of a batch: no draw belongs to one of them"),
    (r"^torch_geometric\.nn", "PyTorch Geometric normalises messages by a scatter softmax, which is not a product of weights and values"),
    (r"^xformers\.", "xformers runs its own attention kernels; build the model with torch's scaled_dot_product_attention instead"),
    (r"^flash_attn\.", "flash_attn runs its own CUDA kernels; build the model with torch's scaled_dot_product_attention instead"),
)
BY_CALL = {  # name used in a module's forward: what it is
    "memory_efficient_attention": "xformers' memory_efficient_attention is a kernel of its own; use torch's scaled_dot_product_attention",
    "flash_attn_func": "flash_attn is its own CUDA kernel; use torch's scaled_dot_product_attention instead",
    "flash_attn_qkvpacked_func": "flash_attn is its own CUDA kernel; use torch's scaled_dot_product_attention instead",
    "flash_attn_varlen_func": "flash_attn is its own CUDA kernel; use torch's scaled_dot_product_attention instead",
    "flex_attention": "flex_attention is compiled as one kernel; use torch's scaled_dot_product_attention with a mask instead",
    "scatter_softmax": "a scatter softmax over graph edges is not a product of weights and values",
}
_OURS = ("torch.nn.", "engine.")


def find_unreachable(model: nn.Module) -> list[Unreachable]:
    """Everything in `model` known by name not to be reached, once each, with the module it was found in."""
    found: dict[str, Unreachable] = {}
    for name, module in model.named_modules():
        kind = type(module)
        path = f"{kind.__module__}.{kind.__qualname__}"
        if path.startswith(_OURS):
            continue
        for pattern, text in _BY_CLASS:
            if re.search(pattern, path, re.IGNORECASE) and text not in found:
                found[text] = Unreachable(f"{text} (in {name or kind.__name__})", True)
        for called in _names_used(kind) & BY_CALL.keys():
            text = BY_CALL[called]
            found.setdefault(text, Unreachable(f"{text} (in {name or kind.__name__})", False))
    return list(found.values())


def _names_used(kind: type) -> set[str]:
    """Names that the code of a class's own methods mentions, as far as it is Python."""
    names: set[str] = set()
    for value in vars(kind).values():
        code = getattr(value, "__code__", None)
        if code is not None:
            names.update(code.co_names)
    return names
