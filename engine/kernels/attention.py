"""Stochastic attention of one call (arXiv 2604.19530): average the values of `nu` keys drawn from the softmax weights.

    pi = softmax(scale * q k^T + mask),   W ~ Multinomial(nu, pi),   out = W^T V / nu

One W serves all value channels; draws are independent per head, query, case, member and site. E[out] = pi^T V and
Cov[out] = V^T (diag pi - pi pi^T) V / nu, so nu -> infinity gives deterministic attention.
Domain: whole `nu` from 1 to 10^6. Masked keys and keys of zero weight are never drawn; a row with every key masked gives
zeros, as `torch.nn.functional.scaled_dot_product_attention` does. Weights, sampling and averaging are float32 whatever
the inputs' dtype, autocast or not. Gradients reach the values only: which keys are drawn has no derivative.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.kernels.multinomial import NU_MAX, Rows, draw_counts, draw_keys
from engine.kernels.noise import RowKeys
from engine.kernels.padding import pieces, spans

_GATHER_NU, _GATHER_KEYS = 64, 128  # measured: below, summing gathered rows beats counts @ V


def attention_weights(
    q: Tensor, k: Tensor, *, attn_mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Softmax weights `(B, H, Lq, Lk)` in float32; a row with every key masked is all zeros.

    Arguments as in `sample_attention`; heads of `k` are shared by consecutive heads of `q`.
    """
    q, k = q.float(), k.float()
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = _per_key_head(q * factor, k.shape[1]).matmul(k.transpose(-1, -2)).view(*q.shape[:-1], k.shape[-2])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if attn_mask is None:
        return scores.softmax(-1)
    hidden = attn_mask.logical_not() if attn_mask.dtype == torch.bool else None
    scores = scores + attn_mask.float() if hidden is None else scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1).masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)


