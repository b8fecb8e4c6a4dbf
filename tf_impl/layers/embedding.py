"""Tokens and positions as vectors."""

from __future__ import annotations

import keras
import tensorflow as tf

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.context import Context
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.registry import Contextual, Function, build_layer, call, register


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


class Table(keras.layers.Layer):
    """A layer whose variable `embedding` has the node's shape."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node

    def build(self, input_shape: tuple) -> None:
        self.embedding = self.add_weight(shape=self.node.parameters[0].shape, name="embedding")
        self.built = True


class Embedding(Table):
    """Rows of the table."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return _rows(tf.convert_to_tensor(self.embedding), x, self.node.spec.padding_id)


@register(spec.Embedding)
def embedding(node: Node) -> keras.layers.Layer:
    return Embedding(node)


class TiedEmbedding(Products, Contextual):
    """Children between an embedding and the logits, which share one table."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.children = [build_layer(child) for child in node.children]

    def build(self, input_shape: tuple) -> None:
        self.output_bias = None
        for tensor in self.node.parameters:
            setattr(self, tensor.name, self.add_weight(shape=tensor.shape, name=tensor.name))
        self.built = True

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


@register(spec.TiedEmbedding)
def tied_embedding(node: Node) -> keras.layers.Layer:
    return TiedEmbedding(node)


class PositionEmbedding(Table):
    """x + the first rows of the table."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + tf.convert_to_tensor(self.embedding)[: x.shape[1]]


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> keras.layers.Layer:
    return PositionEmbedding(node)


@register(spec.SinusoidalPositions)
def sinusoidal_positions(node: Node) -> keras.layers.Layer:
    table = node.spec.table(node.input_shape)
    return Function(lambda x: x + tf.constant(table, x.dtype))


class SegmentEmbedding(Table):
    """The row of each token's segment."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        spec = self.node.spec
        segments = tf.zeros_like(x, tf.int64)
        if spec.separator_id is not None:
            separators = tf.cast(x == spec.separator_id, tf.int64)
            segments = tf.minimum(tf.cumsum(separators, 1, exclusive=True), spec.types - 1)
        return _rows(tf.convert_to_tensor(self.embedding), segments)


@register(spec.SegmentEmbedding)
def segment_embedding(node: Node) -> keras.layers.Layer:
    return SegmentEmbedding(node)


class ClassToken(Table):
    """The learned token, then x."""

    def call(self, x: tf.Tensor) -> tf.Tensor:
        shape = [tf.shape(x)[0], 1, x.shape[2]]
        return tf.concat([tf.broadcast_to(tf.convert_to_tensor(self.embedding), shape), x], 1)


@register(spec.ClassToken)
def class_token(node: Node) -> keras.layers.Layer:
    return ClassToken(node)


@register(spec.TakeToken)
def take_token(node: Node) -> keras.layers.Layer:
    return Function(lambda x: x[:, node.spec.index])
