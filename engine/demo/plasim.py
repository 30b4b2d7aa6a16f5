"""Reading the PlaSim T21 trajectories, and the split of them that the demo uses.

The two archives hold whole-number differences in time (exact), see `read`. They were made with PlaSim T21L10 as
built from the Fortran source inside PyPI `exoplasim` 3.4.2; the build and run settings stand in `README.md` here.
"""

import io
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np

VARIABLES = ("z500", "t850", "u500", "v500", "u850", "v850", "t2m")
NODES = 36
"""Nodes of the seasonal climatology, ten days apart."""

TRAIN_2, CALIBRATE, VERIFY = slice(0, 3700), slice(3760, 4480), slice(4560, 6000)
"""Snapshots of trajectory 2: training, calibration (180 days) and the held-out year; at least 15 days between them."""

PLAUSIBLE = {"t850": (210.0, 330.0), "u850": (-50.0, 50.0), "v850": (-50.0, 50.0)}
"""Bounds that the 850 hPa fields are clipped to: over Antarctica, Greenland and the Himalaya that level lies below the
ground, and the extrapolation there reaches 5 K and 150 m/s (2 % of all values of t850, .3 to .5 % of the winds)."""


@dataclass(frozen=True)
class Trajectory:
    """`fields[name]` `(time, 32, 64)` float32 in the variable's own units, and model dates of the 360-day calendar."""

    fields: dict[str, np.ndarray]
    year: np.ndarray
    month: np.ndarray
    day: np.ndarray
    step_of_day: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray

    @property
    def day_of_year(self) -> np.ndarray:
        """Days since the start of the year, 0 … 359.75."""
        return (self.month - 1) * 30 + (self.day - 1) + self.step_of_day / 4

    def part(self, index: slice) -> "Trajectory":
        """The snapshots `index`."""
        fields = {name: field[index] for name, field in self.fields.items()}
        when = {name: getattr(self, name)[index] for name in ("year", "month", "day", "step_of_day")}
        return Trajectory(fields, **when, latitude=self.latitude, longitude=self.longitude)


def read(path: Path) -> Trajectory:
    """One `trajectory_N.npz.xz`: field = (first + cumulated differences) × step."""
    with np.load(io.BytesIO(lzma.open(path).read())) as z:
        fields = {
            name: ((z[f"{name}_first"] + np.cumsum(z[f"{name}_delta"].astype(np.int32), axis=0)) * z[f"{name}_step"]).astype(np.float32)
            for name in VARIABLES
        }
        for name, (low, high) in PLAUSIBLE.items():
            np.clip(fields[name], low, high, out=fields[name])
        when = {name: z[name].astype(int) for name in ("year", "month", "day", "step_of_day")}
        return Trajectory(fields, **when, latitude=z["lat"], longitude=z["lon"])


def area_weights(latitude: np.ndarray) -> np.ndarray:
    """cos φ with mean 1 over the grid's rows, `(latitude,)`."""
    w = np.cos(np.deg2rad(latitude))
    return (w / w.mean()).astype(np.float32)


def seasonal_climatology(parts: list[Trajectory], name: str, harmonics: int = 3) -> np.ndarray:
    """Least-squares annual harmonics at each grid point, at `NODES` days of the year, `(NODES, 32, 64)`.

    Harmonics rather than means of single days: ten years are too few to average the weather out of a day's mean.
    """
    field = np.concatenate([p.fields[name] for p in parts]).reshape(-1, 32 * 64).astype(np.float64)
    day = np.concatenate([p.day_of_year for p in parts])

    def design(days: np.ndarray) -> np.ndarray:
        angle = 2 * np.pi * days[:, None] * np.arange(1, harmonics + 1) / 360
        return np.concatenate([np.ones((len(days), 1)), np.cos(angle), np.sin(angle)], axis=1)

    coefficients, *_ = np.linalg.lstsq(design(day), field, rcond=None)
    return (design(np.arange(NODES) * 360 / NODES) @ coefficients).reshape(NODES, 32, 64).astype(np.float32)


def at_days(climatology: np.ndarray, day_of_year: np.ndarray) -> np.ndarray:
    """The climatology between its nodes: periodic and linear in time, `(time, 32, 64)`."""
    position = np.asarray(day_of_year) * len(climatology) / 360
    low = np.floor(position).astype(int)
    share = (position - low).astype(np.float32)[:, None, None]
    return climatology[low % len(climatology)] * (1 - share) + climatology[(low + 1) % len(climatology)] * share
