import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

K = 4
GRID = ((np.stack(np.meshgrid(np.arange(16), np.arange(16)), -1) + 0.5) / 16).reshape(-1, 2).astype("float32")


def residual(x, ch, name):
    y = L.Activation("relu", name=f"{name}_pre")(L.GroupNormalization(4, axis=-1, name=f"{name}_gn1")(x))
    y = L.Conv2D(ch // 2, 1, use_bias=False, name=f"{name}_reduce")(y)
    y = L.ReLU()(L.GroupNormalization(4, name=f"{name}_gn2")(y))
    y = L.Conv2D(ch, 3, padding="same", name=f"{name}_conv")(y)
    if x.shape[-1] != ch:
        x = L.Conv2D(ch, 1, name=f"{name}_skip")(x)
    return L.add([x, y])


def hourglass(x, depth, ch, name):
    skip = L.SeparableConv2D(ch, 3, padding="same", name=f"{name}_lateral{depth}")(x)
    low = residual(L.MaxPooling2D()(x), ch, f"{name}_down{depth}")
    if depth > 1:
        low = hourglass(low, depth - 1, ch, name)
    return skip + L.UpSampling2D(interpolation="bilinear")(low)


class SoftArgmax(L.Layer):
    def __init__(self, beta=8.0, **kw):
        super().__init__(**kw)
        self.beta = beta

    def call(self, h):
        p = tf.nn.softmax(tf.reshape(h * self.beta, (-1, 256, K)), axis=1)
        return tf.einsum("npk,pc->nkc", p, tf.cast(GRID, h.dtype))


def build():
    inp = keras.Input((32, 32, 1), name="image")
    x = L.Conv2D(16, 5, strides=2, padding="same", activation="relu", name="stem")(inp)
    x = hourglass(x, 2, 16, "hg")
    x = residual(x, 24, "post")
    heat = L.Conv2D(K, 1, bias_initializer=keras.initializers.Constant(0.05), name="heatmaps")(x)
    return keras.Model(inp, {"heat": heat, "coords": SoftArgmax(name="softargmax")(heat)})


def heat_loss(t, p):
    return tf.reduce_mean((1.0 + 10.0 * t) * tf.math.squared_difference(t, p), axis=[1, 2, 3])


def coord_loss(t, p):
    vis = t[..., 2]
    e = tf.abs(t[..., :2] - p)
    h = tf.reduce_sum(tf.where(e <= 0.1, 0.5 * e * e, 0.1 * e - 0.005), -1)
    return tf.reduce_sum(h * vis, -1) / tf.maximum(tf.reduce_sum(vis, -1), 1.0)
