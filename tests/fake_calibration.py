"""A synthetic calibration made exactly by the schema of `engine/runs/calibration.py`, from a law that is known.

The members' departure is R = 1.86 · ν^−½ · noise and the frozen model's error Z scatters about 0.48 standard deviations, so that
ν* = 15. The scores are those of Gaussian ensembles whose mean strong noise pulls away: the CRPS is least at ν = 31, and W₁(PIT) at
ν = 8, since the departure holds the bias of the mean too. Pure NumPy and xarray.
"""

import json
from math import erf, pi, sqrt
from typing import Any

import numpy as np
import xarray as xr

KEY = "cafe0123456789ab"
CASES, M, STAR, SCORE = 18, 20, 15, 31
NU = (1, 2, 4, 8, 15, 31, 64, 128, 512)
UNIT, SD = "m", 60.0
"""Of the first variable; scores are in its unit, scales in standard deviations."""
SCORES = ("w1_pit", "coverage_95", "width_95", "crps_fair", "rmse", "acc", "spread_skill_ratio", "nll_gaussian")


def _phi(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: 0.5 * (1 + erf(v / sqrt(2))))(x)


def _scores(nu: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of Gaussian ensembles of spread c times their error e."""
    error = 0.48 * SD * np.sqrt(1 + (2.2 / nu) ** 1.1)
    spread = 0.48 * SD * 0.86 * np.sqrt(STAR / nu)
    c = spread / error
    z = np.linspace(-8, 8, 4001)
    density = np.exp(-(z**2) / 2) / sqrt(2 * pi)
    # PIT of y ~ N(0, 1) under N(0, c²): its distribution function at u = Φ(z) is Φ(c z)
    w1 = np.array([np.trapezoid(np.abs(_phi(k * z) - _phi(z)) * density, z) for k in c])
    edge = 1.96 * (1 - 1.9 / M)  # narrower than 1.96: the ends of a small ensemble
    crps = error * (np.sqrt(1 + c**2) * sqrt(2 / pi) - c / sqrt(pi))
    away = np.log2(nu / SCORE) ** 2
    crps *= 1 + 0.05 * away / (1 + 0.1 * away)  # errors of the mean that no spread makes good: the least is at 31
    return {
        "w1_pit": w1 + 0.012,
        "coverage_95": 2 * _phi(edge * c) - 1,
        "width_95": 2 * edge * spread,
        "crps_fair": crps,
        "rmse": error,
        "acc": 1 - 0.02 * (error / SD) ** 2,
        "spread_skill_ratio": c,
        "nll_gaussian": np.log(spread) + 0.5 * (error / spread) ** 2 + 0.919,
    }


def _fit(nu: np.ndarray, scale: np.ndarray, at: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(curves of posterior draws of the mean scale at `at`, slopes); ordinary least squares of ln s on ln ν with its posterior."""
    x = np.stack([np.ones(nu.size), np.log(nu)], 1)
    inverse = np.linalg.inv(x.T @ x)
    theta = inverse @ x.T @ np.log(scale)
    free = nu.size - 2
    variance = ((np.log(scale) - x @ theta) ** 2).sum() / free
    drawn = variance * free / rng.chisquare(free, 400)
    thetas = theta + np.sqrt(drawn)[:, None] * (rng.standard_normal((400, 2)) @ np.linalg.cholesky(inverse).T)
    thetas[0] = theta
    return np.exp(thetas[:, :1] + thetas[:, 1:] * np.log(at) + drawn[:, None] / 2), thetas[:, 1]


def _times(start: int, count: int, step: int) -> list[tuple[str, str]]:
    """(start, valid time) in a 360-day calendar; the first split passes 0012-02-30."""

    def text(day: int) -> str:
        return f"{12 + day // 360:04d}-{day % 360 // 30 + 1:02d}-{day % 30 + 1:02d}T00:00:00"

    return [(text(start + step * i), text(start + step * i + 3)) for i in range(count)]


def make(
    *,
    key: str = KEY,
    edge: bool = False,
    rising: bool = False,
    verify: bool = True,
    acc: bool = True,
    score_point: bool = True,
    intervals: bool = True,
    readings: tuple[float, float, float] = (15, 17, 15),
    per_layer: bool = False,
    warnings: tuple[str, ...] = (),
    seed: int = 0,
    **attrs: Any,
) -> xr.Dataset:
    """A calibration: at the `edge` of the search, with a `rising` scale, without data to `verify` on, without `acc`, without an
    evaluation at the score-oriented point, without `intervals`; `readings` give their three ν, `attrs` replace attributes."""
    rng = np.random.default_rng(seed)
    star = 1 if edge else STAR
    slope, factor = (0.12, 0.3) if rising else (-0.5, 0.2 if edge else 1.86)
    grid = np.array([n for n in NU if n != SCORE or score_point], float)

    def scale_at(nu: np.ndarray) -> np.ndarray:
        return factor * nu**slope

    first = np.unique(np.round(np.geomspace(1, 512, 10)))
    later = np.unique(np.clip(np.round(star * np.exp(0.35 * rng.standard_normal(14))), 1, 512))
    evaluation = np.concatenate([first, later])
    passes = scale_at(evaluation) * np.exp(0.05 * rng.standard_normal(evaluation.size))
    curve = np.geomspace(1, 512, 60)
    drawn, slopes = _fit(evaluation, passes, curve, rng)
    error = 0.48 * np.exp(0.22 * rng.standard_normal(CASES) - 0.02)
    error *= 0.48 / error.mean()
    half = 1.96 * error.std(ddof=1) / sqrt(CASES)
    loss = (scale_at(grid) - 0.48) ** 2 + error.var()
    variables: dict[str, Any] = {
        "evaluation_nu": ("evaluation", evaluation.astype(int)),
        "evaluation_scale": ("evaluation", passes),
        "evaluation_round": ("evaluation", np.r_[np.zeros(first.size, int), 1 + np.arange(later.size) // 10]),
        "fit": ("curve_nu", drawn[0]),
        "fit_low": ("curve_nu", np.quantile(drawn, 0.025, axis=0)),
        "fit_high": ("curve_nu", np.quantile(drawn, 0.975, axis=0)),
        "target_scale": ((), 0.48),
        "target_scale_low": ((), 0.48 - half),
        "target_scale_high": ((), 0.48 + half),
        "passes": ("nu", np.where(grid == star, 24, 20)),
        "seconds": ("nu", np.full(grid.size, 6.2)),
    }
    shared = scale_at(grid) * np.minimum(0.9, 1.6 / np.sqrt(grid))  # what all members share: strong noise pulls their mean away
    apart = np.sqrt(scale_at(grid) ** 2 - shared**2)
    for name, values, spread in (("scale", scale_at(grid), 0.09), ("loss", loss, 0.3), ("shift", shared, 0.1), ("spread", apart, 0.1)):
        for end, way in (("", 0.0), ("_low", -1.0), ("_high", 1.0)):
            variables[name + end] = ("nu", values * np.exp(way * spread))
    for name, values in _scores(grid).items():
        if name == "acc" and not acc:
            continue
        width = {"w1_pit": 0.02, "coverage_95": 0.05, "acc": 0.004}.get(name, 0.07 * np.abs(values))
        units = UNIT if name in ("width_95", "crps_fair", "rmse") else "1"
        for end, way in (("", 0.0), ("_low", -1.0), ("_high", 1.0)):
            ends = values + way * width
            ends = ends if name == "nll_gaussian" else np.clip(ends, 0, 1 if name in ("coverage_95", "acc", "w1_pit") else None)
            variables[name + end] = ("nu", ends, {"units": units, "title": name})
    found = np.array((1, 1, 1) if edge else readings, float)
    variables["reading_nu"] = ("reading", found)
    variables["reading_low"] = ("reading", np.maximum(found * 0.8, 1) if intervals else np.full(3, np.nan))
    variables["reading_high"] = ("reading", found * 1.28 if intervals else np.full(3, np.nan))
    variables["reading_loss"] = ("reading", [float(loss[grid == n][0]) if n in grid else np.nan for n in found])
    times = _times(31, CASES, 6)
    data = xr.Dataset(
        variables,
        {
            "nu": grid.astype(int),
            "evaluation": np.arange(evaluation.size),
            "curve_nu": curve,
            "reading": ["scale", "per_example", "grid"],
            "case": np.arange(CASES),
            "init_time": ("case", [t[0] for t in times]),
            "valid_time": ("case", [t[1] for t in times]),
        },
    )

    def point(nu: int, low: float, high: float, rule: str) -> dict[str, Any]:
        scores = {
            name: float(data[name].sel(nu=nu)) if nu in data["nu"].values else None for name in ("w1_pit", "crps_fair", "coverage_95")
        }
        interval = {"low": round(low, 2), "high": round(high, 2)} if intervals else {"low": None, "high": None}
        return {"nu": nu, "chosen_on": "calibrate", "rule": rule, "edge": edge and nu == star} | interval | scores

    points = {
        "calibration_first": point(star, star * 0.8 if not edge else 1, star * 1.28, "matched residual scale"),
        "score_oriented": point(SCORE, 22, 44, "least fair CRPS"),
    }
    if not score_point:
        points["score_oriented"] |= {"low": None, "high": None}
    said = {
        "edge": "ν* stands at the edge of what was searched (ν = 1 … 512): a better one may lie beyond it.",
        "rising": "The members do not draw closer as ν grows, so the fit does not say where they match the model's error.",
        "few_cases": f"Only {CASES} cases: the interval of ν* is wide, and so is that of the model's own error.",
        "scalar_target": "The target is one number a case, where matching the loss gives too narrow an ensemble; the mean scale is used.",
        "missing": "One case of 19 has no valid observation and was left out.",
        "disagree": "The three readings of the same loss lie further apart than their intervals.",
    }
    codes = dict.fromkeys([*(["edge"] if edge else []), *(["rising"] if rising else []), *warnings])
    verified = _times(720, 42, 8)
    layers = {"groups": {"blocks 1-2": 9, "blocks 3-4": 22, "decoder": 31}, "shared": 31}
    data.attrs = {
        "key": key,
        "command": "python -m engine calibrate --checkpoint demo.ckpt --data demo.nc --calibrate calibrate.nc --seed 0",
        "spec": json.dumps(
            {"checkpoint": "/data/demo.ckpt", "data": ["/data/demo.nc"], "calibrate": ["/data/calibrate.nc"], "seed": seed, "tune": {}}
        ),
        "title": "Synthetic calibration with a known law",
        "version": "0.0",
        "method": "stochastic_attention",
        "seed": seed,
        "checkpoint_revision": "0" * 12,
        "dataset_fingerprint": "1" * 12,
        "members": M,
        "cases": CASES,
        "variable": "geopotential_height_500",
        "unit": UNIT,
        "lead_hours": 72.0,
        "region": "global",
        "nominal_95": 0.871,
        "norm": "normalised units, area weighted",
        "scale_unit": "standard deviations",
        "objective": "scale",
        "nu_max": 512,
        "slope": float(slopes[0]),
        "slope_low": float(np.quantile(slopes, 0.025)),
        "slope_high": float(np.quantile(slopes, 0.975)),
        "rounds": int(data["evaluation_round"].max()),
        "block_length": 2,
        "bootstrap": 500,
        "estimator": "mean over passes and cases of (R − Z)²",
        "changes": "[]",
        "notes": "[]",
        "stop": "no other draw of the posterior would do better by 3 %",
        "operating_points": json.dumps(points),
        "warnings": json.dumps([{"code": code, "text": said[code]} for code in codes]),
        "periods": json.dumps(
            {
                "calibrate": {"first": times[0][0], "last": times[-1][1], "cases": CASES},
                "verify": {"first": verified[0][0], "last": verified[-1][1], "cases": 42} if verify else None,
            }
        ),
        "per_layer": json.dumps(layers | {"objective": "crps_fair", "value": 21.4, "value_shared": 21.9}) if per_layer else "",
    } | attrs
    return data
