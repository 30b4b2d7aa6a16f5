"""The result of a calibration: what was evaluated on the calibration split, which ν follows from it, and how surely.

`calibration.nc` of a run (kilobytes), the only thing that its page and figures read:

    coordinates   nu (int): every ν of which ensembles were made on the calibration split; evaluation (int): the tuner's passes
                  in the order in which it looked at them; curve_nu (float, log-spaced 1 … nu_max); reading (str: scale,
                  per_example, grid); case (int) with init_time and valid_time (ISO text)
    tuner         evaluation_nu, evaluation_scale, evaluation_round (evaluation): mean R of one pass; round 0 is the first design
    fit           fit, fit_low, fit_high (curve_nu): mean scale by the surrogate, 95 % posterior band
                  target_scale, target_scale_low, target_scale_high (): mean Z, 95 % interval over cases
    per ν         passes (nu); scale, scale_low, scale_high (nu): mean R; loss, loss_low, loss_high (nu): mean (R − Z)²
                  shift, spread (+ _low, _high) (nu): the two parts of the departure, E R² = shift² + spread²: what all members
                  share, and how far they lie apart
                  <score>, <score>_low, <score>_high (nu): w1_pit, coverage_95, width_95, crps_fair, rmse, acc,
                  spread_skill_ratio, nll_gaussian of the ensembles of `members` on the calibration split (first region, first
                  variable); attrs as in a Verification; seconds (nu)
    readings      reading_nu, reading_low, reading_high (reading): ν and its 95 % interval; reading_loss (reading): mean (R − Z)²
                  there, NaN where that ν was never evaluated
    attrs         key, command, spec (JSON), title, version, method, seed, checkpoint_revision, dataset_fingerprint
                  members (of one ensemble on the calibration split), cases, variable, unit, lead_hours, region, nominal_95
                  norm (words: "normalised units, area weighted"), scale_unit ("standard deviations", or the variable's unit)
                  objective (scale, per_example, grid, w1_pit, crps_fair, coverage_95, nll_gaussian), nu_max
                  block_length (cases), bootstrap (replicates), estimator, changes and notes (JSON lists of words)
                  slope, slope_low, slope_high (of ln s over ln ν; theory for one layer: −½), rounds, stop (words)
                  operating_points (JSON): {"calibration_first": {"nu", "low", "high", "chosen_on", "variable", "region",
                  "lead_hours", "rule", "edge", "remark", "w1_pit", "crps_fair", "coverage_95"},
                  "score_oriented": the same}; scores there are those at that ν on the calibration
                  split, NaN (JSON null) where it was not evaluated; low and high are null where no interval is known
                  warnings (JSON): [{"code", "text"}]; codes: edge, scalar_target, few_cases, rising, still, missing,
                  shift, disagree
                  periods (JSON): {"calibrate": {"first", "last", "cases"}, "verify": the same or null}: first initial and last
                  valid time (ISO)
                  per_layer (JSON, "" where not asked for): {"groups": {name: ν}, "shared": ν, "objective", "value", "value_shared"}
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import RunError
from engine.runs.reading import READING
from engine.runs.spec import NU_MAX, RunSpec, parse_spec
from engine.runs.verification import open_result

if TYPE_CHECKING:
    import xarray as xr

IN_WORDS = {
    "per_example": "every example", "grid": "the loss itself", "w1_pit": "PIT", "crps_fair": "CRPS", "coverage_95": "coverage",
    "nll_gaussian": "likelihood",
}  # fmt: skip
"""Objectives in a run's name."""
KEPT = (
    "checkpoint", "data", "calibrate", "normalisation", "climatology", "architecture", "method", "params", "seed", "max_cases", "members",
    "calibrate_cases", "calibrate_members", "lead_hours", "variables", "bootstrap", *READING,
)  # fmt: skip
"""Fields of a sweep's spec that a calibration shares."""


def open_calibration(folder: Path) -> "xr.Dataset":
    """`calibration.nc` of a run's folder, in memory."""
    return open_result(folder, "calibration")


def calibration_spec(spec: RunSpec | dict[str, Any], **tune: Any) -> RunSpec:
    """The calibration that goes with a sweep's spec: the same model, files and cases, `tune` as in `engine.runs.tune.Tune`.

    What concerns verification alone (ν grid, scores, regions, maps) is dropped, so that equal questions are one run.
    """
    fields = spec.model_dump() if isinstance(spec, RunSpec) else dict(spec)
    kept = {n: fields[n] for n in KEPT if n in fields}
    title = str(fields.get("title") or "").removeprefix("Calibration · ").partition(" · by ")[0]
    # two calibrations of one model stand in one list: what makes them differ is part of the name
    how = [IN_WORDS.get(str(tune["objective"]), str(tune["objective"]))] if tune.get("objective", "scale") != "scale" else []
    how += ["physical scale"] if tune.get("norm") == "physical" else []
    how += ["layers"] if tune.get("per_layer") else []
    named = f"Calibration · {title}" + (f" · by {', '.join(how)}" if how else "") if title else ""
    return parse_spec(kept | {"tune": tune, "title": named[:200]})


def verification_spec(calibration: "xr.Dataset", *, per_layer: bool = False) -> RunSpec:
    """The sweep that verifies what a calibration found: at both its points, and at half and twice the first for comparison.

    `per_layer`: at the shared ν with each block's own ν instead.
    """
    spec = json.loads(calibration.attrs["spec"])
    points = {name: int(p["nu"]) for name, p in json.loads(calibration.attrs["operating_points"]).items()}
    first = points["calibration_first"]
    nus = {first, *points.values(), max(1, first // 2), min(NU_MAX, 2 * first)}
    found = json.loads(calibration.attrs["per_layer"] or "null")
    nus |= {found["shared"]} if found else set()
    fields = spec | {"tune": None, "chosen": points, "nu": sorted(nus)}
    title = str(spec.get("title") or Path(spec["checkpoint"]).stem).removeprefix("Calibration · ").partition(" · by ")[0]
    if per_layer:
        if found is None:
            raise RunError(
                "verification of the layers",
                found="a calibration without per_layer",
                expected="one with per_layer",
                remedy="Calibrate with --per-layer first.",
            )
        own = {name: nu for name, nu in found["groups"].items() if nu != found["shared"]}
        fields |= {
            "params": spec["params"] | {"nu_of": spec["params"].get("nu_of", {}) | own},
            "nu": [found["shared"]],
            "chosen": {"calibration_first": found["shared"]},
        }
        title, first = f"{title} (a ν for each layer)".strip(), found["shared"]
    return parse_spec(fields | {"title": f"{title}, verified at ν = {first}"[:200]})
