"""Discrete soft actor-critic for the vents and heaters of a greenhouse.

A state is six readings of five sensors; some of the actions are locked out in some states.
"""

import keras
import tensorflow as tf
from keras import layers, ops

READINGS, SENSORS, ACTIONS = 6, 5, 7
WIDTH = 48
TAU = 0.02
ENTROPY_SHARE = 0.6


@keras.saving.register_keras_serializable()
class EnsembleDense(layers.Layer):
    """One dense layer for each member: (members, batch, in) -> (members, batch, out)."""

    def __init__(self, members, units, **kwargs):
        super().__init__(**kwargs)
        self.members, self.units = members, units

    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.members, shape[-1], self.units),
            initializer=keras.initializers.VarianceScaling(1.0, "fan_in", "uniform"),
        )
        self.bias = self.add_weight(name="bias", shape=(self.members, 1, self.units), initializer="zeros")

    def call(self, x):
        return ops.matmul(x, self.kernel) + self.bias

    def compute_output_shape(self, shape):
        return (self.members, shape[1], self.units)


class TwinCritic(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.stem = layers.Conv1D(12, 3, activation="silu", name="stem")
        self.flat = layers.Flatten()
        self.first = EnsembleDense(2, WIDTH, name="first")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.second = EnsembleDense(2, WIDTH, name="second")
        self.value = EnsembleDense(2, ACTIONS, name="value")

    def call(self, obs):
        x = self.flat(self.stem(obs))
        x = ops.stack([x, x])
        x = ops.silu(self.norm(self.first(x)))
        x = ops.silu(self.second(x))
        return self.value(x)  # (2, batch, actions)


class Policy(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mix = layers.Conv1D(16, 3, activation="silu", name="mix")
        self.flat = layers.Flatten()
        self.hidden = layers.Dense(WIDTH, activation="silu", name="hidden")
        self.logits = layers.Dense(ACTIONS, name="logits")

    def call(self, obs, legal):
        x = self.logits(self.hidden(self.flat(self.mix(obs))))
        x = ops.where(legal > 0, x, ops.full_like(x, -1e9))
        return ops.log_softmax(x, axis=-1)


def _named(group, names):
    return [group[n] for n in names] if isinstance(group, dict) else list(group)


class GreenhouseSAC(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.policy = Policy(name="policy")
        self.critic = TwinCritic(name="critic")
        self.target_critic = TwinCritic(name="target_critic")
        self.target_critic.trainable = False
        self.log_alpha = self.add_weight(
            name="log_alpha", shape=(), initializer=keras.initializers.Constant(-1.0)
        )
        obs, legal = ops.zeros((1, READINGS, SENSORS)), ops.ones((1, ACTIONS))
        self.policy(obs, legal)
        self.critic(obs)
        self.target_critic(obs)
        self.target_critic.set_weights(self.critic.get_weights())
        self.built = True

    def call(self, inputs):
        legal, _, _, obs = _named(inputs, ("legal", "next_legal", "next_obs", "obs"))
        return ops.exp(self.policy(obs, legal))

    def track(self):
        for slow, fast in zip(self.target_critic.weights, self.critic.weights):
            slow.assign(slow + TAU * (fast - slow))

    def sac_loss(self, inputs, targets):
        legal, next_legal, next_obs, obs = _named(inputs, ("legal", "next_legal", "next_obs", "obs"))
        action, discount, reward = _named(targets, ("action", "discount", "reward"))
        alpha = ops.stop_gradient(ops.exp(self.log_alpha))

        next_logp = self.policy(next_obs, next_legal)
        next_q = ops.min(self.target_critic(next_obs), axis=0)
        next_v = ops.sum(ops.exp(next_logp) * (next_q - alpha * next_logp), axis=-1)
        backup = ops.stop_gradient(reward + discount * next_v)

        q = self.critic(obs)
        taken = ops.sum(q * ops.one_hot(action, ACTIONS, dtype=q.dtype), axis=-1)
        critic_loss = ops.mean(ops.sum(0.5 * ops.square(taken - backup), axis=0))

        logp = self.policy(obs, legal)
        p = ops.exp(logp)
        advantage = alpha * logp - ops.stop_gradient(ops.min(q, axis=0))
        actor_loss = ops.mean(ops.sum(p * advantage, axis=-1))

        entropy = ops.stop_gradient(-ops.sum(p * logp, axis=-1))
        wanted = ENTROPY_SHARE * ops.log(ops.sum(legal, axis=-1))
        alpha_loss = self.log_alpha * ops.mean(entropy - wanted)
        return critic_loss + actor_loss + alpha_loss

    def train_step(self, data):
        inputs, targets = data[0], data[1]
        self.track()
        with tf.GradientTape() as tape:
            loss = self.sac_loss(inputs, targets)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def build():
    return GreenhouseSAC(name="greenhouse_sac")
