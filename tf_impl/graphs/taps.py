"""The taps of activations as a part of a step's graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.record import taps


class ActivationGraph:
    """Fingerprints of activations and of the gradients with respect to them."""

    _forward: list[str]
    _backward: list[str]
    _vectors: dict[str, tf.Variable]

    @property
    def zeros(self) -> tf.Tensor:
        """What no sample adds to the fingerprints of activations."""
        return tf.zeros([len(self._forward) + len(self._backward), 2], tf.float64)

    def watched(self, context: Context) -> list[tf.Tensor]:
        """The outputs whose gradients `activations` wants, once the pass has been made."""
        return [context.taps.outputs[path] for path in self._backward]

    def activations(self, context: Context, gradients: list[Any], scale: tf.Tensor | None) -> tf.Tensor:
        """[layers both ways, 2] of a pass, on its replica.

        Args:
            context: that the pass was made with.
            gradients: of the loss sum times `scale`, with respect to `watched`.
        """
        pairs = [(path, context.taps.outputs[path]) for path in self._forward]
        pairs += [(p, tf.convert_to_tensor(g)) for p, g in zip(self._backward, gradients, strict=True)]
        products, norms = [], []
        for path, values in pairs:
            vector = self._vectors[path].read_value()
            matrix = tf.reshape(values, [-1, vector.shape[0]])
            products.append(tf.linalg.matvec(matrix, vector))
            norms.append(tf.math.reduce_euclidean_norm(matrix, 1))
        weights = _sample_weights(context.sample_ids)
        projections = tf.linalg.matvec(tf.cast(tf.stack(products), tf.float64), weights)
        squares = tf.reduce_sum(tf.square(tf.cast(tf.stack(norms), tf.float64)), 1)
        table = tf.stack([squares, projections], 1)
        forward, backward = table[: len(self._forward)], table[len(self._forward) :]
        return tf.concat([forward, unscaled(backward, scale)], 0)


def _sample_weights(ids: tf.Tensor) -> tf.Tensor:
    """w of each sample (`parity.common.record.taps`), float64."""
    weights = tf.ones_like(ids, tf.float64)
    for part, table in enumerate(taps.sample_tables()):
        place = tf.bitwise.right_shift(ids, tf.constant(taps.ID_BITS * part, tf.int64))
        place = tf.bitwise.bitwise_and(place, tf.constant((1 << taps.ID_BITS) - 1, tf.int64))
        weights *= tf.gather(tf.constant(table), place)
    return weights


def unscaled(table: tf.Tensor, scale: tf.Tensor | None) -> tf.Tensor:
    """Fingerprints of a gradient from those of the gradient times `scale`."""
    if scale is None:
        return table
    factor = tf.cast(scale, tf.float64)
    return table / tf.stack([tf.square(factor), factor])
