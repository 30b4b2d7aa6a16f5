"""Can a model's attention be reached, and is it the same attention?  Runs it a few times and reports; changes nothing.

Replay: with `nu` None every intercepted call is recomputed deterministically by the sampler's own path; the error against the
untouched model tells whether masks, scales and layouts are understood (float32 about 1e-6; half precision up to 2 %).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode

from engine.errors import EngineError
from engine.kernels.intercept import stochastic_attention
from engine.kernels.sites import InterceptionReport, Site, batch_axis, cases_of
from engine.kernels.unreachable import Unreachable, find_unreachable

_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4}  # rounding is 1e-6; a wrong mask or scale is above 1e-2
_HALF_TOLERANCE = 0.02
_MIXED = 0.05  # rounding in half precision is below 0.02; a case that looks at others differs by far more
_PARTLY = (
    "{hits} attention call(s) are reached and not all: {unreached}. What is not reached would stay deterministic; write it with torch's "
    "scaled_dot_product_attention, or accept it (--partial on the command line, partial=True in Python)"
)


@dataclass(frozen=True)
class AttentionReport:
    """What `inspect_attention` found.

    `sites`, the attention calls of one forward with the shapes of query, key and value, `hits` of them; `replay_error`, largest
    difference of the replay over the largest output (NaN where it could not run); `loose`, modules with a softmax that was not sampled:
    `unreached` says what is attention, or may be, and stays deterministic, `no_attention` what is none; `stochastic`, whether two
    plain passes in evaluation mode differ, `dropouts`, the places that drop there; `unreachable`, code known not to be
    reached; `batch_order_ok`, whether permuting cases permutes the stochastic results (None: not checkable; False: results
    depend on how cases are batched); `refusal`, why the model cannot be made stochastic, or None; `partly`, whether it is only because
    part of its attention is not reached, which `stochastic_attention(…, partial=True)` accepts.
    """

    sites: tuple[Site, ...]
    hits: int
    replay_error: float
    loose: tuple[str, ...]
    stochastic: bool
    dropouts: tuple[str, ...]
    unreached: tuple[str, ...]
    unreachable: tuple[str, ...]
    batch_order_ok: bool | None
    refusal: str | None
    no_attention: tuple[str, ...] = ()
    partly: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def inspect_attention(model: nn.Module, *example: Any, **kwargs: Any) -> AttentionReport:
    """Report on the attention of `model`, called as `model(*example, **kwargs)` with a small example.

    Refuses, in the report, a model with no reachable attention, one whose replay differs from the model itself, and
    one built on attention that is known by name not to be reachable. Errors of the model's own forward pass through.
    """
    known = find_unreachable(model)
    with torch.no_grad():
        plain = _plain_pass(model, example, kwargs, 0)
        stochastic = _difference(plain, _plain_pass(model, example, kwargs, 1)) > 0
        met, error, fault, autocast = _replay(model, example, kwargs, plain)
        order = _batch_order(model, example, kwargs) if met is not None and met.hits and fault is None else None
    sites = met.sites if met else ()
    dtype = next((t.dtype for t in _tensors(plain) if t.is_floating_point()), torch.float32)
    tolerance = _TOLERANCE.get(dtype, _HALF_TOLERANCE)
    reduced = autocast or any(p.dtype in (torch.float16, torch.bfloat16) for p in model.parameters())
    tolerance = _HALF_TOLERANCE if reduced else tolerance
    if fault is None and sites and not stochastic and not error <= tolerance:
        fault = f"the replay differs from the model by {error:.2g} of its largest output; expected at most {tolerance:g}"
    unreached = met.unreached if met else ()
    if fault is None and met is not None and met.hits and not stochastic:
        with torch.no_grad():
            fault = _mixed_cases(model, example, kwargs, plain)
    whole = fault or _refusal(model, len(sites), known, met)
    part = None if whole or not unreached else _PARTLY.format(hits=len(sites), unreached="; ".join(unreached[:6]))
    return AttentionReport(
        sites=sites,
        hits=len(sites),
        replay_error=error,
        loose=met.loose if met else (),
        stochastic=stochastic,
        dropouts=met.dropouts if met else (),
        unreachable=tuple(item.text for item in known),
        batch_order_ok=order,
        refusal=whole or part,
        unreached=unreached,
        no_attention=met.no_attention if met else (),
        partly=part is not None,
    )


def _refusal(model: nn.Module, hits: int, known: list[Unreachable], met: InterceptionReport | None) -> str | None:
    essential = [item.text for item in known if item.replaces_attention or not hits]
    if essential:
        return "; ".join(essential)
    if hits:
        return None
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return "the model is TorchScript, whose calls cannot be intercepted; bring it as a torch.export archive"
    if met is not None and (met.loose or met.unreached):
        return f"no softmax met values in a product that is attention: {'; '.join((met.unreached + met.no_attention)[:6])}"
    return f"no attention call in the forward of {type(model).__name__}: stochastic attention needs softmax attention"


def _plain_pass(model: nn.Module, example: tuple, kwargs: dict, seed: int) -> Any:
    """The untouched model in evaluation mode; flags and the CPU generator are put back.

    Run under a mode that does nothing, so that torch's own encoder does not zero padded places in its C++ fast path.
    """
    flags, state = [(m, m.training) for m in model.modules()], torch.get_rng_state()
    try:
        for module, _ in flags:
            module.training = False
        torch.default_generator.manual_seed(seed)
        with BaseTorchFunctionMode():
            return model(*example, **kwargs)
    finally:
        torch.set_rng_state(state)
        for module, flag in flags:
            module.training = flag


def _replay(model: nn.Module, example: tuple, kwargs: dict, plain: Any) -> tuple[InterceptionReport | None, float, str | None, bool]:
    """Report and error of a deterministic replay; a refusal's text where the interception itself refuses; whether autocast was on."""
    seen: InterceptionReport | None = None
    handle = None
    try:
        with stochastic_attention(model, None) as handle:
            again = model(*example, **kwargs)
            seen = handle.report
    except EngineError as refusal:
        if seen is None:  # the forward itself was refused
            return (handle.report if handle else None), float("nan"), str(refusal), False
        return handle.report if handle else seen, float("nan"), None, False  # no attention was met, which the caller words
    return handle.report, _difference(plain, again), None, handle.reduced


