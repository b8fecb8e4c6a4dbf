"""Keyed random words on the device: the same bits as `common.rng`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from common.rng import Key

_LOW = 0xFFFFFFFF


def sample_words(key: Key, step: Any, sample_ids: Tensor, count: int) -> Tensor:
    """Random 32-bit words of each sample, as `common.rng.sample_words`.

    Returns:
        (batch, count) int64 in [0, 2^32).
    """
    blocks = torch.arange(-(-count // 4), device=sample_ids.device)
    shape = (len(sample_ids), len(blocks))
    x0 = blocks.expand(shape)
    x1 = torch.zeros_like(x0) + step
    x2 = (sample_ids & _LOW)[:, None].expand(shape)
    x3 = ((sample_ids >> 32) & _LOW)[:, None].expand(shape)
    key_0, key_1 = key
    # int64 wraps where uint64 would not, but the low and the high halves come out the same.
    for _ in range(10):
        product_0 = x0 * 0xD2511F53
        product_1 = x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (
            ((product_1 >> 32) & _LOW) ^ x1 ^ key_0,
            product_1 & _LOW,
            ((product_0 >> 32) & _LOW) ^ x3 ^ key_1,
            product_0 & _LOW,
        )
        key_0 = (key_0 + 0x9E3779B9) & _LOW
        key_1 = (key_1 + 0xBB67AE85) & _LOW
    return torch.stack([x0, x1, x2, x3], -1).reshape(len(sample_ids), 4 * len(blocks))[:, :count]
