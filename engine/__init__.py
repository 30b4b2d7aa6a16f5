"""Nuscope's engine: calibrated probabilistic forecasts from a frozen transformer, and their verification.

These names are the public contract. Each is imported when first used, so that a process which only looks at results
(the web process) never pays for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.backbones import open_checkpoint as open_checkpoint
    from engine.data import open_dataset as open_dataset
    from engine.data import open_labelled as open_labelled
    from engine.kernels import inspect_attention as inspect_attention
    from engine.kernels import stochastic_attention as stochastic_attention
    from engine.lexicon import CLIMAX_48 as CLIMAX_48
    from engine.lexicon import at_nu as at_nu
    from engine.lexicon import has_nu as has_nu
    from engine.lexicon import title_of as title_of
    from engine.registry import catalogue as catalogue
    from engine.runs.calibrate_model import calibrate_model as calibrate_model
    from engine.runs.calibration import calibration_spec as calibration_spec
    from engine.runs.calibration import verification_spec as verification_spec
    from engine.runs.calibration_rows import layers_gain as layers_gain
    from engine.runs.classify.demo import classify_demo_spec as classify_demo_spec
    from engine.runs.classify.entries import method_schema as method_schema
    from engine.runs.classify.spec import ClassifySpec as ClassifySpec
    from engine.runs.cost import calibration_estimate as calibration_estimate
    from engine.runs.cost import estimate as estimate
    from engine.runs.demo_time import demo_seconds as demo_seconds
    from engine.runs.demo_time import measure_demo as measure_demo
    from engine.runs.endings import brings as brings
    from engine.runs.endings import endings as endings
    from engine.runs.endings import every_ending as every_ending
    from engine.runs.endings import folders as folders
    from engine.runs.endings import leading as leading
    from engine.runs.jobs import cancel as cancel
    from engine.runs.jobs import dispatch as dispatch
    from engine.runs.jobs import progress as progress
    from engine.runs.jobs import remove as remove
    from engine.runs.jobs import result as result
    from engine.runs.jobs import resume as resume
    from engine.runs.jobs import run as run
    from engine.runs.jobs import runs as runs_list
    from engine.runs.jobs import submit as submit
    from engine.runs.picture import draw as draw
    from engine.runs.picture import export as export
    from engine.runs.preflight import preflight as preflight
    from engine.runs.score import score as score
    from engine.runs.spec import RunSpec as RunSpec
    from engine.runs.spec import demo_spec as demo_spec
    from engine.runs.spec import director_demo_spec as director_demo_spec
    from engine.runs.verification import open_fields as open_fields

__version__ = "0.1.0"

_WHERE = {
    "stochastic_attention": "engine.kernels",
    "inspect_attention": "engine.kernels",
    "open_checkpoint": "engine.backbones",
    "open_dataset": "engine.data",
    "open_labelled": "engine.data",
    "score": "engine.runs.score",
    "estimate": "engine.runs.cost",
    "calibration_estimate": "engine.runs.cost",
    "demo_seconds": "engine.runs.demo_time",
    "measure_demo": "engine.runs.demo_time",
    "brings": "engine.runs.endings",
    "endings": "engine.runs.endings",
    "folders": "engine.runs.endings",
    "every_ending": "engine.runs.endings",
    "leading": "engine.runs.endings",
    "submit": "engine.runs.jobs",
    "progress": "engine.runs.jobs",
    "result": "engine.runs.jobs",
    "cancel": "engine.runs.jobs",
    "resume": "engine.runs.jobs",
    "remove": "engine.runs.jobs",
    "run": "engine.runs.jobs",
    "runs_list": "engine.runs.jobs",
    "dispatch": "engine.runs.jobs",
    "CLIMAX_48": "engine.lexicon",
    "at_nu": "engine.lexicon",
    "has_nu": "engine.lexicon",
    "title_of": "engine.lexicon",
    "catalogue": "engine.registry",
    "RunSpec": "engine.runs.spec",
    "demo_spec": "engine.runs.spec",
    "director_demo_spec": "engine.runs.spec",
    "open_fields": "engine.runs.verification",
    "ClassifySpec": "engine.runs.classify.spec",
    "classify_demo_spec": "engine.runs.classify.demo",
    "method_schema": "engine.runs.classify.entries",
    "calibrate_model": "engine.runs.calibrate_model",
    "calibration_spec": "engine.runs.calibration",
    "verification_spec": "engine.runs.calibration",
    "layers_gain": "engine.runs.calibration_rows",
    "preflight": "engine.runs.preflight",
    "draw": "engine.runs.picture",
    "export": "engine.runs.picture",
}
_RENAMED = {"runs_list": "runs"}

__all__ = [
    "__version__",
    *_WHERE,
]


def __getattr__(name: str) -> Any:
    """The public names, imported on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), _RENAMED.get(name, name))


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
