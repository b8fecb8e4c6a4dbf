"""Dropout and its relatives, by keyed random words on the device: the same bits as `parity.common.base.rng`."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from parity.common.base import rng
from parity.common.base.rng import Key
from parity.common.execution.pass_context import Context
from parity.common.spec import layers as spec
from parity.common.spec.layers import Shape
from parity.common.spec.layers.random import threshold
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register

_LOW = 0xFFFFFFFF
_PHILOX = 1  # tf.random.Algorithm


def sample_words(key: Key, step: Any, sample_ids: tf.Tensor, count: int) -> tf.Tensor:
    """Random 32-bit words of each sample, as `parity.common.base.rng.sample_words`.

    Returns:
        (batch, count) int64 in [0, 2^32).
    """
    if tf.config.list_physical_devices("GPU"):
        return _words_in_passes(key, step, sample_ids, count)
    own = tf.constant([key[0] | key[1] << 32], tf.uint64)
    ids = tf.cast(sample_ids, tf.uint64)
    # One number, or one a sample as Keras's fit hands them on.
    steps = tf.zeros_like(ids) + tf.reshape(tf.cast(step, tf.uint64), [-1])
    counters = tf.stack([tf.bitwise.left_shift(steps, tf.constant(32, tf.uint64)), ids], 1)

    def words(counter: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[count], key=own, counter=counter, alg=_PHILOX, dtype=tf.uint32
        )

    # One more than there are: a replica may have no samples, over which XLA maps nothing.
    padded = tf.pad(counters, [[0, 1], [0, 0]])
    found = tf.map_fn(words, padded, parallel_iterations=1, fn_output_signature=tf.uint32)
    return tf.cast(found[:-1], tf.int64)


def _words_in_passes(key: Key, step: Any, sample_ids: tf.Tensor, count: int) -> tf.Tensor:
    """The same in passes over whole tensors, on any device; on a CPU TensorFlow's kernel takes a third of the time."""
    blocks = -(-count // 4)
    batch = tf.shape(sample_ids)[0]
    shape = [batch, blocks]
    low = tf.constant(_LOW, tf.int64)
    high = lambda x: tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, tf.constant(32, tf.int64)), low)  # noqa: E731
    x0 = tf.broadcast_to(tf.range(blocks, dtype=tf.int64), shape)
    x1 = tf.zeros_like(x0) + tf.cast(step, tf.int64)
    x2 = tf.broadcast_to(tf.bitwise.bitwise_and(sample_ids, low)[:, None], shape)
    x3 = tf.broadcast_to(high(sample_ids)[:, None], shape)
    key_0, key_1 = key
    # int64 wraps where uint64 would not, but the low and the high halves come out the same.
    for _ in range(10):
        product_0 = x0 * 0xD2511F53
        product_1 = x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (
            tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high(product_1), x1), key_0),
            tf.bitwise.bitwise_and(product_1, low),
            tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(high(product_0), x3), key_1),
            tf.bitwise.bitwise_and(product_0, low),
        )
        key_0 = (key_0 + 0x9E3779B9) & _LOW
        key_1 = (key_1 + 0xBB67AE85) & _LOW
    words = tf.reshape(tf.stack([x0, x1, x2, x3], -1), [batch, 4 * blocks])
    return words[:, :count]


def keep_mask(x: tf.Tensor, context: Context, path: str, shape: Shape, rate: float) -> tf.Tensor:
    """(batch, *shape): 1 / (1 - rate) where the layer at `path` keeps an element, else 0."""
    if not isinstance(context.seed, int):
        return keras.random.dropout(tf.ones([tf.shape(x)[0], *shape], x.dtype), rate, seed=context.seed)
    key = rng.derive_key(context.seed, "dropout", path)
    words = sample_words(key, context.step, context.sample_ids, math.prod(shape))
    kept = tf.cast(words >= threshold(rate), x.dtype)
    return tf.reshape(kept, [-1, *shape]) * tf.constant(1 / (1 - rate), x.dtype)


@register(spec.Dropout)
class Dropout(Contextual, NodeLayer):
    """x times its mask, in training."""

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        rate = self.node.spec.rate
        if not context.training or rate == 0:
            return x
        shape = self.node.spec.mask_shape(self.node.input_shape)
        return x * keep_mask(x, context, self.node.path, shape, rate)
