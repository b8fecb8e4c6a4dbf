"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec
from torch_impl.layers.registry import Function, register


@register(spec.Dense, kernel=("weight", (1, 0)), bias=("bias", (0,)))
def dense(node: Node) -> nn.Module:
    return nn.Linear(node.input_shape[-1], node.spec.units, bias=node.spec.use_bias)


@register(spec.Activation)
def activation(node: Node) -> nn.Module:
    return Function({"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh}[node.spec.function])


@register(spec.Flatten)
def flatten(node: Node) -> nn.Module:
    channels_first = node.spec.order == "chw"

    def apply(x: Tensor) -> Tensor:
        if channels_first and x.ndim > 2:
            x = x.movedim(-1, 1)
        return x.reshape(-1, *node.output_shape)

    return Function(apply)