def average_values(rows: Rows, v: Tensor, nu: int | None, keys: RowKeys | None, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
    """Average of `nu` drawn values, `(B, H, Lq, Dv)` float32, and W/nu `(B, H, Lq, Lk)` where `need_weights` asks for it.

    `nu` None takes the weights themselves (deterministic attention). `v` is `(B, Hk, Lk, Dv)`.
    """
    v, shape = v.float(), rows.weights.shape
    if nu is None or keys is None:
        return _per_key_head(rows.weights, v.shape[1]).matmul(v).view(*shape[:3], -1), rows.weights
    mean_weights = None
    if nu == 1 or (nu <= _GATHER_NU and shape[-1] >= _GATHER_KEYS):
        drawn = draw_keys(rows, nu, keys)
        first = torch.arange(0, v.shape[0] * v.shape[1] * shape[-1], shape[-1], device=v.device)
        first = first.repeat_interleave(shape[1] // v.shape[1] * shape[2])  # where a row's values begin in the flat table
        table = v.reshape(-1, v.shape[-1])
        flat = drawn + first[:, None]
        out = table.index_select(0, flat[:, 0]) if nu == 1 else F.embedding_bag(flat, table, mode="sum") / nu
        out = out.view(*shape[:3], -1)
        if need_weights:
            one = torch.full((), 1.0 / nu, device=v.device)
            mean_weights = torch.zeros(shape, device=v.device).flatten(0, 2).scatter_add_(-1, drawn, one.expand(drawn.shape)).view(shape)
    else:
        mean_weights = draw_counts(rows, nu, keys).div_(nu)
        out = _per_key_head(mean_weights, v.shape[1]).matmul(v).view(*shape[:3], -1)
    if not rows.drawable:  # no mass: zeros, as deterministic attention; NaN weights: NaN
        out = torch.where(rows.mass > 0, out, rows.mass)
        mean_weights = None if mean_weights is None else torch.where(rows.mass > 0, mean_weights, rows.mass)
    return out, mean_weights


def average_padded(
    rows: Rows, v: Tensor, nu: int | None, keys: RowKeys | None, masked: bool, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`average_values` where a case draws as it would without its padding; `masked` says whether there can be any."""
    found = spans(rows.weights, keys) if masked and nu is not None and keys is not None else None
    if found is None or keys is None:
        return average_values(rows, v, nu, keys, need_weights)
    out = torch.zeros(*rows.weights.shape[:3], v.shape[-1], device=v.device)
    used = torch.zeros_like(rows.weights) if need_weights else None
    for at, queries, (start, stop), own in pieces(rows.weights, keys, found):
        places = torch.tensor(at, device=v.device)
        part = Rows(rows.weights[places][:, :, queries, start:stop].contiguous())
        averaged, drawn = average_values(part, v[places][:, :, start:stop], nu, own, need_weights)
        out[places[:, None], :, queries] = averaged.transpose(1, 2)
        if used is not None and drawn is not None:
            used[places[:, None], :, queries, start:stop] = drawn.transpose(1, 2)
    return out, used


def average_members(
    rows: Rows, v: Tensor, nu: int | None, keys: Sequence[RowKeys], masked: bool, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`average_padded` once for each of `keys`, one after another along the batch: members that share softmax and CDF."""
    if len(keys) == 1:
        return average_padded(rows, v, nu, keys[0], masked, need_weights)
    outs, weights = zip(*(average_padded(rows, v, nu, k, masked, need_weights) for k in keys), strict=True)
    return torch.cat(outs), torch.cat(weights) if need_weights else None


def sample_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    nu: int | None,
    *,
    seed: int,
    member: int | Sequence[int] | Tensor = 0,
    case: Sequence[int] | Tensor | None = None,
    site: int = 0,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """One stochastic member of an attention call: `(B, H, Lq, Dv)`, in the inputs' dtype and SDPA's memory layout.

    Arguments: `q` `(B, H, Lq, D)`, `k` `(B, Hk, Lk, D)`, `v` `(B, Hk, Lk, Dv)`, dimensionless as the model has them (three
    dimensions are one head); Hk divides H if `enable_gqa`, else equals it. `nu`, draws a query, 1 to 10^6; None gives the
    deterministic result by the same path. `seed`, `member` (one, or one a case), `case` (ids, default 0…B-1; B may be a
    multiple of their number, consecutive rows sharing a case) and `site` key the draws: a row's result does not depend
    on the rest of the batch. `attn_mask` as in SDPA: bool marks keys to attend, float is added; `is_causal` is aligned
    to the top left; `scale` defaults to 1/sqrt(D).
    Raises ValueError for a `nu` out of range or shapes that do not fit.
    """
    q4, k4, v4, mask = four_dimensions(q, k, v, attn_mask, enable_gqa)
    keys = None if nu is None else RowKeys.of(len(q4), seed, member, case, site)
    with torch.autocast(q.device.type, enabled=False):
        rows = attention_rows(q4, k4, mask, is_causal, scale, check_nu(nu))
        return as_sdpa(average_padded(rows, v4, nu, keys, mask is not None)[0], q, k, v)


def sample_attention_members(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    nu: int,
    *,
    seed: int,
    members: Sequence[int],
    case: Sequence[int] | Tensor | None = None,
    site: int = 0,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Many members of one attention call from one softmax: `(len(members) * B, H, Lq, Dv)`, member by member.

    The same bits as `sample_attention` called once a member; for the first active site, whose inputs members share.
    """
    q4, k4, v4, mask = four_dimensions(q, k, v, attn_mask, enable_gqa)
    with torch.autocast(q.device.type, enabled=False):
        rows = attention_rows(q4, k4, mask, is_causal, scale, check_nu(nu))
        keys = [RowKeys.of(len(q4), seed, int(member), case, site) for member in members]
        return as_sdpa(average_members(rows, v4, nu, keys, mask is not None)[0], q, k, v)


def check_nu(nu: int | None) -> int | None:
    """`nu` itself where it is None or whole and within 1…10^6; ValueError otherwise."""
    if nu is not None and (int(nu) != nu or not 1 <= nu <= NU_MAX):
        raise ValueError(f"nu is {nu!r}; expected a whole number from 1 to {NU_MAX}")
    return nu


def as_sdpa(out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`out` `(rows, H, L, Dv)` as SDPA gives it for these inputs: dtype, number of dimensions, queries before heads in memory."""
    out = out.to(q.dtype)
    dimensions = max(q.dim(), k.dim(), v.dim())
    if dimensions < 4:
        return out.reshape(out.shape[0], *out.shape[-2:]) if dimensions == 3 else out.reshape(out.shape[-2:])
    out = out.transpose(1, 2).contiguous().transpose(1, 2)
    return out if dimensions == 4 else out.reshape(*_leading(q, k, v), *out.shape[-2:])


def _leading(*parts: Tensor) -> tuple[int, ...]:
    """Sizes of batch and heads, broadcast as torch does."""
    return tuple(torch.broadcast_shapes(*(x.shape[:-2] for x in parts)))


def attention_rows(q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None, nu: int | None) -> Rows:
    """The rows to draw from; with a `nu`, without a graph of their own, since which keys are drawn has no derivative."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and nu is None):
        return Rows(attention_weights(q, k, attn_mask=mask, is_causal=is_causal, scale=scale))


def _per_key_head(x: Tensor, key_heads: int) -> Tensor:
    """`(B, H, L, D)` as `(B, Hk, H/Hk * L, D)`: query heads that share a key head become rows of one product."""
    return x if x.shape[1] == key_heads else x.reshape(x.shape[0], key_heads, -1, x.shape[-1])


def rows_of(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Attention rows of a call: its batch, broadcast over query, key and value; 1 for a call without one."""
    return max(x.shape[0] if x.dim() == max(q.dim(), k.dim(), v.dim()) else 1 for x in (q, k, v)) if q.dim() > 2 else 1


def four_dimensions(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, enable_gqa: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Inputs as `(batch, heads, length, width)`; what SDPA accepts with fewer or more dimensions is reshaped.

    Batch and heads broadcast as in SDPA: one row of keys and values serves every row of queries, one key head every query head
    (which needs no copy: it is a group of all heads), and the other way round.
    """
    fits = q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]
    if not enable_gqa and fits:
        try:
            leading = _leading(q, k, v)
        except RuntimeError:
            fits = False
        else:
            if any(x.shape[:-2] != leading for x in (q, k, v)):
                q, k, v = (x.expand(*_kept(x, leading, q is x), *x.shape[-2:]) for x in (q, k, v))
                if k.shape[:-2] != v.shape[:-2]:
                    k, v = (x.expand(*leading, *x.shape[-2:]) for x in (k, v))
    if mask is not None and q.dim() != 4 and mask.dim() > 2:
        mask = mask.expand(*q.shape[:-1], k.shape[-2]).reshape(q.shape[0], -1, q.shape[-2], k.shape[-2])
    heads = [x.reshape(*(1,) * (4 - x.dim()), *x.shape) if x.dim() < 3 else x.reshape(x.shape[0], -1, *x.shape[-2:]) for x in (q, k, v)]
    q4, k4, v4 = heads
    if fits:
        fits = k4.shape[1] > 0 and q4.shape[1] % k4.shape[1] == 0 if enable_gqa else k4.shape[1] in (1, q4.shape[1])
    if not fits or len({len(x) for x in heads}) > 1 or k4.shape[:3] != v4.shape[:3]:
        found = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}, enable_gqa={enable_gqa}"
        raise ValueError(f"{found}; expected q (B, H, Lq, D), k (B, Hk, Lk, D), v (B, Hk, Lk, Dv)")
    return q4, k4, v4, mask


def _kept(x: Tensor, leading: tuple[int, ...], query: bool) -> tuple[int, ...]:
    """Batch and heads that `x` is expanded to; the single head of keys or values stays one."""
    single = not query and len(leading) == 2 and (x.dim() < 3 or x.shape[-3] == 1)
    return (*leading[:-1], 1) if single else leading
