"""Convolutions over HWC images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec
from torch_impl.layers.registry import register


class Conv2D(nn.Conv2d):
    """nn.Conv2d on NHWC, with TensorFlow's padding where it is not symmetric."""

    def __init__(self, node: Node) -> None:
        layer = node.spec
        before_after = [layer.same_padding(side) for side in node.input_shape[:2]]
        (top, bottom), (left, right) = before_after
        symmetric = top == bottom and left == right
        super().__init__(
            node.input_shape[-1],
            layer.filters,
            layer.kernel_size,
            layer.strides,
            padding=(top, left) if symmetric else 0,
            bias=layer.use_bias,
        )
        self.extra = None if symmetric else (left, right, top, bottom)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 3, 1, 2)
        if self.extra is not None:
            x = F.pad(x, self.extra)
        return super().forward(x).permute(0, 2, 3, 1)


@register(spec.Conv2D, kernel=("weight", (3, 2, 0, 1)), bias=("bias", (0,)))
def conv2d(node: Node) -> nn.Module:
    return Conv2D(node)
