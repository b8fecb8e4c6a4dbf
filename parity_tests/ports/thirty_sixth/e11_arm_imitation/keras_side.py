"""Cloning of a demonstrator's arm: mixture of Gaussians over the joint velocities, modulated by the goal."""

import math

import keras
from keras import layers, ops

STATE, GOAL, JOINTS, PARTS = 8, 3, 3, 4


@keras.saving.register_keras_serializable("arm")
class Film(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.scale = layers.Dense(units, name="scale")
        self.shift = layers.Dense(units, name="shift")

    def build(self, shapes):
        self.scale.build(shapes[1])
        self.shift.build(shapes[1])
        self.built = True

    def call(self, pair):
        x, goal = pair
        return x * (1 + self.scale(goal)) + self.shift(goal)


def build():
    state = keras.Input((STATE,), name="state")
    goal = keras.Input((GOAL,), name="goal")
    g = layers.Dense(8, activation="tanh", name="goal_code")(goal)
    x = state
    for i in range(2):
        x = layers.Dense(24, name=f"dense{i}")(x)
        x = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}")(x)
        x = Film(24, name=f"film{i}")([x, g])
        x = layers.Activation("silu", name=f"act{i}")(x)
    weights = layers.Dense(PARTS, name="weights")(x)
    means = layers.Dense(PARTS * JOINTS, name="means")(x)
    spreads = layers.Dense(PARTS * JOINTS, name="spreads")(x)
    return keras.Model(
        [state, goal], layers.Concatenate(name="mixture")([weights, means, spreads]), name="arm_policy"
    )


def mixture_nll(action, mixture):
    logits = mixture[:, :PARTS]
    means, spreads = (ops.reshape(v, (-1, PARTS, JOINTS)) for v in ops.split(mixture[:, PARTS:], 2, axis=1))
    log_std = 3 * ops.tanh(spreads / 3) - 1
    z = (ops.expand_dims(action, 1) - means) * ops.exp(-log_std)
    log_n = ops.sum(-0.5 * ops.square(z) - log_std - 0.5 * math.log(2 * math.pi), axis=-1)
    return ops.mean(-ops.logsumexp(ops.log_softmax(logits, axis=-1) + log_n, axis=-1))


def optimizer():
    rate = keras.optimizers.schedules.ExponentialDecay(0.02, decay_steps=10, decay_rate=0.8)
    return keras.optimizers.SGD(rate, clipnorm=1.0)
