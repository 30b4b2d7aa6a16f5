"""Draws of a padded case: those that the case would have without its padding.

Draws come from a case's stream head by head and query by query, so that more queries move them, and the law's regime goes by the number
of keys. Where the keys outside one span carry no weight (padding before or after a text), the queries and keys of the span are therefore
drawn as if there were no others, and the queries outside it, which nobody reads, from a stream of their own. A case without padding
draws as it always did. Cases that own several rows (windows) are drawn whole.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from engine.kernels.multinomial import Rows, draw_counts
from engine.kernels.noise import RowKeys

_OUTSIDE = 1  # stream of the queries outside a span

Span = tuple[int, int]


def spans(weights: Tensor, keys: RowKeys) -> list[Span] | None:
    """First and last + 1 of the keys that carry weight, for each case of `(case, head, query, key)`; None where no case is padded."""
    if len(keys) != len(weights) or min(weights.shape) == 0 or weights.shape[-1] == 1:
        return None
    last = weights[:, :, -1] > 0
    if bool(last[..., 0].any(1).all()) and bool(last[..., -1].any(1).all()):  # the last query sees both ends
        return None
    length, found = weights.shape[-1], []
    seen = (weights > 0).flatten(1, 2).any(1)
    for case, (all_queries, last_query) in enumerate(zip(seen, last.any(1), strict=True)):
        span = _ends(all_queries)
        if span == (0, length) and weights.shape[-2] == length:  # padded queries may look anywhere; those of the span may not
            inner = _ends(last_query)
            body = weights[case, :, inner[0] : inner[1]]
            outside = bool(body[..., : inner[0]].any()) or bool(body[..., inner[1] :].any())
            span = span if outside else inner
        found.append(span if span[1] > span[0] else (0, length))
    return None if all(span == (0, length) for span in found) else found


def _ends(seen: Tensor) -> Span:
    at = seen.nonzero()[:, 0].tolist()
    return (at[0], at[-1] + 1) if at else (0, 0)


def pieces(weights: Tensor, keys: RowKeys, found: list[Span]) -> Iterator[tuple[list[int], Tensor, Span, RowKeys]]:
    """Cases of one span each time: their places, the queries that are drawn together, the span of keys, and the keys of the noise."""
    queries, length = weights.shape[-2:]
    every = torch.arange(queries, device=weights.device)
    for span in sorted(set(found)):
        at = [i for i, each in enumerate(found) if each == span]
        own = replace(keys, members=tuple(keys.members[i] for i in at), cases=tuple(keys.cases[i] for i in at))
        inside = (every >= span[0]) & (every < span[1]) if queries == length else torch.ones_like(every, dtype=torch.bool)
        yield at, every[inside], span, own
        if not bool(inside.all()):
            yield at, every[~inside], (0, length), replace(own, stream=_OUTSIDE)


def padded_counts(rows: Rows, nu: int, keys: RowKeys) -> Tensor:
    """`draw_counts`, where padding moves no draw."""
    weights = rows.weights
    found = spans(weights, keys)
    if found is None:
        return draw_counts(rows, nu, keys)
    counts = torch.zeros_like(weights)
    for at, queries, (start, stop), own in pieces(weights, keys, found):
        places = torch.tensor(at, device=weights.device)
        part = Rows(weights[places][:, :, queries, start:stop].contiguous())
        counts[places[:, None], :, queries, start:stop] = draw_counts(part, nu, own).transpose(1, 2)
    return counts
