"""Neural dynamic movement primitives: a laser scan and the arm's state give the trajectory of a pouring motion."""

import keras
import numpy as np
from keras import layers, ops

BEAMS, STEPS, DOFS, KERNELS = 64, 30, 2, 10
ALPHA_X, ALPHA_Z = 4.0, 25.0
BETA_Z = ALPHA_Z / 4
DT = 1.0 / STEPS

CENTRES = np.exp(-ALPHA_X * np.linspace(0.0, 1.0, KERNELS))
WIDTHS = 1.0 / (0.55 * np.diff(CENTRES)) ** 2
WIDTHS = np.append(WIDTHS, WIDTHS[-1]).astype(np.float32)
CENTRES = CENTRES.astype(np.float32)
BEAM_ANGLES = (2 * np.pi * np.arange(BEAMS // 4) / (BEAMS // 4)).astype(np.float32)
BEARINGS = np.stack([np.cos(BEAM_ANGLES), np.sin(BEAM_ANGLES)], -1)


@keras.saving.register_keras_serializable("pouring")
class RingConv(layers.Layer):
    """A convolution over a full turn of the scanner: the last beam is the neighbour of the first."""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.conv = layers.Conv1D(filters, 5, strides=2)
        self.norm = layers.GroupNormalization(groups=4, epsilon=1e-5)

    def build(self, shape):
        self.conv.build((shape[0], shape[1] + 4, shape[2]))
        self.norm.build((shape[0], shape[1] // 2, self.conv.filters))

    def call(self, x):
        x = ops.concatenate([x[:, -2:], x, x[:, :2]], axis=1)
        return ops.relu(self.norm(self.conv(x)))


@keras.saving.register_keras_serializable("pouring")
class SoftBearing(layers.Layer):
    """Where each feature map looks: the mean direction under a softmax over the beams."""

    def call(self, x):
        focus = ops.softmax(x, axis=1)
        directions = ops.einsum("btc,td->bcd", focus, ops.convert_to_tensor(BEARINGS, dtype=x.dtype))
        return ops.concatenate([ops.reshape(directions, (-1, 2 * x.shape[-1])), ops.max(x, axis=1)], -1)


@keras.saving.register_keras_serializable("pouring")
class MovementPrimitive(layers.Layer):
    """Integrates the transformation system under a learnt forcing term, by Euler steps."""

    def call(self, inputs):
        goal, weights, tau, start, velocity = inputs
        weights = ops.reshape(weights, (-1, DOFS, KERNELS))
        centres = ops.convert_to_tensor(CENTRES, dtype=goal.dtype)
        widths = ops.convert_to_tensor(WIDTHS, dtype=goal.dtype)
        y, z, phase = start, tau * velocity, ops.ones_like(tau)
        path = []
        for _ in range(STEPS):
            psi = ops.exp(-widths * ops.square(phase - centres))
            psi = psi / ops.sum(psi, axis=-1, keepdims=True)
            forcing = ops.einsum("bdk,bk->bd", weights, psi) * phase * (goal - start)
            dz = (ALPHA_Z * (BETA_Z * (goal - y) - z) + forcing) / tau
            dy = z / tau
            z = z + DT * dz
            y = y + DT * dy
            phase = phase - DT * ALPHA_X * phase / tau
            path.append(y)
        return ops.stack(path, axis=1)


def build():
    scan = keras.Input((BEAMS,), name="scan")
    start = keras.Input((DOFS,), name="start")
    velocity = keras.Input((DOFS,), name="velocity")
    x = layers.Reshape((BEAMS, 1))(scan)
    x = RingConv(16, name="ring1")(x)
    x = RingConv(24, name="ring2")(x)
    x = SoftBearing()(x)
    x = layers.Concatenate()([x, start, velocity])
    x = layers.Dense(64, activation="tanh", name="trunk1")(x)
    x = layers.Dense(64, activation="tanh", name="trunk2")(x)
    goal = layers.Dense(DOFS, name="goal")(x)
    weights = layers.Rescaling(50.0)(layers.Dense(DOFS * KERNELS, name="forcing")(x))
    tau = layers.Dense(1, activation="sigmoid", name="tempo")(x)
    tau = layers.Rescaling(0.75, offset=0.375)(tau)
    return keras.Model([scan, start, velocity], MovementPrimitive()([goal, weights, tau, start, velocity]))
