"""Attention."""

from __future__ import annotations

import keras
import tensorflow as tf

from common.spec import Node
from common.spec import layers as spec
from tf_impl.layers.registry import register


class SelfAttention(keras.layers.Layer):
    """Multi-head attention with the scale kept in the run's own precision."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.heads = node.spec.heads
        self.width = node.input_shape[-1]
        self.tensors = node.parameters

    def build(self, input_shape: tuple) -> None:
        for tensor in self.tensors:
            setattr(self, tensor.name, self.add_weight(shape=tensor.shape, name=tensor.name))
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        tokens, size = x.shape[1], self.width // self.heads
        query, key, value = (self._split(self._project(x, part), tokens, size) for part in _QKV)
        scores = tf.matmul(query * tf.constant(size**-0.5, x.dtype), key, transpose_b=True)
        mixed = tf.matmul(tf.nn.softmax(scores), value)
        mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, tokens, self.width])
        return self._project(mixed, "output")

    def _project(self, x: tf.Tensor, part: str) -> tf.Tensor:
        kernel, bias = getattr(self, f"{part}_kernel"), getattr(self, f"{part}_bias", None)
        y = tf.tensordot(x, kernel.value, 1)
        return y if bias is None else y + bias

    def _split(self, x: tf.Tensor, tokens: int, size: int) -> tf.Tensor:
        return tf.transpose(tf.reshape(x, [-1, tokens, self.heads, size]), [0, 2, 1, 3])


_QKV = ("query", "key", "value")


@register(spec.SelfAttention)
def self_attention(node: Node) -> keras.layers.Layer:
    return SelfAttention(node)
