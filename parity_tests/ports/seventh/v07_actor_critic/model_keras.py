"""PPO for continuous control: an agent whose train_step is one update on a batch of a rollout."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

ACTIONS = 2


def mlp(units, out, scale):
    return keras.Sequential(
        [
            layers.Dense(u, activation="tanh", kernel_initializer=keras.initializers.Orthogonal(math.sqrt(2)))
            for u in units
        ]
        + [layers.Dense(out, kernel_initializer=keras.initializers.Orthogonal(scale))]
    )


class Agent(keras.Model):
    """Observations in; mean and log of the deviation of the action, and the value, out."""

    clip, value_weight, entropy_weight = 0.2, 0.5, 0.01

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.actor = mlp((32, 32), ACTIONS, 0.01)
        self.critic = mlp((32, 24), 1, 1.0)

    def build(self, shape):
        self.log_std = self.add_weight(
            shape=(ACTIONS,), initializer=keras.initializers.Constant(-0.5), name="log_std"
        )
        self.actor.build(shape)
        self.critic.build(shape)

    def call(self, observation):
        mean = self.actor(observation)
        return mean, ops.zeros_like(mean) + self.log_std, self.critic(observation)[:, 0]

    def objective(self, observation, rollout):
        action, old_logp, advantage, returns = (
            rollout[:, :ACTIONS],
            rollout[:, ACTIONS],
            rollout[:, ACTIONS + 1],
            rollout[:, ACTIONS + 2],
        )
        mean, log_std, value = self(observation, training=True)
        advantage = (advantage - ops.mean(advantage)) / (ops.std(advantage) + 1e-8)
        z = (action - mean) * ops.exp(-log_std)
        logp = ops.sum(-0.5 * ops.square(z) - log_std - 0.5 * math.log(2 * math.pi), axis=-1)
        ratio = ops.exp(logp - old_logp)
        gain = ops.minimum(ratio * advantage, ops.clip(ratio, 1 - self.clip, 1 + self.clip) * advantage)
        entropy = ops.sum(log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)
        value_loss = 0.5 * ops.square(returns - value)
        return ops.mean(-gain + self.value_weight * value_loss - self.entropy_weight * entropy)

    def train_step(self, data):
        observation, rollout = data
        with tf.GradientTape() as tape:
            loss = self.objective(observation, rollout)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    agent = Agent()
    agent.build((None, 8))
    return agent
