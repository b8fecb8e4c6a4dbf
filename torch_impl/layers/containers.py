"""Layers made of layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.random import keep_mask
from parity.torch_impl.layers.registry import Contextual, NodeLayer, build_layer, call, register


class Children(Contextual, NodeLayer):
    """The children of a node, in `layers`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.layers = nn.ModuleList(build_layer(child) for child in node.children)

    def chain(self, x: Tensor, context: Context) -> Tensor:
        """Children one after another."""
        for child in self.layers:
            x = call(child, x, context)
        return x

    def branches(self, x: Tensor, context: Context) -> list[Tensor]:
        """What each child makes of x."""
        return [call(child, x, context) for child in self.layers]


@register(spec.Sequential, spec.Repeat)
class Sequential(Children):
    """Children one after another."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.chain(x, context)


@register(spec.Residual)
class Residual(Children):
    """x + children(x), or x alone where stochastic depth drops the branch."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        y = self.chain(x, context)
        rate = self.node.spec.drop_rate
        if context.training and rate:
            ones = (1,) * len(self.node.input_shape)
            y = y * keep_mask(y, context, self.node.path, ones, rate)
        return x + y


@register(spec.Identity)
def identity(node: Node) -> nn.Module:
    del node
    return nn.Identity()


@register(spec.Add)
class Add(Children):
    """The sum of the branches, added from the first to the last."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        first, *others = self.branches(x, context)
        for other in others:
            first = first + other
        return first


@register(spec.Concatenate)
class Concatenate(Children):
    """The branches, joined along the last axis."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return torch.cat(self.branches(x, context), -1)
