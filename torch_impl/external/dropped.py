"""The functions of torch that drop, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Function -> whether it drops whole channels. Each takes (input, p, training), functional ones in place, too.
DROPPING: dict[Callable[..., Any], bool] = {
    F.dropout: False,
    torch.dropout: False,
    torch.dropout_: False,
    F.dropout1d: True,
    F.dropout2d: True,
    F.dropout3d: True,
    torch.feature_dropout: True,
    torch.feature_dropout_: True,
}
_NAMES = ("input", "p", "training", "inplace")


def arguments(func: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Tensor, float, bool, bool]:
    """Of a call in `DROPPING`: input, share, whether it drops, whether in place."""
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    inplace = bool(given.get("inplace", func in (torch.dropout_, torch.feature_dropout_)))
    active = bool(given.get("training", given.get("train", True)))
    return given["input"], float(given.get("p", 0.5)), active, inplace


def attended(
    weights: Callable[[Tensor, float], Tensor],
    dropping: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **others: Any,
) -> Tensor:
    """`scaled_dot_product_attention` (..., tokens, width) as one writes it out; torch's own of grouped heads.

    Args:
        weights: makes the weights of scores (..., queries, keys) and of a rate of dropout.
        dropping: whether calls that drop are written out, or those that do not; the others are torch's own.
        query, key, value, attn_mask, dropout_p, is_causal, scale, others: as torch's function has them.
    """
    if bool(dropout_p) != dropping or others.get("enable_gqa"):
        return _ATTENTION(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **others)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return weights(scores, dropout_p) @ value


# Its name is another function's while attention layers are called.
_ATTENTION = F.scaled_dot_product_attention
