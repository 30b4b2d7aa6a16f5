"""The log-linear surrogate of a scale that falls with ν: ln s(ν) = a ln ν + ln b + σ z, z standard normal.

Least squares of ln s on (1, ln ν); the posterior under the prior p(θ, σ²) ∝ 1/σ² is Normal–inverse-χ² with n − 2 degrees
of freedom. With s lognormal, the loss of one pass against the target s₀ and its minimum are closed forms:

    f(ν) = E[(s(ν) − s₀)²] = b² (e^{2σ²} − e^{σ²}) ν^{2a} + (b e^{σ²/2} ν^a − s₀)²
    ν*   = (s₀ / exp(ln b + 1.5 σ²))^(1/a),      f(ν*) = s₀² (1 − e^{−σ²})

so that, with t = (ν/ν*)^a,  f(ν) = s₀² (1 − e^{−σ²} + e^{−σ²} (t − 1)²): the form that is computed, since it neither
overflows in logarithms nor cancels where σ is small. E s at ν* is s₀ e^{−σ²}, a little below the target.

It does not hold where a scale does not fall with ν (a ≥ 0): the formula would then put the best ν on the wrong side, so
`log_optimum` gives NaN there (this project's rule). Two attention layers or more bend the line at small ν, where the
spread is not O(ν^−½); σ then holds the lack of fit too.

Source: arXiv 2510.06439 (surrogate, closed form); used for ν in arXiv 2604.19530. One stochastic attention layer has a = −½.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from engine.errors import CalibrationError
from engine.types import Array


class Draws(NamedTuple):
    """Posterior draws of the three parameters, each `(draw,)`: slope a, intercept ln b, sigma σ."""

    slope: Array
    intercept: Array
    sigma: Array


@dataclass(frozen=True)
class LogLinear:
    """A fitted surrogate. Scales are in the unit of `scale` of the fit (normalised units, for ν), ν is a count."""

    slope: float
    """a: about −½ where the scale is the spread of stochastic attention."""
    intercept: float
    """ln b, b the median scale at ν = 1."""
    sigma: float
    """σ: residual standard deviation of ln s, with n − 2 degrees of freedom; 0 or more."""
    count: int
    """n, the number of points; 3 or more."""
    centre: float
    """Mean of ln ν over the points."""
    spread: float
    """Σ (ln ν − centre)², more than 0."""

    @property
    def slope_error(self) -> float:
        """Standard error of the slope; Student's t with n − 2 degrees of freedom."""
        return self.sigma / np.sqrt(self.spread)

    def slope_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Central posterior interval of the slope, which is also the confidence interval of the regression."""
        half = float(special.stdtrit(self.count - 2, (1 + level) / 2)) * self.slope_error
        return self.slope - half, self.slope + half

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """`draws` independent draws of (a, ln b, σ) from the posterior.

        σ² = (n − 2) σ̂² / χ²(n − 2), then the coefficients given σ; the intercept at the centre and the slope are
        independent there, which is why they are what is drawn.
        """
        sigma = self.sigma * np.sqrt((self.count - 2) / rng.chisquare(self.count - 2, draws))
        slope = self.slope + sigma * rng.standard_normal(draws) / np.sqrt(self.spread)
        middle = self.intercept + self.slope * self.centre + sigma * rng.standard_normal(draws) / np.sqrt(self.count)
        return Draws(slope, middle - slope * self.centre, sigma)

    def log_optimum(self, target: float) -> float:
        """Ln ν* for the target scale s₀ > 0; NaN where the slope is 0 or more."""
        return float(log_optimum(self.slope, self.intercept, self.sigma, target))

    def optimum(self, target: float) -> float:
        """ν* itself, 0 to infinity, neither rounded nor held inside any range; NaN where the slope is 0 or more."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_optimum(target)))

    def log_loss(self, log_nu: ArrayLike, target: float) -> Array:
        """Ln f at ln ν, of the shape of `log_nu`; −inf where the fit is exact (σ = 0) and its scale is the target."""
        log_t = self.slope * np.asarray(log_nu, dtype=np.float64) + self.intercept + 1.5 * self.sigma**2 - np.log(target)
        with np.errstate(divide="ignore"):
            noise = np.log(-np.expm1(-(self.sigma**2)))
            # ln |e^x − 1| = max(x, 0) + ln(1 − e^{−|x|})
            missed = np.maximum(log_t, 0.0) + np.log(-np.expm1(-np.abs(log_t)))
        return 2 * np.log(target) + np.logaddexp(noise, 2 * missed - self.sigma**2)

    def loss(self, nu: ArrayLike, target: float) -> Array:
        """Expected loss f(ν) in the unit of the scale, squared; infinite where it exceeds what a float holds."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_loss(np.log(np.asarray(nu, dtype=np.float64)), target))

    def mean(self, nu: ArrayLike) -> Array:
        """Mean scale b e^{σ²/2} ν^a, of the shape of `nu`, in the unit of the scale."""
        with np.errstate(over="ignore"):
            return np.exp(self.intercept + self.sigma**2 / 2 + self.slope * np.log(np.asarray(nu, dtype=np.float64)))

    def band(self, nu: ArrayLike, rng: np.random.Generator, draws: int = 2000, level: float = 0.95) -> tuple[Array, Array, Array]:
        """Mean scale over ν `(nu,)` and the pointwise posterior band of it: `(mean, low, high)`, each `(nu,)`.

        The band is of the *mean* scale, not of single passes, which scatter around it by σ.
        """
        posterior = self.draw(draws, rng)
        log_nu = np.log(np.asarray(nu, dtype=np.float64))
        log_mean = posterior.intercept[:, None] + posterior.sigma[:, None] ** 2 / 2 + posterior.slope[:, None] * log_nu
        low, high = np.quantile(log_mean, [(1 - level) / 2, (1 + level) / 2], axis=0)
        with np.errstate(over="ignore"):
            return self.mean(nu), np.exp(low), np.exp(high)


def log_optimum(slope: ArrayLike, intercept: ArrayLike, sigma: ArrayLike, target: ArrayLike) -> Array:
    """Ln ν* = (ln s₀ − ln b − 1.5 σ²) / a, elementwise; NaN where a ≥ 0. May be any size: hold it in a range before `exp`."""
    a = np.asarray(slope, dtype=np.float64)
    falls = a < 0
    gap = np.log(target) - np.asarray(intercept, dtype=np.float64) - 1.5 * np.asarray(sigma, dtype=np.float64) ** 2
    with np.errstate(over="ignore"):
        return np.where(falls, gap / np.where(falls, a, -1.0), np.nan)


def fit(nu: ArrayLike, scale: ArrayLike) -> LogLinear:
    """Least squares of ln s on (1, ln ν).

    `nu` `(point,)`, more than 0; `scale` `(point,)`, more than 0, in any unit. Points that share a ν count as they are.
    Raises CalibrationError, naming the ν, for a scale or ν that is not finite and more than 0, for fewer than three points
    and for a single distinct ν; ValueError for shapes that do not fit.
    """
    x, s = np.asarray(nu, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    if x.ndim != 1 or x.shape != s.shape:
        raise ValueError(f"nu {x.shape} and scale {s.shape}; expected two arrays (point,)")
    _refuse(x, s)
    x, y = np.log(x), np.log(s)
    centre, middle = x.mean(), y.mean()
    away = x - centre
    spread = float(away @ away)
    slope = float(away @ (y - middle)) / spread
    residual = y - middle - slope * away
    sigma = np.sqrt(float(residual @ residual) / (len(x) - 2))
    return LogLinear(slope, float(middle - slope * centre), float(sigma), len(x), float(centre), spread)


def _refuse(nu: Array, scale: Array) -> None:
    """Raise where no line can be fitted."""
    for name, values in (("ν", nu), ("scale", scale)):
        wrong = ~(np.isfinite(values) & (values > 0))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise CalibrationError(
                f"surrogate at ν = {nu[first]:g}",
                found=f"{name} {values[first]:g} ({int(wrong.sum())} of {len(values)} points are like it)",
                expected=f"a finite {name} above zero",
                remedy="Leave that pass out, or check the forecasts and observations behind it.",
            )
    distinct = np.unique(nu)
    if len(nu) < 3 or len(distinct) < 2:
        listed = ", ".join(f"{value:g}" for value in distinct) or "none"
        raise CalibrationError(
            "surrogate of the scale",
            found=f"{len(nu)} points at ν = {listed}",
            expected="at least 3 points at 2 or more different ν",
            remedy="Allow a larger range of ν, or evaluate more passes.",
        )
