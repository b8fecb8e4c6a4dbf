import math

import keras
import tensorflow as tf
from keras import layers, ops

NUM_ALARMS = 4


class Propagate(layers.Layer):
    """Personalised propagation with one learned teleport rate per channel."""

    def __init__(self, hops, **kwargs):
        super().__init__(**kwargs)
        self.hops = hops

    def build(self, input_shape):
        channels = input_shape[0][-1] if isinstance(input_shape[0], (tuple, list)) else input_shape[-1]
        self.teleport = self.add_weight(
            shape=(channels,), initializer=keras.initializers.Constant(-1.5), name="teleport"
        )

    def call(self, inputs):
        start, operator = inputs
        rate = ops.sigmoid(self.teleport)
        state = start
        for _ in range(self.hops):
            state = (1.0 - rate) * ops.matmul(operator, state) + rate * start
        return state


class SewerNet(keras.Model):
    def __init__(self, width=24, hops=(4, 3), **kwargs):
        super().__init__(**kwargs)
        self.encode = keras.Sequential(
            [layers.Dense(width, activation="elu", name="enc_a"), layers.Dense(width, name="enc_b")],
            name="encode",
        )
        self.mix = layers.Dense(width, activation="elu", name="mix")
        self.spread_near = Propagate(hops[0], name="spread_near")
        self.spread_far = Propagate(hops[1], name="spread_far")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.depth_hidden = layers.Dense(12, activation="tanh", name="depth_hidden")
        self.depth_out = layers.Dense(1, activation="softplus", name="depth_out")
        self.alarm_hidden = layers.Dense(20, activation="relu", name="alarm_hidden")
        self.alarm_out = layers.Dense(NUM_ALARMS, name="alarm_out")

    def call(self, inputs):
        x, pipes, present = inputs["catchment"], inputs["pipes"], inputs["present"]
        valid = present[..., None]
        loops = pipes + tf.linalg.diag(present)
        degree = tf.maximum(tf.reduce_sum(loops, axis=-1, keepdims=True), 1.0)
        scale = tf.math.rsqrt(degree)
        operator = loops * scale * tf.transpose(scale, (0, 2, 1))

        h = self.encode(x) * valid
        h = self.spread_near([h, operator])
        h = self.norm(h + self.mix(h)) * valid
        h = self.spread_far([h, operator])

        depth = self.depth_out(self.depth_hidden(h))[..., 0]
        mean = tf.reduce_sum(h * valid, axis=1) / tf.reduce_sum(valid, axis=1)
        top = tf.reduce_max(tf.where(valid > 0, h, -1e9 * tf.ones_like(h)), axis=1)
        alarm = self.alarm_out(self.alarm_hidden(tf.concat([mean, top], axis=-1)))
        return {"depth": depth, "alarm": alarm}


def depth_loss(targets, outputs):
    """Log-cosh over the gauged nodes of each network; ungauged nodes are -1."""
    targets = ops.cast(targets, outputs.dtype)
    gauged = ops.cast(targets >= 0, outputs.dtype)
    err = outputs - ops.maximum(targets, 0.0)
    logcosh = err + ops.softplus(-2.0 * err) - math.log(2.0)
    return ops.sum(gauged * logcosh, axis=-1) / ops.sum(gauged, axis=-1)


def alarm_loss(targets, outputs):
    """Ranked probability score of the graded alarm."""
    probs = ops.softmax(outputs, axis=-1)
    truth = ops.one_hot(ops.cast(targets, "int32"), NUM_ALARMS, dtype=outputs.dtype)
    gap = ops.cumsum(probs, axis=-1) - ops.cumsum(truth, axis=-1)
    return ops.sum(ops.square(gap[..., :-1]), axis=-1)


def build():
    return SewerNet(name="sewer_net")
