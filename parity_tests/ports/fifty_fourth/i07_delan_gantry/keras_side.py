"""Deep Lagrangian network: drive forces of a gantry with two swinging links from its motion."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

JOINTS = 3
LOW = np.array([[1, 0], [2, 0], [2, 1]])


class DeLaN(keras.Model):
    def __init__(self, width=24, **kwargs):
        super().__init__(**kwargs)
        self.mass1 = layers.Dense(width, activation="softplus", name="mass1")
        self.mass2 = layers.Dense(width, activation="softplus", name="mass2")
        self.diagonal = layers.Dense(JOINTS, activation="softplus", name="diagonal")
        self.lower = layers.Dense(len(LOW), name="lower")
        self.potential1 = layers.Dense(width, activation="tanh", name="potential1")
        self.potential2 = layers.Dense(1, use_bias=False, name="potential2")
        self.damping = self.add_weight(shape=(JOINTS,), initializer="zeros", name="damping")

    def angles(self, q):
        # the trolley's place, and sine and cosine of the two links
        return tf.concat([q[:, :1], tf.sin(q[:, 1:]), tf.cos(q[:, 1:])], axis=-1)

    def inertia(self, f):
        h = self.mass2(self.mass1(f))
        d, l = self.diagonal(h) + 0.05, self.lower(h)
        zero = tf.zeros_like(d[:, 0])
        factor = tf.stack(
            [
                tf.stack([d[:, 0], zero, zero], axis=-1),
                tf.stack([l[:, 0], d[:, 1], zero], axis=-1),
                tf.stack([l[:, 1], l[:, 2], d[:, 2]], axis=-1),
            ],
            axis=1,
        )
        return tf.matmul(factor, factor, transpose_b=True)

    def potential(self, f):
        return self.potential2(self.potential1(f))[:, 0]

    def call(self, motion):
        q, qd, qdd = tf.split(motion, 3, axis=-1)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(q)
            f = self.angles(q)
            inertia = self.inertia(f)
            momentum = tf.linalg.matvec(inertia, qd)
            kinetic = 0.5 * tf.reduce_sum(qd * momentum, axis=-1)
            potential = self.potential(f)
            columns = [momentum[:, i] for i in range(JOINTS)]
        drift = tf.stack([tf.reduce_sum(tape.gradient(c, q) * qd, axis=-1) for c in columns], axis=-1)
        force = tf.linalg.matvec(inertia, qdd) + drift
        force += tape.gradient(potential, q) - tape.gradient(kinetic, q)
        return force + tf.nn.softplus(self.damping) * qd


def build():
    model = DeLaN(name="gantry")
    model(np.zeros((1, 3 * JOINTS), "float32"))
    return model
