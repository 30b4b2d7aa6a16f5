"""The image demo: Fashion-MNIST, a small vision transformer, and the states that methods learned for it, from files under `assets`."""

from typing import Any

from engine.runs.classify.entries import file_name, given_params
from engine.runs.classify.spec import ClassifySpec
from engine.runs.spec import parse_spec
from engine.settings import DEMO

FASHION = DEMO / "fashion"
ENTRIES = (
    "deterministic", "temperature_scaling", "stochastic_attention", "mc_dropout", "deep_ensemble", "kep_svgp", "sgpa", "director",
    "director:no_noise", "director:constant_noise", "director:no_matching",
)  # fmt: skip
CASES = 600
"""Examples of each set: with all 3,000 the sampled methods take longer than anybody waits. `--max-cases 3000` takes them all."""


def classify_demo_spec(**changes: Any) -> ClassifySpec:
    """The image demo, changed: every method, with the states that are shipped; read like any upload.

    An entry that is given parameters is learned anew: the shipped state was learned with others.
    """
    fields: dict[str, Any] = {
        "task": "classification",
        "checkpoint": FASHION / "vit.safetensors",
        "data": (FASHION / "verify.npz",),
        "fit": (FASHION / "fit.npz",),
        "calibrate": (FASHION / "calibrate.npz",),
        "outside": {"handwritten digits": FASHION / "outside.npz"},
        "entries": ENTRIES,
        "nu": (2, 4, 8, 32),
        "max_cases": CASES,
        "title": "Demo: Fashion-MNIST, a small vision transformer",
    }
    spec = parse_spec(fields | changes | {"task": "classification"})
    if "states" in changes:
        return spec
    wanted = {e.state_name for e in spec.parsed if not given_params(e, spec.params)}
    states = {name: path for name in sorted(wanted) if (path := FASHION / "states" / f"{file_name(name)}.safetensors").exists()}
    return spec.model_copy(update={"states": states})
