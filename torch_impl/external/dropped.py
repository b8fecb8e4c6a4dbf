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


def attention_scores(
    query: Tensor, key: Tensor, attn_mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """What `scaled_dot_product_attention` takes the softmax of, (..., queries, keys), of its own arguments (..., tokens, width)."""
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf)
    return scores + attn_mask
