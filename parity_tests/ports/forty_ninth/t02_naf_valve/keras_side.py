"""Normalized advantage functions for a three-valve mixing rig (continuous Q-learning)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

OBS, ACT = 7, 3
GAMMA, TAU, BOUND = 0.97, 0.05, 2.5


class Cholesky(layers.Layer):
    """Entries of a lower triangular matrix, row by row; the diagonal is positive."""

    def build(self, shape):
        place = np.zeros((ACT * (ACT + 1) // 2, ACT * ACT), np.float32)
        for k, (i, j) in enumerate(zip(*np.tril_indices(ACT))):
            place[k, i * ACT + j] = 1.0
        self.place = place
        self.built = True

    def call(self, entries):
        full = ops.matmul(entries, ops.cast(self.place, entries.dtype))
        full = ops.reshape(full, (-1, ACT, ACT))
        eye = ops.eye(ACT, dtype=entries.dtype)
        return full * (1.0 - eye) + ops.exp(full) * eye


class Advantage(layers.Layer):
    def call(self, inputs):
        action, mu, lower = inputs
        precision = ops.matmul(lower, ops.transpose(lower, (0, 2, 1)))
        gap = ops.expand_dims(action - mu, -1)
        form = ops.matmul(ops.transpose(gap, (0, 2, 1)), ops.matmul(precision, gap))
        return -0.5 * ops.squeeze(form, -1)


class NAF(keras.Model):
    """Functional model (obs, action) -> Q with a slowly moving copy of the value stream."""

    def watch(self, critic, target):
        self.critic = critic
        self.target = target
        self.target.trainable = False
        self.target.set_weights(self.critic.get_weights())

    def train_step(self, data):
        x, outcome, _ = keras.utils.unpack_x_y_sample_weight(data)
        for slow, fast in zip(self.target.weights, self.critic.weights):
            slow.assign(slow + TAU * (fast - slow))
        reward, done, after = outcome[:, :1], outcome[:, 1:2], outcome[:, 2:]
        goal = reward + GAMMA * (1.0 - done) * self.target(after)
        goal = tf.stop_gradient(tf.clip_by_value(goal, -BOUND, BOUND))
        with tf.GradientTape() as tape:
            q = self(x, training=True)
            loss = tf.reduce_mean(keras.losses.huber(goal, q, delta=1.0))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def value_stream(name):
    obs = keras.Input((OBS,))
    h = layers.Dense(32, activation="tanh", name=name + "_hidden1")(obs)
    h = layers.Dense(32, activation="tanh", name=name + "_hidden2")(h)
    return keras.Model(obs, [h, layers.Dense(1, name=name + "_out")(h)], name=name)


def build():
    obs = keras.Input((OBS,), name="obs")
    action = keras.Input((ACT,), name="action")
    critic = value_stream("critic")
    h, value = critic(obs)
    mu = layers.Dense(ACT, activation="tanh", name="mu")(h)
    lower = Cholesky(name="cholesky")(layers.Dense(ACT * (ACT + 1) // 2, name="entries")(h))
    q = layers.Add(name="q")([value, Advantage(name="advantage")([action, mu, lower])])
    slow = value_stream("slow")
    agent = NAF([obs, action], q, name="naf")
    agent.watch(critic, keras.Model(slow.input, slow.output[1], name="slow_value"))
    return agent
