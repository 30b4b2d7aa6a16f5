"""KEP-SVGP: self-attention as two sparse Gaussian processes on the singular vectors of its asymmetric kernel (arXiv 2402.01476).

    κ(xᵢ, xⱼ) = cos(q(xᵢ), k(xⱼ));  features e, r of rank s and singular values Λ by kernel SVD;  p(u) = N(0, Λ²), q(u) = N(m, S)
    mean E Λ⁻¹ m, covariance E Λ⁻¹ S Λ⁻¹ Eᵀ, and likewise with R; both branches merged, then the output projection
    loss = CE + η_ksvd · J² + η_kl · KL(q(u) ‖ p(u))

[paper]: kernel, rank 10, both branches and their posterior, the three terms of the loss, KEP-k/L (the last k attentions). [our
choice]: how the weights depend on the data and the scale of Λ (`engine.kernels.kep`), the merge along functions and the start
(`_kep_attention`), J² averaged over cases and heads and summed over layers, KL over the number of fit examples, and both η.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.methods._gp_method import GpMethod

if TYPE_CHECKING:
    from torch import Tensor

    from engine.methods._gp_attention import GpAttention


class KepSvgp(GpMethod):
    """A network with KEP-SVGP attention, trained from the start."""

    key = "kep_svgp"
    title = "KEP-SVGP attention"
    reference = "Chen, Tao, Tonin and Suykens (2024), arXiv 2402.01476"
    facts = ("last", "rank", "concatenate")

    class ClassParams(BaseModel):
        """Which attentions are replaced, their rank, the weights of the loss, and the training."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        last: int = Field(default=0, ge=0, le=1000, description="how many attentions are replaced, counted from the last; 0: all")
        rank: int = Field(default=10, ge=1, le=256, description="singular vectors kept of each head's kernel")
        merge: Literal["addition", "concatenation"] = Field(default="addition", description="how the left and the right branch are joined")
        eta_ksvd: float = Field(default=0.1, ge=0.0, le=1e4, description="weight of the kernel SVD's loss")
        eta_kl: float = Field(default=0.1, ge=0.0, le=1e4, description="weight of the KL divergence, which counts per fit example")
        epochs: int = Field(default=30, ge=1, le=10_000, description="passes over the fit examples, at most")
        batch: int = Field(default=128, ge=1, le=65_536, description="examples a step")
        lr: float = Field(default=1e-3, gt=0.0, le=1.0, description="greatest learning rate")
        weight_decay: float = Field(default=1e-4, ge=0.0, le=1.0, description="decoupled weight decay")

        @property
        def concatenate(self) -> bool:
            """Whether the branches are laid side by side."""
            return self.merge == "concatenation"

    def make(self, facts: Mapping[str, int]) -> "Callable[[int, int, float], GpAttention]":
        """Of this rank and merge."""
        from engine.methods._kep_attention import KepAttention

        return lambda width, heads, dropout: KepAttention(width, heads, dropout, rank=facts["rank"], concatenate=bool(facts["concatenate"]))

    def penalty(self, attn: "GpAttention", params: Any, examples: int) -> "Tensor":
        """The kernel SVD's loss beside the KL."""
        return params.eta_ksvd * attn.penalties["ksvd"] + super().penalty(attn, params, examples)


ENTRIES = (KepSvgp(),)
