"""Recurrent layers: a while_loop over the tokens, with the products of the inputs taken before it."""

from __future__ import annotations

import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.execution.recurrent import (
    GRUCell,
    LSTMCell,
    Operations,
    Product,
    RecurrentLayer,
    SimpleRNNCell,
)
from parity.common.spec import layers as spec
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.random import keep_mask
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register


def padding_last(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """x (batch, tokens, features) with the unmasked tokens first, in their order.

    What comes after them cannot touch their outputs, so that no kernel needs to know of the mask.
    """
    order = tf.argsort(tf.cast(~mask, tf.int32), axis=1, stable=True)
    return tf.gather(x, order, batch_dims=1)


def spread(y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Outputs of `padding_last` back in their places, each repeated at the padding after it; zero before."""
    last = tf.cumsum(tf.cast(mask, tf.int32), 1) - 1
    spread = tf.gather(y, tf.maximum(last, 0), batch_dims=1)
    return tf.where(last[:, :, None] >= 0, spread, tf.zeros([], y.dtype))


class Recurrent(Products, Contextual, NodeLayer, RecurrentLayer):
    """The passes over the tokens, with TensorFlow's operations."""

    operations = Operations(
        concat=lambda parts: tf.concat(parts, -1),
        split=lambda x, parts: tf.split(x, parts, -1),
        unstack=lambda x: tf.unstack(x, axis=1),
        flip=lambda x: tf.reverse(x, [1]),
        where=lambda mask, y: tf.where(mask, y, tf.zeros([], y.dtype)),
        sigmoid=tf.sigmoid,
        tanh=tf.tanh,
        keep_mask=keep_mask,
        padding_last=padding_last,
        spread=spread,
    )

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        return self.outputs(x, context)

    def _run(self, products: tf.Tensor, recur: list[Product]) -> tf.Tensor:
        spec, tokens = self.node.spec, products.shape[1]
        by_token = tf.TensorArray(products.dtype, tokens).unstack(tf.transpose(products, [1, 0, 2]))
        outputs = tf.TensorArray(products.dtype, tokens, element_shape=[None, spec.units])

        def step(token: tf.Tensor, outputs: tf.TensorArray, *state: tf.Tensor) -> tuple:
            gates = tf.split(by_token.read(token), spec.gates, -1)
            state = self._step(gates, state, recur)
            return token + 1, outputs.write(token, state[0]), *state

        zero = tf.zeros([tf.shape(products)[0], spec.units], products.dtype)
        _, outputs, *_ = tf.while_loop(
            lambda token, *_: token < tokens,
            step,
            (tf.constant(0), outputs, *[zero] * self.states),
            maximum_iterations=tokens,
        )
        return tf.transpose(tf.reshape(outputs.stack(), [tokens, -1, spec.units]), [1, 0, 2])

    def _tensor(self, prefix: str, name: str) -> tf.Tensor | None:
        variable = getattr(self, prefix + name, None)
        return None if variable is None else tf.convert_to_tensor(variable)


@register(spec.LSTM)
class LSTM(LSTMCell, Recurrent):
    """A loop of LSTM cells."""


@register(spec.GRU)
class GRU(GRUCell, Recurrent):
    """A loop of GRU cells."""


@register(spec.SimpleRNN)
class SimpleRNN(SimpleRNNCell, Recurrent):
    """A loop of plain recurrent cells."""
