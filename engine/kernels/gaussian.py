"""Distances between diagonal Gaussians: what a student's transition is matched to its teacher's by.

    KL(N(m, s²) ‖ N(μ, σ²)) = ½ Σ [ (s² + (m − μ)²)/σ² − 1 + ln σ²/s² ]
    W₂²(N(m, s²), N(μ, σ²)) = Σ [ (m − μ)² + (s − σ)² ]

Both are given as means over all elements, so that a loss does not grow with tokens and channels (our choice).
Source: arXiv 2602.08920 (KL); the two parts of W₂² are weighed separately, as in its authors' experiments.
"""

from torch import Tensor

FLOOR = 1e-4
"""Least variance of teacher and student in the KL: a teacher without noise would otherwise be infinitely far from any student."""


def kl_diagonal(mean: Tensor, variance: Tensor, student_mean: Tensor, student_variance: Tensor, floor: float = FLOOR) -> Tensor:
    """Mean over elements of KL(teacher ‖ student), 0-d, ≥ 0; variances below `floor` count as `floor`. Any equal shapes."""
    q, p = variance.clamp(min=floor), student_variance.clamp(min=floor)
    return 0.5 * ((q + (mean - student_mean) ** 2) / p - 1 + (p / q).log()).mean()


def w2_parts(mean: Tensor, sd: Tensor, student_mean: Tensor, student_sd: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of W₂², each a mean over elements, 0-d: of the means, and of the standard deviations."""
    return ((mean - student_mean) ** 2).mean(), ((sd - student_sd) ** 2).mean()
