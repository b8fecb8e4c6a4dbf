"""Dropout and its relatives, by keyed random words on the device: the same bits as `parity.common.base.rng`."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.base import rng
from parity.common.base.rng import Key
from parity.common.execution.pass_context import Context
from parity.common.spec import layers as spec
from parity.common.spec.layers import Shape
from parity.common.spec.layers.random import threshold
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register

_LOW = 0xFFFFFFFF


def sample_words(key: Key, step: Any, sample_ids: Tensor, count: int) -> Tensor:
    """Random 32-bit words of each sample, as `parity.common.base.rng.sample_words`.

    Returns:
        (batch, count) int64 in [0, 2^32).
    """
    blocks = torch.arange(-(-count // 4), device=sample_ids.device)
    # In place, and in two more tensors: most of the time would go into memory fetched for each operation.
    words = torch.empty((4, len(sample_ids), len(blocks)), dtype=torch.int64, device=sample_ids.device)
    x0, x1, x2, x3 = words
    x0.copy_(blocks)
    x1.fill_(step)
    x2.copy_((sample_ids & _LOW)[:, None])
    x3.copy_(((sample_ids >> 32) & _LOW)[:, None])
    key_0, key_1 = key
    product_0, product_1 = torch.empty_like(x0), torch.empty_like(x0)
    # int64 wraps where uint64 would not, but the low and the high halves come out the same.
    for _ in range(10):
        torch.mul(x0, 0xD2511F53, out=product_0)
        torch.mul(x2, 0xCD9E8D57, out=product_1)
        for x, before, product, round_key in ((x0, x1, product_1, key_0), (x2, x3, product_0, key_1)):
            torch.bitwise_right_shift(product, 32, out=x)
            x.bitwise_and_(_LOW).bitwise_xor_(before).bitwise_xor_(round_key)
            torch.bitwise_and(product, _LOW, out=before)
        key_0 = (key_0 + 0x9E3779B9) & _LOW
        key_1 = (key_1 + 0xBB67AE85) & _LOW
    return words.movedim(0, -1).reshape(len(sample_ids), 4 * len(blocks))[:, :count]


def keep_mask(x: Tensor, context: Context, path: str, shape: Shape, rate: float) -> Tensor:
    """(batch, *shape): 1 / (1 - rate) where the layer at `path` keeps an element, else 0."""
    if context.seed is None:
        return F.dropout(x.new_ones(len(x), *shape), rate)
    key = rng.derive_key(context.seed, "dropout", path)
    words = sample_words(key, context.step, context.sample_ids, math.prod(shape))
    kept = (words >= threshold(rate)).to(x.dtype)
    return kept.reshape(-1, *shape) * (1 / (1 - rate))


@register(spec.Dropout)
class Dropout(Contextual, NodeLayer):
    """x times its mask, in training."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        rate = self.node.spec.rate
        if not context.training or rate == 0:
            return x
        shape = self.node.spec.mask_shape(self.node.input_shape)
        return x * keep_mask(x, context, self.node.path, shape, rate)
