"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.registry import Contextual, Function, NodeLayer, register


class Dense(Products, nn.Linear):
    """nn.Linear, whose product may be low."""

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x, self.weight.t(), self.bias)


@register(spec.Dense, kernel=("weight", (1, 0)), bias=("bias", (0,)))
def dense(node: Node) -> nn.Module:
    return Dense(node.input_shape[-1], node.spec.units, bias=node.spec.use_bias)


_FUNCTIONS = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "hard_swish": F.hardswish,
    "relu6": F.relu6,
    # Beyond the threshold it returns x, which at the default of 20 is 2e-9 off.
    "softplus": lambda x: F.softplus(x, threshold=40),
}


@register(spec.Activation)
def activation(node: Node) -> nn.Module:
    slope = node.spec.negative_slope
    if node.spec.function == "leaky_relu":
        return Function(lambda x: F.leaky_relu(x, slope))
    # StepTrace up here, since a test puts another in its place.
    return Function(F.gelu if node.spec.function == "gelu" else _FUNCTIONS[node.spec.function])


@register(spec.PReLU)
class PReLU(NodeLayer):
    """max(x, 0) + alpha min(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x) - self.alpha * F.relu(-x)


@register(spec.Flatten)
def flatten(node: Node) -> nn.Module:
    channels_first = node.spec.order == "chw"

    def apply(x: Tensor) -> Tensor:
        if channels_first and x.ndim > 2:
            x = x.movedim(-1, 1)
        return x.reshape(-1, *node.output_shape)

    return Function(apply)


@register(spec.Reshape)
def reshape(node: Node) -> nn.Module:
    return Function(lambda x: x.reshape(-1, *node.output_shape))


@register(spec.Permute)
def permute(node: Node) -> nn.Module:
    return Function(lambda x: x.permute(0, *node.spec.dims))


@register(spec.Slice)
def slice_(node: Node) -> nn.Module:
    return Function(lambda x: x[..., node.spec.start : node.spec.stop])


@register(spec.ActivityPenalty)
class ActivityPenalty(Contextual, NodeLayer):
    """The identity, which leaves a penalty with the context."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        absolute, squares = x.abs().sum(), x.square().sum()
        context.penalties.append(self.node.spec.l1 * absolute + self.node.spec.l2 * squares)
        return x
