"""MuZero on a grid world with keys and doors: representation, dynamics and prediction, trained on an unrolled trajectory."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SIDE, PLANES, ACTIONS, UNROLL = 6, 5, 4, 4
CHANNELS, SUPPORT = 16, 8  # of values from -8 to 8 after the transform
VALUE_WEIGHT, REWARD_WEIGHT = 0.25, 1.0


def transform(x):
    return ops.sign(x) * (ops.sqrt(ops.abs(x) + 1.0) - 1.0) + 0.001 * x


def two_hot(x):
    """Weights on the two neighbouring atoms of the support."""
    x = ops.clip(transform(x), -SUPPORT, SUPPORT)
    atoms = ops.arange(-SUPPORT, SUPPORT + 1, dtype=x.dtype)
    return ops.maximum(1.0 - ops.abs(x[..., None] - atoms), 0.0)


def scale_gradient(x, factor):
    return factor * x + (1.0 - factor) * ops.stop_gradient(x)


def unit_range(state):
    """Each channel to [0, 1] over the board."""
    low = ops.min(state, axis=(1, 2), keepdims=True)
    high = ops.max(state, axis=(1, 2), keepdims=True)
    return (state - low) / ops.maximum(high - low, 1e-5)


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Conv2D(CHANNELS, 3, padding="same", use_bias=False, name="first")
        self.first_norm = layers.LayerNormalization(axis=(1, 2, 3), name="first_norm")
        self.second = layers.Conv2D(CHANNELS, 3, padding="same", use_bias=False, name="second")
        self.second_norm = layers.LayerNormalization(axis=(1, 2, 3), name="second_norm")

    def build(self, shape):
        for part in (self.first, self.first_norm, self.second, self.second_norm):
            part.build(shape)
        super().build(shape)

    def call(self, x):
        y = ops.relu(self.first_norm(self.first(x)))
        return ops.relu(x + self.second_norm(self.second(y)))


def head(size, name):
    return keras.Sequential(
        [
            layers.Conv2D(2, 1, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(size),
        ],
        name=name,
    )


class MuZero(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encode = layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="encode")
        self.encode_block = Block(name="encode_block")
        self.move = layers.Conv2D(CHANNELS, 3, padding="same", name="move")
        self.move_block = Block(name="move_block")
        self.reward_head = head(2 * SUPPORT + 1, "reward_head")
        self.policy_head = head(ACTIONS, "policy_head")
        self.value_head = head(2 * SUPPORT + 1, "value_head")

    def represent(self, observation):
        return unit_range(self.encode_block(self.encode(observation)))

    def dynamics(self, state, action):
        plane = ops.one_hot(action, ACTIONS, dtype=state.dtype)[:, None, None]
        plane = ops.broadcast_to(plane, (ops.shape(state)[0], SIDE, SIDE, ACTIONS))
        after = self.move_block(ops.relu(state + self.move(ops.concatenate([state, plane], axis=-1))))
        return unit_range(after), self.reward_head(after)

    def call(self, inputs, training=None):
        observation, actions = named(inputs, ("observation", "actions"))
        actions = ops.cast(actions, "int32")
        state = self.represent(observation)
        policies, values, rewards = [self.policy_head(state)], [self.value_head(state)], []
        for k in range(UNROLL):
            state, reward = self.dynamics(state, actions[:, k])
            rewards.append(reward)
            policies.append(self.policy_head(state))
            values.append(self.value_head(state))
            state = scale_gradient(state, 0.5)
        return ops.stack(policies, axis=1), ops.stack(values, axis=1), ops.stack(rewards, axis=1)

    def train_step(self, data):
        inputs, targets = data
        policy, value, reward, alive = named(targets, ("policy", "value", "reward", "alive"))
        with tf.GradientTape() as tape:
            policies, values, rewards = self(inputs, training=True)
            loss = unrolled_loss(policies, values, rewards, policy, value, reward, alive)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def named(values, names):
    return [values[n] for n in names] if isinstance(values, dict) else list(values)


def cross_entropy(target, logits):
    return -ops.sum(target * ops.log_softmax(logits, axis=-1), axis=-1)


def unrolled_loss(policies, values, rewards, policy, value, reward, alive):
    """Past the end of an episode there is no policy to learn; value and reward are learnt to be 0 there.

    The gradient of each unrolled step is scaled by 1 / number of steps, the loss itself is not.
    """
    dtype = policies.dtype
    alive = ops.cast(alive, dtype)
    policy_loss = cross_entropy(ops.cast(policy, dtype), policies) * alive
    value_loss = cross_entropy(two_hot(ops.cast(value, dtype)), values)
    reward_loss = cross_entropy(two_hot(ops.cast(reward, dtype)), rewards)
    total = policy_loss[:, 0] + VALUE_WEIGHT * value_loss[:, 0]
    for k in range(UNROLL):
        step = policy_loss[:, k + 1] + VALUE_WEIGHT * value_loss[:, k + 1] + REWARD_WEIGHT * reward_loss[:, k]
        total = total + scale_gradient(step, 1.0 / UNROLL)
    return ops.mean(total)


def build():
    model = MuZero(name="muzero")
    model(
        {
            "observation": np.zeros((1, SIDE, SIDE, PLANES), keras.config.floatx()),
            "actions": np.zeros((1, UNROLL), "int32"),
        }
    )
    return model
