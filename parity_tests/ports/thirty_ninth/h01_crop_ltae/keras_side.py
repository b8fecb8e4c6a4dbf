"""Crop types of parcels from Sentinel-2 time series: pixel MLP + lightweight temporal attention."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

STEPS, BANDS, CLASSES = 18, 6, 6
WIDTH, HEADS, KEY = 32, 4, 8
BAND_MEAN = np.array([0.09, 0.11, 0.12, 0.28, 0.22, 0.15], dtype=np.float32)
BAND_STD = np.array([0.04, 0.04, 0.06, 0.10, 0.08, 0.07], dtype=np.float32)


def day_table(width, days=366, base=1000.0):
    day = np.arange(days + 1)[:, None].astype("float32")
    i = np.arange(width)[None, :]
    angle = day / np.power(base, 2 * (i // 2) / width)
    table = np.where(i % 2 == 0, np.sin(angle), np.cos(angle))
    return table.astype("float32")


class DayEncoding(layers.Layer):
    def __init__(self, width, **kw):
        super().__init__(**kw)
        self.table = tf.constant(day_table(width))

    def call(self, inputs):
        x, doy = inputs
        return x + tf.cast(tf.gather(self.table, tf.cast(doy, "int32")), x.dtype)


class TemporalAttention(layers.Layer):
    """A learned master query a head; the channels are split among the heads as values."""

    def __init__(self, heads, key, **kw):
        super().__init__(**kw)
        self.heads, self.key_dim = heads, key
        self.to_key = layers.Dense(heads * key, name="key")

    def build(self, shape):
        self.query = self.add_weight(
            name="query",
            shape=(self.heads, self.key_dim),
            initializer=keras.initializers.RandomNormal(stddev=0.35),
        )
        self.to_key.build(shape[0])
        self.built = True

    def call(self, inputs):
        x, doy = inputs
        t, c = x.shape[1], x.shape[2]
        k = ops.reshape(self.to_key(x), (-1, t, self.heads, self.key_dim))
        score = ops.einsum("bthk,hk->bht", k, self.query) / np.float32(np.sqrt(self.key_dim))
        seen = ops.cast(ops.not_equal(doy, 0), x.dtype)[:, None, :]
        a = ops.softmax(score - (1.0 - seen) * 1e9, axis=-1)
        v = ops.reshape(x, (-1, t, self.heads, c // self.heads))
        return ops.reshape(ops.einsum("bht,bthd->bhd", a, v), (-1, c))


def build():
    x_in = keras.Input((STEPS, BANDS), name="x")
    doy = keras.Input((STEPS,), dtype="int32", name="doy")
    x = layers.Normalization(mean=BAND_MEAN, variance=BAND_STD**2, name="bands")(x_in)
    x = layers.Dense(24, use_bias=False, name="mlp1")(x)
    x = layers.BatchNormalization(name="mlp1_bn")(x)
    x = layers.Activation("relu")(x)
    x = layers.Dense(WIDTH, use_bias=False, name="mlp2")(x)
    x = layers.BatchNormalization(name="mlp2_bn")(x)
    x = layers.ReLU()(x)
    x = layers.GroupNormalization(groups=HEADS, name="in_norm")(x)
    x = DayEncoding(WIDTH, name="day")([x, doy])
    x = TemporalAttention(HEADS, KEY, name="ltae")([x, doy])
    x = layers.Dense(32, name="fc")(x)
    x = layers.BatchNormalization(name="fc_bn", momentum=0.9)(x)
    x = layers.Activation("gelu")(x)
    x = layers.Dropout(0.1)(x)
    return keras.Model([x_in, doy], layers.Dense(CLASSES, name="crop")(x), name="crop_ltae")
