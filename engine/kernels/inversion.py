"""Inverting cumulative weights at many points, in pieces that fit a core's cache and run on several threads.

`torch.searchsorted` searches point by point and mispredicts nearly every step; the same bisection done for all points of a
piece together (gather, compare, add) takes a little over half the time, and takes rows with different numbers of points.
The answers are whole numbers and equal `searchsorted`'s, so pieces and threads cannot change a result.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

PIECE = 2**14  # points or weights handled at a time; below the size from which torch would start threads of its own


def each(work: Callable[[int, int], None], total: int, step: int) -> None:
    """Call `work(start, stop)` for pieces of `range(total)`, on as many threads as torch has; pieces must not overlap."""
    pieces = [(start, min(start + step, total)) for start in range(0, total, step)]
    threads, inference = min(torch.get_num_threads(), len(pieces)), torch.is_inference_mode_enabled()
    if threads < 2:
        _in_turn(work, pieces, inference)
        return
    # one share a thread: handing pieces over one by one costs as much as they do; the caller's thread takes one too
    others = [_pool(threads - 1).submit(_in_turn, work, pieces[i::threads], inference) for i in range(1, threads)]
    _in_turn(work, pieces[0::threads], inference)
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: starting one costs more than a share of a small call. Pieces never wait for pieces: no deadlock."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nuscope-pieces")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads


def _in_turn(work: Callable[[int, int], None], pieces: Iterable[tuple[int, int]], inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():  # both are a thread's own; tensors of inference mode need it to be on
        for start, stop in pieces:
            work(start, stop)


def invert(cdf: Tensor, u: Tensor, row: Tensor | None = None) -> Tensor:
    """Keys that uniform draws `u` fall on, in [0, keys), int64, shaped as `u`.

    `cdf` is `(rows, keys)`, float32 or integer; `u` is `(rows, width)`, or `(points,)` with each point's `row`, in order. The
    key is the first whose cumulative weight exceeds min(u * total, the number below total): never one of zero weight, nor
    one after the last with mass. In a row without mass the answer is some key of that row.
    """
    last = cdf[:, -1]
    below = torch.nextafter(last, torch.zeros_like(last)) if cdf.is_floating_point() else last - 1
    if row is None and (cdf.device.type != "cpu" or u.numel() < 4 * PIECE):
        goal = _goal(u, last[:, None], below[:, None])
        return torch.searchsorted(cdf, goal, right=True).clamp_(max=cdf.shape[-1] - 1)
    out = torch.empty(u.shape, dtype=torch.int64, device=cdf.device)
    points, found, width = u.reshape(-1), out.view(-1), u.shape[-1]

    def piece(start: int, stop: int) -> None:
        at = torch.arange(start, stop, device=cdf.device).div_(width, rounding_mode="floor") if row is None else row[start:stop]
        low, high = int(at[0]), int(at[-1]) + 1
        at = (at - low).int()
        goal = _goal(points[start:stop], last[low:high].index_select(0, at), below[low:high].index_select(0, at))
        found[start:stop] = _bisect(cdf[low:high], at, goal)

    each(piece, len(points), PIECE if cdf.device.type == "cpu" else max(1, len(points)))
    return out


def _goal(u: Tensor, last: Tensor, below: Tensor) -> Tensor:
    return torch.minimum(u * last if last.is_floating_point() else (u.double() * last).long(), below)


def _bisect(cdf: Tensor, row: Tensor, goal: Tensor) -> Tensor:
    """First key of each point's row whose cumulative weight exceeds its goal; int32, as `row` is."""
    flat, first, left = cdf.reshape(-1), row * cdf.shape[-1], cdf.shape[-1]
    place = first.clone()
    while left > 1:  # the answer lies in place … place + left - 1
        half = left // 2
        passed = flat.index_select(0, place + (half - 1)).le_(goal)
        place.add_(passed.to(place.dtype), alpha=half)
        left -= half
    return place.sub_(first)
