"""The attention of a model in the document of `inspect`, and in words: what is taken for attention, what is not, and what is missed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.kernels.inspect import AttentionReport

SHOWN = 6
"""Attention calls that the text lists one by one; `--json` has them all."""


def put_attention(report: "AttentionReport", document: dict[str, Any], partial: bool, prefix: str = "") -> None:
    """Set `sites`, `replay_error`, `attention` and `refusal`; `partial` accepts a model whose attention is reached in part.

    `prefix` is taken off the modules' names. `attention.calls` has for each site its module, tier, the shapes of query, key and value,
    and for a softmax written by hand why it is taken for attention.
    """
    document["sites"] = [site.module.removeprefix(prefix) for site in report.sites]
    document["replay_error"] = report.replay_error
    document["attention"] = {n: v for n, v in report.as_dict().items() if n not in ("sites", "replay_error", "refusal")}
    document["attention"]["calls"] = [
        {
            "module": site.module.removeprefix(prefix),
            "tier": site.tier,
            "query": list(site.query),
            "key": list(site.key),
            "value": list(site.value),
            "taken_for": site.taken_for,
        }
        for site in report.sites
    ]
    document["attention"]["partial_accepted"] = partial and report.partly
    document["refusal"] = None if partial and report.partly else report.refusal


def attention_lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    attention = found.get("attention")
    if attention is None:
        return []
    lines = []
    if found["sites"] and found["replay_error"] is not None:
        lines.append(f"attention: {len(found['sites'])} calls reached, replay error {found['replay_error']:.1e}")
    calls = attention.get("calls", [])
    for call in calls[:SHOWN]:
        shapes = " × ".join(str(tuple(call[name])) for name in ("query", "key", "value"))
        why = f" ({call['taken_for']})" if call["taken_for"] else ""
        lines.append(f"  {call['module'] or 'the model'}: query × key × value {shapes}{why}")
    if len(calls) > SHOWN:
        lines.append(f"  … and {len(calls) - SHOWN} more")
    lines += [f"not reached: {text}" for text in attention.get("unreached", ())]
    lines += [f"no attention: {text}" for text in attention.get("no_attention", ())]
    if attention.get("batch_order_ok") is False:
        lines.append("warning: results depend on how cases are batched: the model folds something else into the batch before its cases")
    if attention.get("partial_accepted"):
        lines.append("accepted: what is not reached stays deterministic")
    return lines
