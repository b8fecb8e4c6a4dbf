"""Implicit Q-learning (Kostrikov et al.): control learnt from recorded transitions alone."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

GAMMA, EXPECTILE, TEMPERATURE = 0.98, 0.8, 3.0


def mlp(outputs, name, trainable=True):
    net = keras.Sequential(
        [layers.Dense(32, activation="relu"), layers.Dense(32, activation="relu"), layers.Dense(outputs)],
        name=name,
    )
    net.trainable = trainable
    return net


class ImplicitQ(keras.Model):
    def __init__(self):
        super().__init__()
        self.q1, self.q2 = mlp(1, "q1"), mlp(1, "q2")
        self.target1, self.target2 = mlp(1, "target1", False), mlp(1, "target2", False)
        self.value = mlp(1, "value")
        self.policy = mlp(2, "policy")
        self.log_std = self.add_weight(
            shape=(2,), initializer=keras.initializers.Constant(-0.5), name="log_std"
        )

    def log_probability(self, obs, action):
        mean = tf.tanh(self.policy(obs))
        log_std = tf.clip_by_value(tf.convert_to_tensor(self.log_std), -5, 2)
        z = (action - mean) * tf.exp(-log_std)
        return -tf.reduce_sum(0.5 * tf.square(z) + log_std + 0.5 * np.log(2 * np.pi), axis=-1)

    def call(self, inputs):
        obs, action = inputs["obs"], inputs["action"]
        both = tf.concat([obs, action], axis=-1)
        return {
            "q": tf.concat([self.q1(both), self.q2(both)], axis=-1),
            "target": tf.minimum(self.target1(both), self.target2(both))[:, 0],
            "value": self.value(obs)[:, 0],
            "log_probability": self.log_probability(obs, action),
        }

    def train_step(self, data):
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        reward = tf.reshape(inputs["reward"], (-1,))
        going_on = 1 - tf.reshape(inputs["done"], (-1,))
        with tf.GradientTape() as tape:
            out = self(inputs, training=True)
            advantage = tf.stop_gradient(out["target"]) - out["value"]
            share = tf.where(advantage > 0, tf.cast(EXPECTILE, advantage.dtype), 1 - EXPECTILE)
            value_loss = tf.reduce_mean(share * tf.square(advantage))
            ahead = tf.stop_gradient(self.value(inputs["next_obs"])[:, 0])
            backup = reward + GAMMA * going_on * ahead
            q_loss = tf.reduce_mean(tf.square(out["q"] - backup[:, None]))
            weight = tf.stop_gradient(tf.minimum(tf.exp(TEMPERATURE * advantage), 100.0))
            policy_loss = -tf.reduce_mean(weight * out["log_probability"])
            loss = value_loss + q_loss + policy_loss
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss, "value": value_loss, "q": q_loss, "policy": policy_loss}


def build():
    return ImplicitQ()
