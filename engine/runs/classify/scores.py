"""Scores of class probabilities with paired bootstrap intervals, and one score of probabilities from anywhere.

Cases are independent, so replicates resample single cases. The counts depend on the number of cases and on the seed only: every
method that forecasts the same cases meets the same replicates, and differences between methods are paired.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.errors import ScoreError
from engine.kernels import bootstrap
from engine.labelled import ClassScore, ClassView
from engine.registry import entries, get
from engine.scoring._weighted import WeightedScore
from engine.types import Array

BLOCK = 2_000_000
"""Weights (replicates × cases) handled at a time: bounds memory whatever the number of replicates."""
ROUNDING = 1e-6
"""How far a probability may lie outside [0, 1] and count as rounding."""
DEFINED = 0.9
"""Least share of replicates in which a score must be defined for an interval to be given."""


class Scored(NamedTuple):
    """A score, the ends of its 95 % interval, and its replicates `(replicate,)` (NaN where not defined in one)."""

    value: float
    low: float
    high: float
    replicates: Array


def class_scores(*, outside: bool = False) -> dict[str, ClassScore]:
    """Class scores of the catalogue by key that give one number; those that need out-of-distribution examples, or all others."""
    known = {key: score for key, score in entries("scoring").items() if isinstance(score, ClassScore)}
    return {key: score for key, score in known.items() if not score.profile and ("outside" in score.needs) == outside}


def named(key: str) -> ClassScore:
    """A class score by name, or a `ScoreError` where it is a score of fields."""
    score = get("scoring", key)
    if isinstance(score, ClassScore):
        return score
    expected = f"one of {', '.join([*class_scores(), *class_scores(outside=True)])}"
    raise ScoreError(key, found="a score of fields", expected=expected, remedy="Name a score of class probabilities.")


def score_table(
    probabilities: ArrayLike,
    labels: ArrayLike,
    scores: Iterable[str],
    *,
    outside: ArrayLike | None = None,
    replicates: int = 500,
    seed: int = 0,
) -> dict[str, Scored]:
    """Each of `scores` with its 95 % percentile interval (`engine.kernels.bootstrap.interval`), by key.

    `probabilities` `(case, class)` (or `(member, case, class)`: their mean), `labels` `(case,)`, `outside` `(case', class)` for the
    detection scores; outside cases are resampled independently of the others. Interval ends are kept within the score's range.
    Replicates in which a score is not defined are left out; with more than one in ten of them the ends are NaN (our choice).
    Raises `ScoreError` as `class_view` does, and where a score is none of class probabilities or gives more than one number.
    """
    chosen = [named(key) for key in dict.fromkeys(scores)]
    curves = [score.key for score in chosen if score.profile]
    if curves:
        raise ScoreError(curves[0], found="a curve", expected="scores that are one number", remedy="Leave it out of the table.")
    view = class_view(probabilities, labels, outside=outside)
    for score in chosen:
        require(score, view)
    values = _values(view, chosen, np.ones((1, len(view.labels))), np.ones((1, len(view.w_outside))))
    drawn = bootstrap.resample(len(view.labels), 1, replicates, seed)
    beside = int(np.random.SeedSequence([seed, 0x00D]).generate_state(1, np.uint64)[0])  # a stream of its own
    drawn_outside = bootstrap.resample(len(view.w_outside), 1, replicates, beside) if len(view.w_outside) else np.ones((replicates, 0))
    step = max(1, BLOCK // (len(view.labels) + len(view.w_outside)))
    parts = [_values(view, chosen, drawn[i : i + step], drawn_outside[i : i + step]) for i in range(0, replicates, step)]
    table: dict[str, Scored] = {}
    for score in chosen:
        again = np.concatenate([part[score.key] for part in parts]) if parts else np.zeros(0)
        value = float(values[score.key][0])
        low, high = (float(np.clip(end, *score.range)) for end in _interval(value, again))
        table[score.key] = Scored(value, low, high, again)
    return table


def differences(of: Mapping[str, Scored], against: Mapping[str, Scored]) -> dict[str, tuple[float, float, float]]:
    """Score → (value of `of` less that of `against`, low, high): the paired 95 % interval, for the scores that both tables hold.

    Both from `score_table` with the same cases, replicates and seed; else the pairing means nothing. Raises `ScoreError` where
    the numbers of replicates differ.
    """
    found: dict[str, tuple[float, float, float]] = {}
    for key in of.keys() & against.keys():
        one, other = of[key], against[key]
        if len(one.replicates) != len(other.replicates):
            sizes = f"{len(one.replicates)} and {len(other.replicates)} replicates"
            raise ScoreError(f"difference in {key}", found=sizes, expected="equally many", remedy="Score both with the same replicates.")
        value = one.value - other.value
        found[key] = (value, *_interval(value, one.replicates - other.replicates))
    return {key: found[key] for key in of if key in found}


def _interval(value: float, replicates: Array) -> tuple[float, float]:
    defined = replicates[~np.isnan(replicates)]
    if np.isnan(value) or len(defined) < max(1, DEFINED * len(replicates)):
        return float("nan"), float("nan")
    low, high = bootstrap.interval(np.asarray(value), defined)
    return float(low), float(high)


def _values(view: ClassView, scores: Iterable[ClassScore], weights: Array, outside_weights: Array) -> dict[str, Array]:
    """Each score under each weighting, `(replicate,)`; scores of one family are computed together."""
    values: dict[str, Array] = {}
    for score in scores:
        if score.key in values:
            continue
        if isinstance(score, WeightedScore):
            values |= score.family(view, weights, outside_weights)
        else:  # a score that knows one weighting at a time
            rows = zip(weights, outside_weights, strict=True)
            each = [score.value(replace(view, weights=w, outside_weights=out)) for w, out in rows]
            values[score.key] = np.asarray(each, dtype=np.float64)
    return values


def require(score: ClassScore, view: ClassView) -> None:
    """Raise `ScoreError` where this view lacks what the score needs."""
    if "outside" in score.needs and view.outside is None:
        raise ScoreError(
            score.key,
            found="no out-of-distribution examples",
            expected="outside: their probabilities (case, class)",
            remedy="Give outside, or leave this score out.",
        )


def class_score(
    key: str, probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, outside: ArrayLike | None = None
) -> float | dict[str, Any]:
    """One class score: what `engine.score` gives for `key`."""
    score, view = named(key), class_view(probabilities, labels, weights=weights, outside=outside)
    require(score, view)
    return score.value(view)


def class_view(
    probabilities: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, outside: ArrayLike | None = None
) -> ClassView:
    """A view of checked arrays.

    `probabilities` `(case, class)`, or `(member, case, class)` whose mean over members is the forecast; `labels` `(case,)` whole
    numbers, positions in the class axis; `weights` `(case,)`, how often each case counts; `outside` shaped as `probabilities` with
    cases of its own. Raises `ScoreError` where probabilities are not finite, outside [0, 1] or do not sum to 1 within 1e-4, where
    labels are no classes, where shapes do not fit, or without a case.
    """
    p, y = _distribution("probabilities", probabilities), np.asarray(labels)
    if y.shape != p.shape[:1] or y.dtype.kind not in "iu":
        raise ScoreError(
            "labels",
            found=f"{y.dtype} of shape {y.shape}",
            expected=f"whole numbers of shape ({len(p)},)",
            remedy="Give the position of the observed class, one for each case.",
        )
    if not 0 <= y.min() <= y.max() < p.shape[1]:
        at = int(np.flatnonzero((y < 0) | (y >= p.shape[1]))[0])
        raise ScoreError(
            "labels",
            found=f"{y[at]} at case {at}",
            expected=f"0 to {p.shape[1] - 1}",
            remedy="Leave out cases without a known label, and count classes from 0.",
        )
    held = np.zeros(0)
    if weights is not None:
        held = np.asarray(weights, dtype=np.float64)
        if held.shape != y.shape or not np.isfinite(held).all() or held.min() < 0 or held.sum() <= 0:
            raise ScoreError(
                "weights",
                found=f"shape {held.shape}" if held.shape != y.shape else "negative, missing or no weight",
                expected=f"shape ({len(y)},), weights ≥ 0 with a positive sum",
                remedy="Say how often each case counts.",
            )
    beyond = None if outside is None else _distribution("outside", outside)
    if beyond is not None and beyond.shape[1] != p.shape[1]:
        raise ScoreError(
            "outside",
            found=f"{beyond.shape[1]} classes",
            expected=f"{p.shape[1]}, as the probabilities have",
            remedy="Forecast both sets with the same classifier.",
        )
    return ClassView(p, y.astype(np.int64), held, beyond)


def _distribution(what: str, given: ArrayLike) -> NDArray[np.floating[Any]]:
    """Checked probabilities `(case, class)`: the mean over members, in the precision given."""
    try:
        p = np.asarray(given)
        p = p if p.dtype in (np.float32, np.float64) else p.astype(np.float64) if p.dtype.kind in "fiub" else None
    except ValueError:  # rows of unequal length
        p = None
    if p is None:
        raise ScoreError(
            what,
            found=f"a {type(given).__name__} that is no array of real numbers",
            expected="real numbers (case, class) or (member, case, class)",
            remedy="Give one row of probabilities for each case, all of one length.",
        )
    if p.ndim not in (2, 3) or 0 in p.shape or p.shape[-1] < 2:
        raise ScoreError(
            what,
            found=f"shape {p.shape}",
            expected="(case, class) or (member, case, class), at least one case and two classes",
            remedy="Give one row of probabilities for each case.",
        )
    wrong = ~(np.isfinite(p) & (p >= -ROUNDING) & (p <= 1 + ROUNDING))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ScoreError(what, found=f"{p[place]} at {place}", expected="values in [0, 1]", remedy="Give probabilities, not logits.")
    sums = p.sum(-1, dtype=np.float64)
    if np.abs(sums - 1).max() > 1e-4:
        place = tuple(int(i) for i in np.argwhere(np.abs(sums - 1) > 1e-4)[0])
        raise ScoreError(
            what,
            found=f"a sum of {sums[place]:.6g} at {place}",
            expected="probabilities of a case that sum to 1 within 1e-4",
            remedy="Normalise them, and put the classes on the last axis.",
        )
    whole = p if p.ndim == 2 else p.mean(0, dtype=np.float64).astype(p.dtype)
    return np.clip(whole, 0.0, 1.0)
