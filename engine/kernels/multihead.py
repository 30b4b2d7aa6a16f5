"""`torch.nn.functional.multi_head_attention_forward` anew, with its attention left to a function that is handed in.

Tier T2: re-entering torch's own code would hide the attention in a C++ fast path or, with `need_weights=True`, in a
product of softmax and values. Shapes, masks and weights returned follow torch's documentation; its masks say *blocked*.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], tuple[Tensor, Tensor | None]]


def multi_head_attention(
    attend: Attend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention, `(L, N, E)` or `(L, E)`; `attend(q, k, v, additive mask, need_weights)` on `(N, H, L, D)`.

    Returns the output and, where `need_weights` asks for them, the weights that were used, `(N, L, S)` averaged over
    heads or `(N, H, L, S)`: for a stochastic call these are W/nu, so that output = weights @ values (this project's
    choice; the paper does not say). Dropout is off whatever `dropout_p`. `is_causal` is a hint; the mask decides.
    """
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch = query.shape[:2]
    if use_separate_proj_weight:
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    else:
        weights = in_proj_weight.chunk(3) if in_proj_weight is not None else (None,) * 3
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None,) * 3
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if bias_k is not None and bias_v is not None:
        k, v = torch.cat([k, bias_k.expand(1, batch, -1)]), torch.cat([v, bias_v.expand(1, batch, -1)])

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)

    q = heads(q)
    k = heads(k) if static_k is None else static_k.unflatten(0, (batch, num_heads))
    v = heads(v) if static_v is None else static_v.unflatten(0, (batch, num_heads))
    if add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    mask = _merged_mask(attn_mask, key_padding_mask, batch, num_heads, k.shape[-2], q.dtype)
    out, used = attend(q, k, v, mask, need_weights)
    out = F.linear(out.permute(2, 0, 1, 3).reshape(length, len(out), -1), out_proj_weight, out_proj_bias)
    if not need_weights or used is None:
        return (out if batched else out.squeeze(1)), None
    used = used.to(query.dtype)
    used = used.mean(1) if average_attn_weights else used
    return (out, used) if batched else (out.squeeze(1), used.squeeze(0))


def _merged_mask(attn_mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, keys: int, dtype: torch.dtype) -> Tensor | None:
    """Both masks as one additive mask that broadcasts to `(N, H, L, S)`; keys that were appended stay visible."""
    merged = None
    if attn_mask is not None:
        merged = _additive(attn_mask, dtype)
        merged = merged.unflatten(0, (batch, heads)) if merged.dim() == 3 and len(merged) != 1 else merged
        merged = F.pad(merged, (0, keys - merged.shape[-1]))
    if padding is not None:
        blocked = _additive(padding, dtype)[:, None, None]
        blocked = F.pad(blocked, (0, keys - blocked.shape[-1]))
        merged = blocked if merged is None else merged + blocked
    return merged


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
