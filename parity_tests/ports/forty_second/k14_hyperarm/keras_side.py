"""Arm dynamics for unseen payloads: the arm's parameters drive FiLM layers and the last, generated layer."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

J, HORIZON, WIDTH, CODE, DT = 3, 4, 32, 12, np.float32(0.05)
ARM_MEAN = np.array([1.0, 0.45, 0.16, 1.0], np.float32)
ARM_STD = np.array([0.58, 0.2, 0.08, 0.17], np.float32)
TORQUE_SCALE = np.array([14.0, 8.0, 3.0], np.float32)
RESIDUAL_SCALE = np.array([0.03, 0.03, 0.03, 0.6, 0.6, 0.6], np.float32)
DISCOUNT = np.power(np.float32(0.9), np.arange(HORIZON, dtype=np.float32))


class FiLM(layers.Layer):
    def __init__(self, width, **kw):
        super().__init__(**kw)
        self.affine = layers.Dense(
            2 * width, kernel_initializer=keras.initializers.RandomNormal(stddev=0.2), name="affine"
        )
        self.norm = layers.LayerNormalization(center=False, scale=False, epsilon=1e-5, name="norm")

    def call(self, h, code):
        gamma, beta = tf.split(self.affine(code), 2, axis=-1)
        return (1.0 + gamma) * self.norm(h) + beta


class Generated(layers.Layer):
    """Dense layer whose kernel and bias are outputs of a network."""

    def __init__(self, n_in, n_out, **kw):
        super().__init__(**kw)
        self.n_in, self.n_out = n_in, n_out
        self.kernel_head = layers.Dense(
            n_in * n_out, kernel_initializer=keras.initializers.RandomNormal(stddev=0.08), name="kernel_head"
        )
        self.bias_head = layers.Dense(n_out, name="bias_head")

    def call(self, h, code):
        kernel = tf.reshape(self.kernel_head(code), [-1, self.n_in, self.n_out])
        return tf.squeeze(tf.expand_dims(h, 1) @ kernel, axis=1) + self.bias_head(code)


class ArmModel(keras.Model):
    def __init__(self):
        super().__init__(name="arm")
        self.coder = keras.Sequential(
            [layers.Dense(24, activation="tanh"), layers.Dense(CODE, activation="tanh")], name="coder"
        )
        self.inputs_ = layers.Dense(WIDTH, name="lift")
        self.film = [FiLM(WIDTH, name="film_a"), FiLM(WIDTH, name="film_b")]
        self.middle = layers.Dense(WIDTH, name="middle")
        self.squeeze = layers.Dense(10, activation="tanh", name="squeeze")
        self.generated = Generated(10, J, name="generated")

    def acceleration(self, q, dq, tau, code):
        x = tf.concat([tf.sin(q), tf.cos(q), dq / 2.0, tau / TORQUE_SCALE], -1)
        h = tf.nn.silu(self.film[0](self.inputs_(x), code))
        h = h + tf.nn.silu(self.film[1](self.middle(h), code))
        return 10.0 * self.generated(self.squeeze(h), code)

    def call(self, inputs):
        state, torque, arm = (
            (inputs["state"], inputs["torque"], inputs["arm"]) if isinstance(inputs, dict) else inputs
        )
        code = self.coder((arm - ARM_MEAN) / ARM_STD)
        q, dq = tf.split(state, 2, axis=-1)
        path = []
        for t in range(HORIZON):
            dq = dq + DT * self.acceleration(q, dq, torque[:, t], code)
            q = q + DT * dq
            path.append(tf.concat([q, dq], -1))
        return tf.stack(path, axis=1)


def rollout_loss(future, path):
    e = (tf.cast(future, path.dtype) - path) / RESIDUAL_SCALE
    huber = tf.where(tf.abs(e) < 1.0, 0.5 * e * e, tf.abs(e) - 0.5)
    return tf.reduce_sum(DISCOUNT * tf.reduce_mean(huber, -1), axis=1) / DISCOUNT.sum()


def build():
    model = ArmModel()
    model(
        {
            "state": np.zeros((1, 2 * J), "float32"),
            "torque": np.zeros((1, HORIZON, J), "float32"),
            "arm": np.zeros((1, 4), "float32"),
        }
    )
    return model
