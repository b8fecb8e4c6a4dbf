"""Dropout and its relatives."""

from __future__ import annotations

import math

from torch import Tensor

from parity.common.base import rng
from parity.common.execution.pass_context import Context
from parity.common.spec import layers as spec
from parity.common.spec.layers import Shape
from parity.common.spec.layers.random import threshold
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register
from parity.torch_impl.random import sample_words


def keep_mask(x: Tensor, context: Context, path: str, shape: Shape, rate: float) -> Tensor:
    """(batch, *shape): 1 / (1 - rate) where the layer at `path` keeps an element, else 0."""
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
