"""Prices of flats by soft oblivious trees, in two layers; the answers of the leaves have a penalty."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

TREES, DEPTH = 4, 3
# What a leaf's path says at each level: 1 for above the threshold.
PATHS = np.array([[(leaf >> (DEPTH - 1 - level)) & 1 for level in range(DEPTH)] for leaf in range(2**DEPTH)])


class Trees(layers.Layer):
    def __init__(self, penalty=1 / 1024, **kwargs):
        super().__init__(**kwargs)
        self.penalty = penalty

    def build(self, shape):
        self.choice = self.add_weight(
            shape=(shape[-1], TREES, DEPTH),
            initializer=keras.initializers.RandomNormal(stddev=0.5),
            name="choice",
        )
        self.threshold = self.add_weight(
            shape=(TREES, DEPTH), initializer=keras.initializers.RandomNormal(stddev=0.5), name="threshold"
        )
        self.sharpness = self.add_weight(shape=(TREES, DEPTH), initializer="zeros", name="sharpness")
        self.answer = self.add_weight(
            shape=(TREES, 2**DEPTH),
            initializer=keras.initializers.RandomNormal(stddev=0.5),
            regularizer=keras.regularizers.L2(self.penalty),
            name="answer",
        )

    def compute_output_shape(self, shape):
        return (shape[0], TREES)

    def call(self, x):
        chosen = ops.tensordot(x, ops.softmax(self.choice, axis=0), axes=1)
        gate = ops.sigmoid((chosen - self.threshold) * ops.exp(self.sharpness))[:, :, None]
        path = ops.convert_to_tensor(PATHS, dtype=gate.dtype)
        reached = ops.prod(path * gate + (1 - path) * (1 - gate), axis=-1)
        return ops.sum(reached * self.answer, axis=-1)


class Ensemble(keras.Model):
    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            error = self(x, training=True) - ops.reshape(y, (-1,))
            loss = ops.mean(ops.log(ops.cosh(error))) + sum(self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    x = keras.Input((6,), name="flat")
    first = Trees(name="first")(x)
    second = Trees(name="second")(layers.Concatenate()([x, first]))
    return Ensemble(x, ops.mean(first, axis=1) + ops.mean(second, axis=1))
