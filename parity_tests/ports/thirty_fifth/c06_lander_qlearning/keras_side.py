"""Duelling double DQN for a small lander, trained on a fixed batch of transitions.

x: observations; y: packed transitions [action, reward, done, next observation...].
"""

import keras
import tensorflow as tf
from keras import layers, ops

OBS, ACTIONS, GAMMA, TAU = 6, 4, 0.95, 0.05


def q_network(name):
    inp = keras.Input((OBS,))
    h = layers.Dense(24, activation="tanh", name="h1")(inp)
    h = layers.Dense(24, activation="tanh", name="h2")(h)
    value = layers.Dense(1, name="value")(h)
    adv = layers.Dense(ACTIONS, name="advantage")(h)
    centred = layers.Lambda(lambda a: a - ops.mean(a, axis=-1, keepdims=True), name="centre")(adv)
    return keras.Model(inp, layers.Add(name="q")([value, centred]), name=name)


class DoubleDQN(keras.Model):
    def __init__(self):
        super().__init__(name="double_dqn")
        self.online = q_network("online")
        self.target = q_network("target")
        self.target.set_weights(self.online.get_weights())
        self.target.trainable = False

    def call(self, obs, training=None):
        return self.online(obs, training=training)

    def follow(self):
        for t, o in zip(self.target.variables, self.online.variables):
            t.assign(t + TAU * (o - t))

    def td_loss(self, obs, packed):
        action = tf.cast(packed[:, 0], tf.int32)
        reward, done, following = packed[:, 1], packed[:, 2], packed[:, 3:]
        best = tf.argmax(self.online(following), axis=-1)
        bootstrap = tf.gather(self.target(following), best, axis=1, batch_dims=1)
        goal = tf.stop_gradient(reward + GAMMA * (1.0 - done) * bootstrap)
        chosen = tf.gather(self.online(obs, training=True), action, axis=1, batch_dims=1)
        return keras.losses.Huber(delta=1.0)(goal[:, None], chosen[:, None])

    def train_step(self, data):
        obs, packed, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.follow()  # before the update: lags one step
        with tf.GradientTape() as tape:
            loss = self.td_loss(obs, packed)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    model = DoubleDQN()
    model(ops.zeros((1, OBS)))
    model.compile(optimizer=keras.optimizers.Adam(2e-3))
    return model
