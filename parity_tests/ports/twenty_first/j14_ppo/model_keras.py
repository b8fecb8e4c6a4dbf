import math

import keras
import tensorflow as tf
from keras import layers, ops

CLIP, VF, ENT = 0.2, 0.5, 0.01


class ActorCritic(keras.Model):
    def __init__(self, actions=2):
        super().__init__()
        self.body = [layers.Dense(32, activation="tanh"), layers.Dense(32, activation="tanh")]
        self.mean = layers.Dense(actions)
        self.value = layers.Dense(1)
        self.log_std = self.add_weight(shape=(actions,), initializer="zeros", name="log_std")

    def call(self, obs):
        h = obs
        for layer in self.body:
            h = layer(h)
        return self.mean(h), self.value(h)

    def train_step(self, data):
        obs, rollout, _ = keras.utils.unpack_x_y_sample_weight(data)
        action, rest = rollout[:, :2], rollout[:, 2:]
        adv, old_logp, ret, old_value = ops.split(rest, 4, axis=1)
        adv = (adv - ops.mean(adv)) / (ops.std(adv) + 1e-8)
        with tf.GradientTape() as tape:
            mean, value = self(obs, training=True)
            scaled = (action - mean) * ops.exp(-self.log_std)
            logp = -0.5 * scaled**2 - self.log_std - 0.5 * math.log(2 * math.pi)
            ratio = ops.exp(ops.sum(logp, axis=1, keepdims=True) - old_logp)
            surrogate = ops.minimum(ratio * adv, ops.clip(ratio, 1 - CLIP, 1 + CLIP) * adv)

            near = old_value + ops.clip(value - old_value, -CLIP, CLIP)
            critic = ops.maximum((value - ret) ** 2, (near - ret) ** 2)
            entropy = ops.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e))
            loss = -ops.mean(surrogate) + VF * ops.mean(critic) - ENT * entropy
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


def build():
    model = ActorCritic()
    model(ops.zeros((1, 8)))
    return model
