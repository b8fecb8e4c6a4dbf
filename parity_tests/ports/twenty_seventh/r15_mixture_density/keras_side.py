import math

import keras
from keras import layers, ops

K, D = 4, 2


def residual(x, c, dilation, name):
    h = layers.Conv1D(c, 3, padding="causal", dilation_rate=dilation, activation="tanh", name=name + "_f")(x)
    g = layers.Conv1D(c, 3, padding="causal", dilation_rate=dilation, activation="sigmoid", name=name + "_g")(
        x
    )
    z = layers.Multiply()([h, g])
    return layers.Add()([x, layers.Conv1D(c, 1, name=name + "_o")(z)]), z


def build():
    inp = keras.Input((16, 3), name="x")
    x = layers.Conv1D(8, 1, name="inproj")(inp)
    skips = []
    for i, d in enumerate((1, 2, 4)):
        x, s = residual(x, 8, d, f"block{i}")
        skips.append(s)
    s = layers.Activation("relu")(layers.Add()(skips + [x]))
    last = s[:, -1]
    h = layers.Dense(16, activation="selu", name="hidden")(last)
    out = layers.Concatenate(name="params")(
        [layers.Dense(K, name="pi")(h), layers.Dense(K * D, name="mu")(h), layers.Dense(K * D, name="rho")(h)]
    )
    return keras.Model(inp, out, name="mdn_tcn")


def mdn_nll(y_true, y_pred):
    log_pi = ops.log_softmax(y_pred[:, :K], axis=-1)
    mu = ops.reshape(y_pred[:, K : K + K * D], (-1, K, D))
    sigma = ops.softplus(ops.reshape(y_pred[:, K + K * D :], (-1, K, D))) + 1e-2
    z = (ops.expand_dims(y_true, 1) - mu) / sigma
    log_n = -0.5 * ops.square(z) - ops.log(sigma) - 0.5 * math.log(2 * math.pi)
    return -ops.logsumexp(log_pi + ops.sum(log_n, axis=-1), axis=-1)
