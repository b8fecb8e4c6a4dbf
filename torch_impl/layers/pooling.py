"""Pooling, resizing, and images as tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec
from torch_impl.layers.registry import Function, register


@register(spec.MaxPool2D)
def max_pool2d(node: Node) -> nn.Module:
    size = node.spec.size
    return Function(lambda x: F.max_pool2d(x.permute(0, 3, 1, 2), size).permute(0, 2, 3, 1))


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> nn.Module:
    return Function(lambda x: x.mean(tuple(range(1, x.ndim - 1))))


@register(spec.Patchify)
def patchify(node: Node) -> nn.Module:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: Tensor) -> Tensor:
        x = x.reshape(-1, height // size, size, width // size, size, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, *node.output_shape)

    return Function(apply)
