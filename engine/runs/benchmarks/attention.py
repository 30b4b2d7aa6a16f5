"""What stochastic attention costs: time of a forward with it over the deterministic fused forward, on one machine.

Interleaved runs in one process, medians: a slow spell of the machine falls on all alike. Ratios of whole transformer blocks
(projections and MLP too), because that is what a forward pays. Targets are this project's own, on two cores.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from engine.backbones._climax_net import Block
from engine.kernels.intercept import stochastic_attention
from engine.runs.benchmarks import interleaved

# name: width, heads, tokens, batch, blocks, repeats, targets (largest ratio wanted at a nu)
_CASES: dict[str, tuple[int, int, int, int, int, int, dict[int, float]]] = {
    "climax_blocks": (1024, 16, 512, 1, 1, 7, {4: 1.45, 64: 1.75, 10**4: 2.5}),
    "vit": (768, 12, 197, 1, 1, 9, {4: 1.15}),
    "ft_transformer": (192, 8, 24, 32, 3, 15, {4: 1.6}),
}
_NUS = (1, 4, 64, 256, 1024, 10**4)


class _Blocks(nn.Module):
    """A stack of pre-norm blocks with random weights."""

    def __init__(self, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads, 4.0, 0.0, 0.0) for _ in range(blocks)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`(B, L, D) -> (B, L, D)`."""
        return self.blocks(x)


def run(repeats: int | None = None) -> dict[str, Any]:
    """Ratios stochastic / deterministic per model and nu; `repeats` overrides the number of timed turns.

    Returns `threads`, `torch`, and per case `deterministic_seconds` and `rows` of `nu, seconds, ratio, target, met`
    (`target` and `met` None where no target is set). Under a minute on two free cores.
    """
    answer: dict[str, Any] = {"threads": torch.get_num_threads(), "torch": torch.__version__, "cases": {}}
    for name, (width, heads, tokens, batch, blocks, turns, targets) in _CASES.items():
        torch.manual_seed(0)
        model, x = _Blocks(width, heads, blocks).eval(), torch.randn(batch, tokens, width)

        def plain(model: nn.Module = model, x: torch.Tensor = x) -> None:
            model(x)

        def drawn(nu: int, model: nn.Module = model, x: torch.Tensor = x) -> Callable[[], None]:
            def run_once() -> None:
                with stochastic_attention(model, nu):
                    model(x)

            return run_once

        with torch.no_grad():
            seconds = interleaved({"plain": plain} | {str(nu): drawn(nu) for nu in _NUS}, repeats or turns)
        rows = []
        for nu in _NUS:
            ratio, target = seconds[str(nu)] / seconds["plain"], targets.get(nu)
            met = None if target is None else ratio <= target
            rows.append({"nu": nu, "seconds": seconds[str(nu)], "ratio": ratio, "target": target, "met": met})
        answer["cases"][name] = {
            "width": width, "heads": heads, "tokens": tokens, "batch": batch, "blocks": blocks,
            "deterministic_seconds": seconds["plain"], "rows": rows,
        }  # fmt: skip
    return answer
