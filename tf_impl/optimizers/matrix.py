"""Adafactor, Muon and LAMB; formulas as in `common/reference/optimizers/matrix.py`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from parity.common.spec.optimizers import Adafactor, Lamb, Muon
from parity.tf_impl.optimizers.adam import moments
from parity.tf_impl.optimizers.base import Update, register


@register(Adafactor)
def adafactor(given: Update) -> tf.Tensor:
    """The gradient over the root of a second moment of rank one; the step is relative to the weight."""
    spec, gradient, share, slots = given.spec, given.gradient, given.scalars["newest_share"], given.slots
    machine_epsilon = float(np.finfo(gradient.dtype.as_numpy_dtype).eps)
    epsilon = machine_epsilon if spec.epsilon_1 is None else spec.epsilon_1
    added, floor = (epsilon, 0.0) if spec.epsilon_form == "add" else (0.0, epsilon)
    square = tf.square(gradient) + added

    def averaged(slot: tf.Variable, newest: tf.Tensor) -> tf.Tensor:
        return slot.assign((1 - share) * slot + share * newest)

    axes = spec.axes(tuple(gradient.shape))
    if axes is None:
        second = averaged(slots["second_moment"], square)
    else:
        row_axis, column_axis = axes
        row = averaged(slots["row_moment"], tf.reduce_mean(square, column_axis))
        column = averaged(slots["column_moment"], tf.reduce_mean(square, row_axis))
        mean = tf.maximum(tf.reduce_mean(row, row_axis, keepdims=True), floor)
        second = tf.expand_dims(row / mean, column_axis) * tf.expand_dims(column, row_axis)
    update = gradient / tf.sqrt(tf.maximum(second, floor**2))
    weight = given.decayed if spec.scaled_by == "decayed" else given.weight
    size = given.scalars["relative_step"] * tf.maximum(_rms(weight), spec.epsilon_2)
    return -size / tf.maximum(_rms(update) / spec.clip_threshold, 1.0) * update


def _rms(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(tf.square(x)))


@register(Muon)
def muon(given: Update) -> tf.Tensor:
    """The momentum, made orthogonal."""
    spec, gradient, slot = given.spec, given.gradient, given.slots["momentum_buffer"]
    fresh = 1.0 if spec.momentum_form == "sum" else 1 - spec.momentum
    buffer = slot.assign(spec.momentum * slot + fresh * gradient)
    direction = fresh * gradient + spec.momentum * buffer if spec.nesterov else buffer
    step = given.scalars["learning_rate"] * spec.scale(tuple(gradient.shape))
    return -step * _orthogonal(spec, direction)


def _orthogonal(spec: Muon, matrix: tf.Tensor) -> tf.Tensor:
    """The matrix with its singular values moved towards 1."""
    a, b, c = spec.newton_schulz
    rows, columns = matrix.shape
    norm = tf.norm(matrix)
    norm = norm + spec.norm_epsilon if spec.norm_form == "add" else tf.maximum(norm, spec.norm_epsilon)
    x = tf.transpose(matrix / norm) if rows > columns else matrix / norm
    for _ in range(spec.newton_schulz_steps):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return tf.transpose(x) if rows > columns else x


@register(Lamb)
def lamb(given: Update) -> tf.Tensor:
    """Adam's direction with the norm of the weight."""
    spec, scalars = given.spec, given.scalars
    first, second = moments(given)
    root = tf.sqrt(second) / scalars["second_correction"] + spec.epsilon
    update = first / scalars["first_correction"] / root
    if spec.weight_decay_mode == "update":
        update = update + spec.weight_decay * given.weight
    norms = tf.norm(given.decayed), tf.norm(update)
    ratio = tf.where(tf.minimum(*norms) > 0, norms[0] / norms[1], tf.ones_like(norms[0]))
    return -scalars["learning_rate"] * ratio * update
