"""A transformer's stack, cut so that every transition ends with attention: the form in which it can be read as a diffusion.

    x₀ = embed(inputs)
    z_t = between_t(x_t)             norms and MLPs that precede the next attention; the identity at t = 0 of a pre-norm stack
    x_{t+1} = z_t + attend_{t+1}(z_t)
    output = tail(x_T)               the last MLP, the norm, the head

Source: arXiv 2602.08920 for pre-norm stacks (`h = x + MHSA(LN x)`, `x' = h + MLP(LN h)`: between_t(x) = x + MLP_t(LN x)). For post-norm
stacks (`x' = LN(h + MLP(h))`, `h = LN(x + MHSA(x))`) between_t(x) = LN(h + MLP(h)) with h = LN(x) (our choice): x_t is what stands
before the norm, so that noise is added there too. With no noise both are the original network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing this module costs nothing
    from torch import Tensor

Heads = Callable[["Tensor", Any], tuple["Tensor", "Tensor", "Tensor"]]


@dataclass(frozen=True)
class Step:
    """One transition. `context` is what `Stack.embed` returned beside x₀ (a mask, rotary tables), passed on untouched.

    `between(x, context)` and `attend(z, context)` map `(case, token, width)` to the same shape; `attend` holds the norm before the
    attention and its output projection, but not the residual. `heads(z, context)` gives q, k, v as `(case, head, token, d)` after
    norm and projections, and `out_weight` is the output projection's `(width, head · d)`: both None where the backbone cannot say,
    and then no kernel covariance can be had. `moments(z, context)` gives mean and variance, both `(case, token, width)`, of an
    attention that is a Gaussian process of its own (KEP-SVGP, SGPA); None for a plain softmax.
    """

    between: "Callable[[Tensor, Any], Tensor]"
    attend: "Callable[[Tensor, Any], Tensor]"
    heads: Heads | None = None
    out_weight: "Tensor | None" = None
    moments: "Callable[[Tensor, Any], tuple[Tensor, Tensor]] | None" = None


@dataclass(frozen=True)
class Stack:
    """A model's stack as transitions.

    `embed(inputs)` gives x₀ `(case, token, width)` and a context; `tail(x, context)` the model's output. `embedding` and
    `ending` name the parameters (prefixes in `module.named_parameters()`) that embed and tail use: a student keeps copies of
    these and of nothing else. `num_heads` is the heads of its attention.
    """

    embed: "Callable[[Any], tuple[Tensor, Any]]"
    steps: tuple[Step, ...]
    tail: "Callable[[Tensor, Any], Tensor]"
    width: int
    num_heads: int
    embedding: tuple[str, ...]
    ending: tuple[str, ...]

    def path(self, inputs: Any) -> "tuple[list[Tensor], list[Tensor], Any]":
        """The noise-free path: x₀ … x_T, z₀ … z_{T−1}, and the context."""
        x, context = self.embed(inputs)
        states, middles = [x], []
        for step in self.steps:
            z = step.between(x, context)
            x = z + step.attend(z, context)
            states.append(x)
            middles.append(z)
        return states, middles, context

    def forward(self, inputs: Any) -> "Tensor":
        """The network's output by way of the transitions, all noise off: equal to the original."""
        states, _, context = self.path(inputs)
        return self.tail(states[-1], context)
