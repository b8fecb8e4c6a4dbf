"""A guitar amplifier as a gated causal TCN, its knobs modulating the layers (FiLM); error-to-signal ratio."""

import keras
from keras import layers, ops

DILATIONS = (1, 2, 4, 8)


def film(x, cond, i):
    c = x.shape[-1]
    gamma = layers.Reshape((1, c))(layers.Dense(c, name=f"gamma{i}")(cond))
    beta = layers.Reshape((1, c))(layers.Dense(c, name=f"beta{i}")(cond))
    return layers.Add()([layers.Add()([x, layers.Multiply()([x, gamma])]), beta])


def build():
    audio = keras.Input((64, 1), name="audio")
    knobs = keras.Input((2,), name="knobs")
    cond = layers.Dense(8, activation="tanh", name="cond")(knobs)
    h = layers.Conv1D(8, 1, name="input")(audio)
    skips = []
    for i, d in enumerate(DILATIONS):
        f = film(layers.Conv1D(8, 3, dilation_rate=d, padding="causal", name=f"filter{i}")(h), cond, i)
        g = layers.Conv1D(8, 3, dilation_rate=d, padding="causal", name=f"gate{i}")(h)
        z = layers.Multiply()([layers.Activation("tanh")(f), layers.Activation("sigmoid")(g)])
        skips.append(layers.Conv1D(6, 1, use_bias=False, name=f"skip{i}")(z))
        if d != DILATIONS[-1]:
            h = layers.Add()([h, layers.Conv1D(8, 1, name=f"res{i}")(z)])
    out = layers.Concatenate(name="all_skips")(skips)
    out = layers.Conv1D(1, 1, name="mixer")(out)
    return keras.Model([audio, knobs], out)


def pre_emphasis(x):
    return ops.concatenate([x[:, :1], x[:, 1:] - 0.85 * x[:, :-1]], axis=1)


def esr_dc(y, out):
    y = ops.cast(y, out.dtype)
    yp, op = pre_emphasis(y), pre_emphasis(out)
    esr = ops.sum(ops.square(yp - op), axis=(1, 2)) / (ops.sum(ops.square(yp), axis=(1, 2)) + 1e-5)
    dc = ops.square(ops.mean(y - out, axis=(1, 2))) / (ops.mean(ops.square(y), axis=(1, 2)) + 1e-5)
    return ops.mean(esr + dc)
