"""Attention."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.containers import Children
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.random import keep_mask
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register
from parity.tf_impl.private_names import keras_op


class Attention(Products, Contextual, NodeLayer):
    """Multi-head attention of queries to a memory, with the scale kept in the run's own precision."""

    causal = False

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.size = node.spec.size(node.input_shape)

    def attend(self, x: tf.Tensor, memory: tf.Tensor, context: Context) -> tf.Tensor:
        """What the tokens of x (batch, tokens, features) take from those of the memory."""
        parts = (("query", x), ("key", memory), ("value", memory))
        query, key, value = (self._split(self._project(tokens, part)) for part, tokens in parts)
        query, key = self._turn(query), self._turn(key)
        mixed = tf.transpose(self._mix(query, key, value, context), [0, 2, 1, 3])
        mixed = tf.reshape(mixed, [-1, mixed.shape[1], self.node.spec.heads * self.size])
        return self._project(mixed, "output")

    def _project(self, x: tf.Tensor, part: str) -> tf.Tensor:
        kernel, bias = getattr(self, f"{part}_kernel"), getattr(self, f"{part}_bias", None)
        if self._is_stock:
            return self._project_as_keras(x, kernel, bias, part)
        y = self.project(x, tf.convert_to_tensor(kernel))
        return y if bias is None else y + bias

    @property
    def _is_stock(self) -> bool:
        """Whether a mixed policy of Keras is in force, under which it is to compute as Keras's own layer does."""
        return self.compute_dtype != self.variable_dtype

    def _project_as_keras(self, x: tf.Tensor, kernel: Any, bias: Any, part: str) -> tf.Tensor:
        """As its EinsumDense: the same products, and sums of gradients over the same kernels."""
        spec, size = self.node.spec, self.size
        kernel = tf.convert_to_tensor(kernel)
        if part == "output":
            x = tf.reshape(x, [-1, x.shape[1], spec.heads, size])
            kernel = tf.reshape(kernel, [spec.heads, size, kernel.shape[1]])
            y = keras.ops.einsum("abcd,cde->abe", x, kernel)
            return y if bias is None else keras.ops.add(y, bias)
        heads = kernel.shape[1] // size
        y = keras.ops.einsum("abc,cde->abde", x, tf.reshape(kernel, [kernel.shape[0], heads, size]))
        if bias is not None:
            y = keras.ops.add(y, tf.reshape(tf.convert_to_tensor(bias), [heads, size]))
        return tf.reshape(y, [-1, x.shape[1], heads * size])

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        heads = x.shape[2] // self.size
        return tf.transpose(tf.reshape(x, [-1, x.shape[1], heads, self.size]), [0, 2, 1, 3])

    def _turn(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def _mix(self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, context: Context) -> tf.Tensor:
        spec = self.node.spec
        repeats = spec.heads // spec.groups
        allowed = self._allowed(query.shape[2], key.shape[2], context)
        if self._is_stock and not spec.dropout:
            return self._mix_as_keras(query, key, value, allowed)
        if repeats > 1:
            key, value = tf.repeat(key, repeats, 1), tf.repeat(value, repeats, 1)
        scores = self.matmul(query * tf.constant(self.size**-0.5, query.dtype), key, transpose_b=True)
        shape = scores.shape[1:]
        if allowed is not None:
            scores = tf.where(allowed, scores, scores.dtype.min)
        weights = tf.nn.softmax(scores)
        if allowed is not None:
            # Only a query without a key has weights to lose here.
            weights = tf.where(allowed, weights, tf.zeros([], weights.dtype))
        if context.training and spec.dropout > 0:
            weights *= keep_mask(weights, context, f"{self.node.path}/weights", tuple(shape), spec.dropout)
        return self.matmul(weights, value)

    def _allowed(self, queries: int, keys: int, context: Context) -> tf.Tensor | None:
        """Which keys a query may look at, broadcast to (batch, heads, queries, keys); None: all."""
        allowed = tf.constant(np.tri(queries, keys, dtype=bool)) if self.causal else None
        if self.node.spec.masked and context.token_mask is not None:
            kept = context.token_mask[:, None, None, :]
            allowed = kept if allowed is None else allowed & kept
        return allowed

    def _mix_as_keras(
        self, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, allowed: tf.Tensor | None
    ) -> tf.Tensor:
        """As Keras's attention without dropout, which takes the softmax in float32 under a mixed policy."""
        parts = (tf.transpose(part, [0, 2, 1, 3]) for part in (query, key, value))
        scale = self.size**-0.5
        mask = allowed if allowed is None or allowed.shape.rank == 4 else allowed[None, None]
        mixed = keras_op("dot_product_attention")(*parts, mask=mask, scale=scale)
        return tf.transpose(mixed, [0, 2, 1, 3])


@register(spec.SelfAttention)
class SelfAttention(Attention):
    """Attention of a sequence to itself."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.causal = node.spec.causal

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        return self.attend(x, x, context)

    def _turn(self, x: tf.Tensor) -> tf.Tensor:
        layout = self.node.spec.rotary
        if layout is None:
            return x
        angles = self.node.spec.rotary_angles(self.node.input_shape)
        cosine, sine = tf.constant(np.cos(angles), x.dtype), tf.constant(np.sin(angles), x.dtype)
        a, b = tf.split(x, 2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
        turned = a * cosine - b * sine, b * cosine + a * sine
        if layout == "half":
            return tf.concat(turned, -1)
        return tf.reshape(tf.stack(turned, -1), [-1, *x.shape[1:]])


@register(spec.CrossAttention)
class CrossAttention(Attention, Children):
    """Attention to what the children make of the input."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        return self.attend(x, self.chain(x, context), context)
