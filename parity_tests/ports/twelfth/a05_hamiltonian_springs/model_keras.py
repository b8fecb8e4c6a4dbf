"""Two damped springs: the motion follows from a learned energy, by its gradient."""

import keras
import tensorflow as tf
from keras import layers, ops


class Dynamics(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden1 = layers.Dense(16, activation="tanh", name="hidden1")
        self.hidden2 = layers.Dense(16, activation="tanh", name="hidden2")
        self.energy = layers.Dense(1, use_bias=False, name="energy")

    def build(self, shape):
        self.hidden1.build(shape)
        self.hidden2.build((None, 16))
        self.energy.build((None, 16))
        self.mass = self.add_weight(shape=(2, 2), initializer="glorot_uniform", name="mass")
        self.damping = self.add_weight(shape=(2,), initializer="zeros", name="damping")

    def hamiltonian(self, state):
        x = self.hidden2(self.hidden1(state))
        momentum = ops.matmul(state[:, 2:], self.mass)
        return self.energy(x)[:, 0] + 0.5 * ops.sum(ops.square(momentum), axis=1)

    def call(self, state):
        with tf.GradientTape() as tape:
            tape.watch(state)
            h = self.hamiltonian(state)
        slope = tape.gradient(h, state)
        dq, dp = slope[:, :2], slope[:, 2:]
        return ops.concatenate([dp, -dq - ops.softplus(self.damping) * dp], axis=1)


def build():
    state = keras.Input((4,), name="state")
    return keras.Model(state, Dynamics(name="dynamics")(state))
