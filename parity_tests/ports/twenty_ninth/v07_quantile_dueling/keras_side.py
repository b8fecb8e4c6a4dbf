"""QR-DQN learner head: dueling streams per quantile, quantile-Huber regression on stored targets.

y[:, 0] is the action that was taken, y[:, 1:] are samples of the bootstrapped return.
"""

import keras
from keras import layers, ops

N_ACTIONS, N_QUANT = 4, 6


class Dueling(layers.Layer):
    def call(self, value, advantage):
        v = ops.reshape(value, (-1, 1, N_QUANT))
        a = ops.reshape(advantage, (-1, N_ACTIONS, N_QUANT))
        q = v + a - ops.mean(a, axis=1, keepdims=True)
        return ops.reshape(q, (-1, N_ACTIONS * N_QUANT))


def build():
    obs = keras.Input((7,), name="x")
    z = layers.Dense(20, activation="elu", name="torso1")(obs)
    z = layers.LayerNormalization(epsilon=1e-5, name="torso_ln")(z)
    z = layers.Dense(20, activation="elu", name="torso2")(z)
    value = layers.Dense(N_QUANT, name="value")(z)
    adv = layers.Dense(N_ACTIONS * N_QUANT, name="advantage")(z)
    return keras.Model(obs, Dueling(name="q")(value, adv))


def quantile_huber(y_true, y_pred):
    pred = ops.reshape(y_pred, (-1, N_ACTIONS, N_QUANT))
    pick = ops.one_hot(ops.cast(y_true[:, 0], "int32"), N_ACTIONS, dtype=y_pred.dtype)
    theta = ops.einsum("baq,ba->bq", pred, pick)
    target = ops.cast(y_true[:, 1:], y_pred.dtype)
    u = target[:, None, :] - theta[:, :, None]  # (batch, predicted, target)
    mag = ops.abs(u)
    huber = ops.where(mag <= 1.0, 0.5 * u * u, mag - 0.5)
    tau = (ops.arange(N_QUANT, dtype=y_pred.dtype) + 0.5) / N_QUANT
    below = ops.cast(u < 0, y_pred.dtype)
    rho = ops.abs(tau[None, :, None] - below) * huber
    return ops.sum(ops.mean(rho, axis=2), axis=1)
