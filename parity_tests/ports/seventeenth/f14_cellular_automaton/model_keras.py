"""Growing neural cellular automata (Mordvintsev et al.): cells that together become a picture."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

CHANNELS, STEPS = 8, 6
SOBEL = np.outer([1.0, 2.0, 1.0], [-1.0, 0.0, 1.0]) / 8
IDENTITY = np.outer([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])


class Automaton(keras.Model):
    def __init__(self):
        super().__init__()
        self.think = layers.Conv2D(32, 1, activation="relu", name="think")
        self.change = layers.Conv2D(CHANNELS, 1, use_bias=False, name="change")

    def perceive(self, state):
        """Of each channel: itself, its slope along x, its slope along y."""
        filters = np.stack([IDENTITY, SOBEL, SOBEL.T], axis=-1)
        filters = tf.constant(np.repeat(filters[:, :, None], CHANNELS, axis=2), state.dtype)
        return tf.nn.depthwise_conv2d(state, filters, [1, 1, 1, 1], "SAME")

    @staticmethod
    def alive(state):
        return tf.nn.max_pool2d(state[..., 3:4], 3, 1, "SAME") > 0.1

    def call(self, inputs):
        state, fire = inputs["seed"], inputs["fire"]
        for t in range(STEPS):
            before = self.alive(state)
            state = state + self.change(self.think(self.perceive(state))) * fire[..., t : t + 1]
            state = state * tf.cast(before & self.alive(state), state.dtype)
        return state

    def train_step(self, data):
        inputs, target = data
        with tf.GradientTape() as tape:
            state = self(inputs, training=True)
            picture = tf.reduce_mean(tf.square(state[..., :4] - target))
            overflow = tf.reduce_mean(tf.abs(state - tf.clip_by_value(state, -1, 1)))
            loss = picture + 0.1 * overflow
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "picture": picture}


def build():
    return Automaton()


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(4e-3, decay_steps=8, decay_rate=0.8)
    return keras.optimizers.Adam(rate, clipnorm=0.05)
