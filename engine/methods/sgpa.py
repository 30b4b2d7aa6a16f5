"""SGPA: self-attention as a sparse Gaussian process with global inducing keys (arXiv 2303.02444).

    k = σ² exp(−½ Σ (q − k)²/ℓ²), queries and keys by one projection
    mean = (K_qq − Q_qq) v + K_qg v_g,   cov = K_qq + K_qg K_gg⁻¹ (S − K_gg) K_gg⁻¹ K_gq,   Q = K_qg K_gg⁻¹ K_gq
    loss = CE + η_kl · KL(q ‖ p)

[paper]: the decoupled posterior, ARD kernel, 16 global keys a head, S of each value channel, draws joint over the tokens. [our choice]:
whitening (`engine.kernels.sgpa`), global keys as free parameters in each head's query space, the scale of the amortised values and the
start (`_sgpa_attention`), KL over the number of fit examples, η_kl, and the last k attentions alone as in KEP-SVGP.
A draw factors a token × token matrix in each head: with hundreds of tokens it costs far more than a softmax.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from engine.methods._gp_method import GpMethod

if TYPE_CHECKING:
    from engine.methods._gp_attention import GpAttention


class Sgpa(GpMethod):
    """A network with sparse-GP attention, trained from the start."""

    key = "sgpa"
    title = "Sparse-GP attention (SGPA)"
    reference = "Chen and Li (2023), arXiv 2303.02444"
    facts = ("last", "inducing")

    class ClassParams(BaseModel):
        """Which attentions are replaced, their global keys, the weight of the KL, and the training."""

        model_config = ConfigDict(extra="forbid", frozen=True)
        last: int = Field(default=0, ge=0, le=1000, description="how many attentions are replaced, counted from the last; 0: all")
        inducing: int = Field(default=16, ge=1, le=1024, description="global inducing keys of each head")
        eta_kl: float = Field(default=0.01, ge=0.0, le=1e4, description="weight of the KL divergence, which counts per fit example")
        epochs: int = Field(default=30, ge=1, le=10_000, description="passes over the fit examples, at most")
        batch: int = Field(default=128, ge=1, le=65_536, description="examples a step")
        lr: float = Field(default=1e-3, gt=0.0, le=1.0, description="greatest learning rate")
        weight_decay: float = Field(default=1e-4, ge=0.0, le=1.0, description="decoupled weight decay")

    def make(self, facts: Mapping[str, int]) -> "Callable[[int, int, float], GpAttention]":
        """With so many global keys."""
        from engine.methods._sgpa_attention import SgpaAttention

        return lambda width, heads, dropout: SgpaAttention(width, heads, dropout, inducing=facts["inducing"])


ENTRIES = (Sgpa(),)
