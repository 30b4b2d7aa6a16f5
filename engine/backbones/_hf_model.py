"""A Hugging Face classifier from config and tensors: which classes are known, what a config may ask for, and what must match.

Nothing of the folder is run: the class is the library's own, its config is built from known fields alone, and its parameters
are counted without memory before any is made. `from_pretrained` does the loading, because keys were renamed between releases.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import CheckpointError
from engine.labelled import Kind

if TYPE_CHECKING:
    from torch import Tensor

KNOWN: dict[str, Kind] = {
    "ViTForImageClassification": "images",
    "BertForSequenceClassification": "text",
    "RobertaForSequenceClassification": "text",
    "ElectraForSequenceClassification": "text",
    "DistilBertForSequenceClassification": "text",
    "Qwen2ForSequenceClassification": "text",
    "LlamaForSequenceClassification": "text",
}
"""Classes that are opened, each one tested: a config of any class could ask the library for files from elsewhere."""

_CLASSES = 100_000
_LEFT_OUT = (
    "auto_map attn_implementation experts_implementation torch_dtype dtype num_labels label2id name_or_path transformers_version "
    "architectures model_type transformers_weights fusion_config chunk_size_feed_forward return_dict output_attentions "
    "output_hidden_states use_cache"
)


def architecture_of(config: Mapping[str, Any], what: str) -> str:
    """The class that the config names, a known one."""
    named = config.get("architectures")
    name = named[0] if isinstance(named, list) and len(named) == 1 else named
    if not isinstance(name, str) or name not in KNOWN:
        raise CheckpointError(
            what,
            found=f"architectures {name!r:.120} in config.json",
            expected=f"one of {', '.join(KNOWN)}",
            remedy="Bring a model of one of these; in Python, engine.stochastic_attention takes any torch.nn.Module.",
        )
    return name


def classes_of(config: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """Class names in order, from id2label; refuses regressions and models of several labels at once."""
    table, problem = config.get("id2label"), config.get("problem_type")
    names = [table.get(str(i)) for i in range(len(table))] if isinstance(table, dict) and len(table) <= _CLASSES else []
    if len(names) < 2 or not all(isinstance(n, str) for n in names) or len(set(names)) != len(names):
        raise CheckpointError(
            what,
            found=f"id2label with {len(table) if isinstance(table, dict) else 'no'} entries",
            expected="different names for the classes 0, 1, 2, …, at least two",
            remedy="Write the class names into id2label of config.json.",
        )
    if problem not in (None, "single_label_classification"):
        raise CheckpointError(
            what,
            found=f"problem_type {problem!r:.60}",
            expected="single_label_classification: one class a case",
            remedy="Bring a model with a softmax over classes.",
        )
    return tuple(str(n) for n in names)


def _library(what: str) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before the import, which reads it
    try:
        import transformers
    except ImportError as error:
        raise CheckpointError(
            what,
            found="the package transformers is not installed",
            expected="transformers, which holds this model's code",
            remedy="pip install transformers",
        ) from error
    return transformers


def config_of(config: Mapping[str, Any], keys: Any, what: str) -> tuple[Any, Any]:
    """The library's class and its config. `keys` of the tensors: no more layers than they have are believed."""
    name = architecture_of(config, what)
    cls: Any = getattr(_library(what), name)
    if "quantization_config" in config:
        raise CheckpointError(
            what,
            found="quantised weights (quantization_config)",
            expected="weights in float32, bfloat16 or float16",
            remedy="Save the model dequantised.",
        )
    own = cls.config_class
    if config.get("model_type") != own.model_type:
        raise CheckpointError(
            what,
            found=f"model_type {config.get('model_type')!r:.60} for {name}",
            expected=f"{own.model_type!r}",
            remedy="Bring the config.json that belongs to the weights.",
        )
    layers = {m[1] for key in keys if (m := re.search(r"\.layers?\.(\d+)\.", key))}
    for field in ("num_hidden_layers", own.attribute_map.get("num_hidden_layers", "num_hidden_layers")):
        if config.get(field, len(layers)) != len(layers):
            raise CheckpointError(
                what,
                found=f"{field} {config[field]!r:.40} in config.json, {len(layers)} layers among the tensors",
                expected="one number",
                remedy="Bring config.json and weights of one model.",
            )
    allowed = {*own().to_dict(), *own.attribute_map} - {*_LEFT_OUT.split()}
    fields = {k: v for k, v in config.items() if k in allowed and not k.startswith("_")}
    try:
        made = own(**fields)
    except Exception as error:  # the library checks each field in its own way; each failure is a config that cannot be used
        raise _unusable(what, error) from error
    made._attn_implementation = "sdpa"
    return cls, made


def _unusable(what: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        what,
        found=f"a config.json that the model cannot be built from ({type(error).__name__}: {str(error)[:160]})",
        expected="the model's own config.json",
        remedy="Copy or download it again.",
    )


def outline(cls: Any, config: Any, what: str) -> Any:
    """The model without memory."""
    import torch

    try:
        with torch.device("meta"):
            return cls(config)
    except Exception as error:  # sizes that do not fit each other fail somewhere inside the library
        raise _unusable(what, error) from error


def load(state: "Mapping[str, Tensor]", config: Mapping[str, Any], what: str) -> "tuple[Any, dict[str, Tensor], list[str]]":
    """The model in float32, frozen; which of its tensors the files had, by the library's present names and with the shape that was
    found; and keys that it has no place for. What is missing stays random: the caller compares before it uses the model.
    """
    import torch

    cls, made = config_of(config, state, what)
    asked = sum(p.numel() for p in outline(cls, made, what).parameters())
    held = sum(t.numel() for t in state.values())
    if asked > 2 * held + 10**6:  # short of that, the keys that are missing are named below
        raise CheckpointError(
            what,
            found=f"config.json asks for {asked} parameters, the files hold {held}",
            expected="one number",
            remedy="Bring config.json and weights of one model.",
        )
    log = _library(what).utils.logging
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)  # the report of keys is ours to make
    log.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            module, report = cls.from_pretrained(
                None,
                config=made,
                state_dict=dict(state),
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                dtype=torch.float32,
            )
    except Exception as error:  # as above
        raise _unusable(what, error) from error
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()
    own = module.state_dict()
    differ = {entry[0]: tuple(entry[1]) for entry in report["mismatched_keys"]}
    absent = {*report["missing_keys"]}
    seen = {k: v if k not in differ else torch.empty(differ[k], device="meta") for k, v in own.items() if k not in absent}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()  # its own memory, whatever becomes of the files
    return module.eval().requires_grad_(False), seen, sorted(report["unexpected_keys"])