def _mixed_cases(model: nn.Module, example: tuple, kwargs: dict, plain: Any) -> str | None:
    """A refusal where a case's result depends on the other cases of its batch: attention over cases has no rows that are one case's."""
    axis = batch_axis(model)
    batch = cases_of([*example, *kwargs.values()], axis, isinstance(model, nn.MultiheadAttention))
    if batch is None or batch < 2:
        return None

    def alone(x: Tensor) -> Tensor:
        along = _axis_of(x, batch, axis)
        return x if along is None else x.narrow(along, 0, 1)

    try:
        single = _plain_pass(model, _mapped(example, alone), _mapped(kwargs, alone), 0)
        pairs = [(x, y) for x, y in zip(_tensors(plain), _tensors(single), strict=True) if x.dim() > 0 and _axis_of(x, batch, axis) == 0]
        worst = max((_difference(x[:1], y) for x, y in pairs if y.shape == x[:1].shape), default=0.0)
    except (RuntimeError, ValueError, IndexError, EngineError):  # an example that cannot be split says nothing
        return None
    if worst <= _MIXED:
        return None
    return (
        f"the result of a case differs by {worst:.2g} of its size when it is alone: the model attends across cases (as grouped "
        "series do), so that no draw belongs to one of them"
    )


def _batch_order(model: nn.Module, example: tuple, kwargs: dict) -> bool | None:
    """Whether cases in reverse order give the results in reverse order: attention rows of a case then lie together."""
    axis = batch_axis(model)
    batch = cases_of([*example, *kwargs.values()], axis, isinstance(model, nn.MultiheadAttention))
    if batch is None:
        return None
    doubled = 2 if batch == 1 else 1
    count = batch * doubled
    forward, backward = list(range(count)), list(range(count))[::-1]

    def arranged(order: list[int]) -> Callable[[Tensor], Tensor]:
        def arrange(x: Tensor) -> Tensor:
            along = _axis_of(x, batch, axis)
            if along is None:
                return x
            return x.repeat_interleave(doubled, along).index_select(along, torch.tensor(order, device=x.device))

        return arrange

    try:
        outs = []
        for order in (forward, backward):
            arrange = arranged(order)
            with stochastic_attention(model, 2, cases=order, partial=True):
                outs.append(model(*_mapped(example, arrange), **_mapped(kwargs, arrange)))
    except (RuntimeError, ValueError, EngineError):  # an example whose batch cannot be doubled says nothing about the order
        return None
    restored = [t if (along := _axis_of(t, count, axis)) is None else t.flip(along) for t in _tensors(outs[1])]
    return _difference(outs[0], restored) < 1e-2  # rounding may move a rare draw; a wrong order moves all of them


def _axis_of(x: Tensor, count: int, axis: int) -> int | None:
    """Axis that counts cases: the model's own, or 0 (torch's sequence-first modules have masks and weights batch-first)."""
    return next((along for along in (axis, 0) if x.dim() > along and x.shape[along] == count), None)


def _mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _mapped(inner, function) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(inner, function) for inner in value)
    return value


def _tensors(value: Any) -> list[Tensor]:
    """Every tensor of an output, in order; looks into sequences, dicts and objects with fields."""
    if isinstance(value, Tensor):
        return [value]
    fields = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    inner = value if isinstance(value, list | tuple) else fields.values()
    return [tensor for item in inner for tensor in _tensors(item)]


def _difference(a: Any, b: Any) -> float:
    """Largest difference of two outputs over the largest value of the first; NaN where a value of one alone is NaN."""
    worst, size = 0.0, 0.0
    for x, y in zip(_tensors(a), _tensors(b), strict=True):
        x, y = x.double(), y.double()
        same = (x == y) | (x.isnan() & y.isnan())
        gap = (x - y).abs().masked_fill(same, 0.0)
        worst = max(worst, float(gap.max())) if x.numel() and not gap.isnan().any() else worst if not x.numel() else float("nan")
        finite = x[x.isfinite()]
        size = max(size, float(finite.abs().max())) if finite.numel() else size
    return worst / size if size else worst
