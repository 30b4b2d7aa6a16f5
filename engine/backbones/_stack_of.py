"""The stack of a live module, whoever made it: recognised by its class's name."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.backbones._climax_stack import climax_stack
from engine.backbones._encoder import encoder_stack
from engine.backbones._ft_stack import ft_stack
from engine.backbones._hf_stack import STACKS as HUGGINGFACE
from engine.errors import AttentionError
from engine.stack import Stack

if TYPE_CHECKING:
    import torch

_STACKS: dict[str, Callable[[Any], Stack]] = {
    "Encoder": lambda net: encoder_stack(net, lambda inputs: next(iter(inputs.values()))),
    "ClimaXNet": lambda net: climax_stack(net, net.variables, net.variables),
    "FTTransformer": ft_stack,
    **HUGGINGFACE,
}


def stack_of(module: "torch.nn.Module", kind: str | None = None) -> Stack:
    """The module's stack as transitions; `stack_of(module).forward(inputs)` equals what the module gives (logits, where it gives more).

    Known: this package's encoder (inputs: a mapping of one tensor) and ClimaXNet (`x`, `lead_times`; all variables in and out),
    FTTransformer of rtdl_revisiting_models (`x_cont`, `x_cat`), and of transformers the classifiers ViT, BERT, RoBERTa, ELECTRA, Qwen2
    and Llama (their keyword arguments). `kind`: such a class's name, for a module built like it. Raises AttentionError for any other.
    """
    names = [kind] if kind is not None else [cls.__name__ for cls in type(module).__mro__]
    name = next((n for n in names if n in _STACKS), None)
    if name is None:
        raise AttentionError(
            f"stack of {type(module).__name__}",
            found=f"an architecture that cannot be cut into transitions ({names[0]})",
            expected=f"one of {', '.join(_STACKS)}",
            remedy="Where the module is built like one of these, name it (kind= in Python); else use a method that leaves the stack whole.",
        )
    return _STACKS[name](module)
