"""Convolutions over HWC images."""

from __future__ import annotations

import keras

from common.spec import Node
from common.spec import layers as spec
from tf_impl.layers.registry import EmptySafe, register


class Conv2D(EmptySafe, keras.layers.Conv2D):
    """keras.layers.Conv2D that takes empty batches."""


@register(spec.Conv2D)
def conv2d(node: Node) -> keras.layers.Layer:
    layer = node.spec
    return Conv2D(
        layer.filters, layer.kernel_size, layer.strides, padding=layer.padding, use_bias=layer.use_bias
    )
