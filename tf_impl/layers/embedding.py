"""Tokens and positions as vectors."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec
from tf_impl.layers.registry import register


class PositionEmbedding(keras.layers.Layer):
    """x + embedding."""

    def build(self, input_shape: tuple) -> None:
        self.embedding = self.add_weight(shape=input_shape[1:], name="embedding")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + self.embedding


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> keras.layers.Layer:
    return PositionEmbedding()
