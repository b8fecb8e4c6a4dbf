"""Speaker embedding net: trainable PCEN front end on mel energies, separable
convolutions with squeeze-excite, attentive statistics pooling, cosine head.
Trained with an additive-margin softmax.
"""

import keras
import numpy as np
from keras import layers, ops

FRAMES, MELS, SPEAKERS, EMB = 48, 20, 10, 16
MARGIN, SCALE = 0.2, 15.0


class PCEN(layers.Layer):
    """Per-channel energy normalisation with a first-order IIR smoother."""

    def __init__(self, floor=1e-6, **kw):
        super().__init__(**kw)
        self.floor = floor

    def build(self, shape):
        n = shape[-1]
        const = keras.initializers.Constant
        self.log_alpha = self.add_weight(name="log_alpha", shape=(n,), initializer=const(float(np.log(0.8))))
        self.log_delta = self.add_weight(name="log_delta", shape=(n,), initializer=const(float(np.log(2.0))))
        self.log_root = self.add_weight(name="log_root", shape=(n,), initializer=const(float(np.log(0.5))))
        self.smooth = self.add_weight(name="smooth", shape=(n,), initializer=const(-1.5))

    def call(self, e):
        s = ops.sigmoid(self.smooth)
        m = e[:, 0]
        track = [m]
        for t in range(1, e.shape[1]):
            m = (1.0 - s) * m + s * e[:, t]
            track.append(m)
        m = ops.stack(track, axis=1)
        alpha, delta, root = ops.exp(self.log_alpha), ops.exp(self.log_delta), ops.exp(self.log_root)
        gain = ops.exp(-alpha * ops.log(self.floor + m))
        return (e * gain + delta) ** root - delta**root


class CosineHead(layers.Layer):
    def __init__(self, classes, **kw):
        super().__init__(**kw)
        self.classes = classes

    def build(self, shape):
        self.centres = self.add_weight(
            name="centres", shape=(shape[-1], self.classes), initializer="glorot_normal"
        )

    def call(self, x):
        return ops.matmul(ops.normalize(x, axis=-1), ops.normalize(self.centres, axis=0))


def squeeze_excite(x, name):
    c = x.shape[-1]
    w = layers.GlobalAveragePooling1D(name=name + "_gap")(x)
    w = layers.Dense(c // 4, activation="silu", name=name + "_down")(w)
    w = layers.Dense(c, activation="hard_sigmoid", name=name + "_up")(w)
    return layers.Multiply(name=name + "_scale")([x, layers.Reshape((1, c))(w)])


def stats_pool(x, name):
    c = x.shape[-1]
    a = layers.Dense(12, activation="tanh", name=name + "_att1")(x)
    a = layers.Dense(c, use_bias=False, name=name + "_att2")(a)
    a = layers.Softmax(axis=1)(a)
    mean = ops.sum(a * x, axis=1)
    var = ops.sum(a * ops.square(x), axis=1) - ops.square(mean)
    std = ops.sqrt(ops.relu(var) + 1e-5)
    return ops.concatenate([mean, std], axis=-1)


def build():
    inp = keras.Input((FRAMES, MELS), name="x")
    x = PCEN(name="pcen")(inp)
    x = layers.SeparableConv1D(24, 5, strides=2, padding="same", name="sep1")(x)
    x = layers.LayerNormalization(name="norm1")(x)
    x = layers.Activation("relu")(x)
    x = squeeze_excite(x, "se1")
    y = layers.SeparableConv1D(24, 3, dilation_rate=3, padding="same", depth_multiplier=2, name="sep2")(x)
    y = layers.LayerNormalization(name="norm2")(y)
    y = layers.Activation("relu")(y)
    x = layers.Add()([x, y])
    x = stats_pool(x, "pool")
    x = layers.Dense(EMB, name="embed")(x)
    return keras.Model(inp, CosineHead(SPEAKERS, name="head")(x), name="pcen_speaker")


def am_softmax(y_true, y_pred):
    y = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), SPEAKERS, dtype=y_pred.dtype)
    logits = SCALE * (y_pred - MARGIN * y)
    return ops.mean(keras.losses.categorical_crossentropy(y, logits, from_logits=True))
