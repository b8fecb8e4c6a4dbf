"""Tokens and positions as vectors."""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.containers import Children
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.registry import Function, NodeLayer, call, register


def _rows(table: tf.Tensor, tokens: tf.Tensor, padding_id: int | None = None) -> tf.Tensor:
    """Rows of a table, with a dense gradient: optimizers take duplicates in a sparse one wrongly."""
    tokens = tf.cast(tokens, tf.int64)

    @tf.custom_gradient
    def gather(table: tf.Tensor) -> tuple:
        def gradient(dy: tf.Tensor) -> tf.Tensor:
            # A negative id counts for nothing in unsorted_segment_sum.
            ids = (
                tokens
                if padding_id is None
                else tf.where(tokens == padding_id, tf.cast(-1, tf.int64), tokens)
            )
            flat = tf.reshape(dy, [-1, table.shape[1]])
            return tf.math.unsorted_segment_sum(flat, tf.reshape(ids, [-1]), table.shape[0])

        return tf.gather(table, tokens), gradient

    return gather(table)


@register(spec.Embedding)
class Embedding(NodeLayer):
    """Rows of the table."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return _rows(tf.convert_to_tensor(self.embedding), x, self.node.spec.padding_id)


@register(spec.TiedEmbedding)
class TiedEmbedding(Products, Children):
    """Children between an embedding and the logits, which share one table."""

    output_bias = None

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        table = tf.convert_to_tensor(self.embedding)
        beside = len(self.node.spec.beside)
        y = _rows(table, x, self.node.spec.padding_id)
        for child in self.children[:beside]:
            y = y + call(child, x, context)
        for child in self.children[beside:]:
            y = call(child, y, context)
        logits = self.product(lambda y, table: tf.tensordot(y, table, [[-1], [1]]), y, table)
        return logits if self.output_bias is None else logits + self.output_bias


@register(spec.PositionEmbedding)
class PositionEmbedding(NodeLayer):
    """x + the first rows of the table."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + tf.convert_to_tensor(self.embedding)[: x.shape[1]]


@register(spec.SinusoidalPositions)
def sinusoidal_positions(node: Node) -> keras.layers.Layer:
    table = node.spec.table(node.input_shape)
    return Function(lambda x: x + tf.constant(table, x.dtype))


@register(spec.SegmentEmbedding)
class SegmentEmbedding(NodeLayer):
    """The row of each token's segment."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        spec = self.node.spec
        segments = tf.zeros_like(x, tf.int64)
        if spec.separator_id is not None:
            separators = tf.cast(x == spec.separator_id, tf.int64)
            segments = tf.minimum(tf.cumsum(separators, 1, exclusive=True), spec.types - 1)
        return _rows(tf.convert_to_tensor(self.embedding), segments)


@register(spec.ClassToken)
class ClassToken(NodeLayer):
    """The learned token, then x."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        shape = [tf.shape(x)[0], 1, x.shape[2]]
        return tf.concat([tf.broadcast_to(tf.convert_to_tensor(self.embedding), shape), x], 1)


@register(spec.TakeToken)
def take_token(node: Node) -> keras.layers.Layer:
    return Function(lambda x: x[:, node.spec.index])
