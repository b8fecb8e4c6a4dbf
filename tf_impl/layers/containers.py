"""Layers made of layers."""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.random import keep_mask
from parity.tf_impl.layers.registry import Contextual, Function, NodeLayer, build_layer, call, register


class Children(Contextual, NodeLayer):
    """The children of a node, in `children`."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.children = [build_layer(child) for child in node.children]

    def chain(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        """Children one after another."""
        for child in self.children:
            x = call(child, x, context)
        return x

    def branches(self, x: tf.Tensor, context: Context) -> list[tf.Tensor]:
        """What each child makes of x."""
        return [call(child, x, context) for child in self.children]


@register(spec.Sequential, spec.Repeat)
class Sequential(Children):
    """Children one after another."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        return self.chain(x, context)


@register(spec.Residual)
class Residual(Children):
    """x + children(x), or x alone where stochastic depth drops the branch."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        y = self.chain(x, context)
        rate = self.node.spec.drop_rate
        if context.training and rate:
            ones = (1,) * len(self.node.input_shape)
            y = y * keep_mask(y, context, self.node.path, ones, rate)
        return x + y


@register(spec.Identity)
def identity(node: Node) -> keras.layers.Layer:
    del node
    return Function(lambda x: x)


@register(spec.Add)
class Add(Children):
    """The sum of the branches, added from the first to the last."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        first, *others = self.branches(x, context)
        for other in others:
            first = first + other
        return first


@register(spec.Concatenate)
class Concatenate(Children):
    """The branches, joined along the last axis."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        return tf.concat(self.branches(x, context), -1)
