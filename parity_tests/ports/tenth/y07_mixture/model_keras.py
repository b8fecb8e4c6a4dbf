"""A mixture density network: where a point may be, as a mixture of correlated Gaussians in the plane."""

import math

import keras
from keras import layers, ops

COMPONENTS = 5


def build():
    x = keras.Input((6,), name="x")
    h = layers.Dense(40, activation="tanh", name="hidden1")(x)
    h = layers.Dropout(0.05)(h)
    h = layers.Dense(40, activation="tanh", name="hidden2")(h)
    logits = layers.Dense(COMPONENTS, name="logits")(h)
    mean = layers.Dense(
        2 * COMPONENTS, kernel_initializer=keras.initializers.RandomNormal(stddev=0.5), name="mean"
    )(h)
    scale = layers.Dense(2 * COMPONENTS, activation="softplus", name="scale")(h)
    rho = layers.Dense(COMPONENTS, activation="tanh", name="rho")(h)
    return keras.Model(x, layers.Concatenate(name="mixture")([logits, mean, scale + 1e-2, 0.95 * rho]))


def loss(y_true, y_pred):
    y = ops.cast(y_true, y_pred.dtype)[:, :, None]
    k = COMPONENTS
    logits, rho = y_pred[:, :k], y_pred[:, 5 * k :]
    mean = ops.reshape(y_pred[:, k : 3 * k], (-1, 2, k))
    scale = ops.reshape(y_pred[:, 3 * k : 5 * k], (-1, 2, k))
    z = (y - mean) / scale
    zx, zy = z[:, 0], z[:, 1]
    rest = 1.0 - ops.square(rho)
    quadratic = (ops.square(zx) + ops.square(zy) - 2.0 * rho * zx * zy) / rest
    log_density = (
        -0.5 * quadratic - ops.sum(ops.log(scale), axis=1) - 0.5 * ops.log(rest) - math.log(2 * math.pi)
    )
    return -ops.logsumexp(ops.log_softmax(logits, axis=-1) + log_density, axis=-1)
