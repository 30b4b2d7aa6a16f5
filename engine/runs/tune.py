"""What a calibration is asked for: the part of a run's spec that says how ν is to be chosen."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

READINGS = ("scale", "per_example", "grid")
"""Readings of the residual-scale loss (arXiv 2604.19530): mean scale, every example's scale, the loss itself."""
SCORED = ("w1_pit", "crps_fair", "coverage_95", "nll_gaussian")
"""Objectives beside it: argmin of a score on the calibration split (of coverage: of its distance from what M members give)."""
Objective = Literal["scale", "per_example", "grid", "w1_pit", "crps_fair", "coverage_95", "nll_gaussian"]
NU_MAX = 10**6


class Tune(BaseModel):
    """How ν is chosen on the calibration split. Defaults are the paper's tuner (arXiv 2510.06439) with our choice of norm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    objective: Objective = Field(default="scale", description="what calibration-first means: a reading of the scale loss, or a score")
    nu_max: Annotated[int, Field(ge=2, le=NU_MAX)] = Field(default=512, description="largest ν that may be chosen: Ξ = 1 … nu_max")
    norm: Literal["normalised", "physical"] = Field(default="normalised", description="units in which the scales are measured")
    area_weighted: bool = Field(default=True, description="weigh points by their area, as the scores do")
    norm_variables: tuple[str, ...] = Field(default=(), description="variables in the norm; default: all that are verified")
    initial: int = Field(default=10, ge=3, le=100, description="passes of the first, log-spaced design")
    draws: int = Field(default=100, ge=20, le=10_000, description="posterior draws a round")
    per_round: int = Field(default=10, ge=1, le=100, description="passes a round")
    tolerance: float = Field(default=1.03, gt=1, le=2, description="the loss that may be lost by a posterior draw, for the tuner to stop")
    rounds: int = Field(default=50, ge=1, le=500, description="rounds at most")
    score_calls: int = Field(default=5, ge=0, le=100, description="further ν that each score's own search may evaluate")
    per_layer: bool = Field(default=False, description="also search a ν for each block of layers")
    per_layer_objective: Literal["crps_fair", "w1_pit", "nll_gaussian"] = Field(
        default="crps_fair", description="what the ν of each block is chosen by"
    )

    @field_validator("norm_variables")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))
