"""Multivariate scores of whole fields: the event of a case is one vector.

Points count by w, the area weights scaled to mean 1 over the scored points of the region: with equal weights this is the
plain Euclidean form of the literature. A member with a hole at a scored point cannot be placed and is left out.
"""

from collections.abc import Callable

import numpy as np

from engine.errors import ScoreError
from engine.kernels.area import flat, point_weights
from engine.types import Array, EnsembleView

MOST_POINTS = 8192


def over_regions(view: EnsembleView, weights: Array, score: Callable[[Array, Array, Array], float]) -> Array:
    """`score(members (m, point), observed (point), w (point))` of each case and region, `(case, region)`, float64.

    NaN where a region has no valid point or fewer than two whole members.
    """
    share = point_weights(view, weights)
    observed = flat(view.observed, len(view.observed))
    out = np.full((len(observed), share.shape[1]), np.nan)
    for case, row in enumerate(observed):
        members = np.reshape(view.members[:, case], (len(view.members), -1))
        for region in range(share.shape[1]):
            w = share[case if len(share) > 1 else 0, region]
            points = np.flatnonzero(w > 0)
            if points.size == 0:
                continue
            x = members[:, points].astype(np.float64)
            x = x[~np.isnan(x).any(-1)]
            if len(x) >= 2:
                out[case, region] = score(x, row[points].astype(np.float64), w[points] / w[points].mean())
    return out


def energy_fair(members: Array, observed: Array, w: Array) -> float:
    """mean ‖x_i − y‖ − Σ_iΣ_j ‖x_i − x_j‖ / (2m(m − 1)) with ‖d‖² = Σ w d²; distances of pairs from one m × m product."""
    d = (members - observed) * np.sqrt(w)
    product = d @ d.T
    square = np.diagonal(product)
    pairs = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * product, 0.0))
    m = len(members)
    return float(np.sqrt(square).mean() - (pairs.sum() - np.trace(pairs)) / (2 * m * (m - 1)))


def variogram(members: Array, observed: Array, w: Array, order: float = 0.5) -> float:
    """Σ_a Σ_b w_a w_b (|y_a − y_b|^p − mean_i |x_ia − x_ib|^p)² over all ordered pairs of points, row by row."""
    if observed.size > MOST_POINTS:
        raise ScoreError(
            "variogram_score",
            found=f"{observed.size} points in one event ({observed.size**2:.1e} pairs a member)",
            expected=f"at most {MOST_POINTS}",
            remedy="Score a region, or a coarser grid.",
        )
    power = np.sqrt if order == 0.5 else (lambda distance: distance**order)  # the root is ten times faster than the power
    total = 0.0
    for a in range(observed.size - 1):  # pairs b > a, counted twice
        forecast = power(np.abs(members[:, a + 1 :] - members[:, a : a + 1])).mean(0)
        total += 2 * w[a] * float((w[a + 1 :] * (power(np.abs(observed[a + 1 :] - observed[a])) - forecast) ** 2).sum())
    return total
