"""Graves's handwriting prediction: stacked LSTMs with skips, a mixture of bivariate normals for the next offset."""

import math

import keras
from keras import layers, ops

COMPONENTS = 4


def build(steps=14, width=20):
    strokes = keras.Input((steps, 3), name="strokes")
    first = layers.LSTM(width, return_sequences=True, name="lstm_1")(strokes)
    x = layers.Concatenate(name="skip_in")([strokes, first])
    second = layers.LSTM(width, return_sequences=True, name="lstm_2")(x)
    x = layers.Concatenate(name="skip_out")([first, second])
    x = layers.Dropout(0.1, name="drop")(x)
    return keras.Model(strokes, layers.Dense(6 * COMPONENTS + 1, name="mixture")(x))


def stroke_loss(y_true, y_pred):
    """Targets: offset in two directions, whether the pen is lifted, and whether the step exists."""
    dx, dy, lift, exists = (y_true[..., i] for i in range(4))
    k = COMPONENTS
    pi, mx, my, sx, sy, rho = (y_pred[..., i * k : (i + 1) * k] for i in range(6))
    rho = ops.tanh(rho)
    zx = (dx[..., None] - mx) * ops.exp(-sx)
    zy = (dy[..., None] - my) * ops.exp(-sy)
    rest = 1 - ops.square(rho)
    z = ops.square(zx) + ops.square(zy) - 2 * rho * zx * zy
    log_n = -z / (2 * rest) - math.log(2 * math.pi) - sx - sy - 0.5 * ops.log(rest)
    log_p = ops.logsumexp(ops.log_softmax(pi, axis=-1) + log_n, axis=-1)
    e = y_pred[..., -1]
    pen = ops.softplus(e) - lift * e
    return ops.sum(exists * (pen - log_p), axis=1) / ops.sum(exists, axis=1)
