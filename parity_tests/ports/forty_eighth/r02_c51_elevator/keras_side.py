"""Categorical (C51) dueling agent with double Q-learning, for the dispatch of lifts."""

import keras
import tensorflow as tf
from keras import layers, ops

FLOORS = 12
FEATURES = 6
ACTIONS = 4
ATOMS = 21
V_MIN, V_MAX = -10.0, 10.0
DELTA = (V_MAX - V_MIN) / (ATOMS - 1)
TAU = 0.05
FIELDS = ("action", "reward", "discount", "weight", "next_obs")


def network(name):
    obs = keras.Input((FLOORS, FEATURES), name="obs")
    x = layers.Conv1D(24, 3, padding="same", activation="relu", name="conv1")(obs)
    x = layers.Conv1D(24, 3, padding="same", dilation_rate=2, activation="relu", name="conv2")(x)
    x = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)])
    x = layers.Dense(48, activation="relu", name="trunk")(x)
    value = layers.Dense(32, activation="relu", name="value_hidden")(x)
    value = layers.Dense(ATOMS, name="value")(value)
    advantage = layers.Dense(32, activation="relu", name="advantage_hidden")(x)
    advantage = layers.Dense(ACTIONS * ATOMS, name="advantage")(advantage)
    value = layers.Reshape((1, ATOMS))(value)
    advantage = layers.Reshape((ACTIONS, ATOMS))(advantage)
    logits = value + advantage - ops.mean(advantage, axis=1, keepdims=True)
    return keras.Model(obs, logits, name=name)


class Dispatcher(keras.Model):
    def __init__(self):
        super().__init__(name="dispatcher")
        self.online = network("online")
        self.target = network("target")
        self.target.trainable = False
        self.target.set_weights(self.online.get_weights())

    def call(self, obs, training=False):
        return self.online(obs, training=training)

    def support(self, dtype):
        return V_MIN + DELTA * ops.arange(ATOMS, dtype=dtype)

    def distribution(self, next_obs, reward, discount):
        """The target's distribution, moved by the reward and put back on the atoms."""
        z = self.support(reward.dtype)
        q = ops.sum(ops.softmax(self.online(next_obs)) * z, axis=-1)
        best = ops.one_hot(ops.argmax(q, axis=-1), ACTIONS, dtype=reward.dtype)
        p = ops.sum(ops.softmax(self.target(next_obs)) * best[..., None], axis=1)
        moved = ops.clip(reward[:, None] + discount[:, None] * z[None], V_MIN, V_MAX)
        overlap = ops.abs(moved[:, None, :] - z[None, :, None]) / DELTA
        return ops.sum(ops.clip(1.0 - overlap, 0.0, 1.0) * p[:, None, :], axis=-1)

    def train_step(self, data):
        obs, transition = data[0], data[1]
        if isinstance(obs, dict):
            obs = obs["obs"]
        if not isinstance(transition, dict):
            transition = dict(zip(FIELDS, transition))
        for slow, fast in zip(self.target.weights, self.online.weights):
            slow.assign(slow + TAU * (fast - slow))
        dtype = self.compute_dtype
        reward = ops.cast(transition["reward"], dtype)
        discount = ops.cast(transition["discount"], dtype)
        weight = ops.cast(transition["weight"], dtype)
        wanted = ops.stop_gradient(self.distribution(transition["next_obs"], reward, discount))
        taken = ops.one_hot(ops.cast(transition["action"], "int32"), ACTIONS, dtype=dtype)
        with tf.GradientTape() as tape:
            logits = self.online(obs, training=True)
            chosen = ops.sum(logits * taken[..., None], axis=1)
            nll = -ops.sum(wanted * ops.log_softmax(chosen), axis=-1)
            loss = ops.mean(weight * nll)
        variables = self.online.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def build():
    model = Dispatcher()
    model(ops.zeros((1, FLOORS, FEATURES)))
    return model
