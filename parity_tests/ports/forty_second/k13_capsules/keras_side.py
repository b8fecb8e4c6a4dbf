# CapsNet (Sabour et al. 2017), scaled down. Gradients pass the last routing iteration only.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE, CLASSES = 14, 7
PRIMARY, PRIMARY_DIM, DIGIT_DIM, ITERATIONS = 6, 4, 8, 3
EPS = np.float32(1e-7)
M_PLUS, M_MINUS, DOWN = 0.9, 0.1, 0.5


def squash(s):
    sq = tf.reduce_sum(tf.square(s), axis=-1, keepdims=True)
    return sq / (1.0 + sq) * s / tf.sqrt(sq + EPS)


class PrimaryCaps(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.conv = layers.Conv2D(PRIMARY * PRIMARY_DIM, 4, strides=2, name="conv")

    def call(self, x):
        u = self.conv(x)
        return squash(tf.reshape(u, [-1, u.shape[1] * u.shape[2] * PRIMARY, PRIMARY_DIM]))


class DigitCaps(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(
            name="w",
            shape=(shape[1], CLASSES, shape[2], DIGIT_DIM),
            initializer=keras.initializers.RandomNormal(stddev=0.2),
        )
        self.b = self.add_weight(
            name="b", shape=(CLASSES, DIGIT_DIM), initializer=keras.initializers.Constant(0.05)
        )

    def call(self, u):
        hat = tf.einsum("bip,ijpd->bijd", u, self.w)
        frozen = tf.stop_gradient(hat)
        logits = tf.zeros_like(hat[..., :1])
        for r in range(ITERATIONS - 1):
            c = tf.nn.softmax(logits, axis=2)
            v = squash(tf.reduce_sum(c * frozen, axis=1, keepdims=True) + tf.stop_gradient(self.b))
            logits += tf.reduce_sum(frozen * v, axis=-1, keepdims=True)
        c = tf.nn.softmax(logits, axis=2)
        return squash(tf.reduce_sum(c * hat, axis=1) + self.b)


class Length(layers.Layer):
    def call(self, v):
        return tf.sqrt(tf.reduce_sum(v * v, axis=-1) + EPS)


class KeepLongest(layers.Layer):
    def call(self, inputs):
        v, length = inputs
        mask = tf.one_hot(tf.argmax(length, axis=1), CLASSES, dtype=v.dtype)
        return tf.reshape(v * mask[:, :, None], [-1, CLASSES * DIGIT_DIM])


def build():
    image = keras.Input((SIZE, SIZE, 1), name="image")
    x = layers.Conv2D(16, 5, activation="relu", name="conv1")(image)
    u = PrimaryCaps(name="primary")(x)
    v = DigitCaps(name="digitcaps")(u)
    length = Length(name="digit")(v)
    d = KeepLongest(name="longest")([v, length])
    d = layers.Dense(48, activation="relu", name="decode1")(d)
    d = layers.Dense(64, activation="relu", name="decode2")(d)
    d = layers.Dense(SIZE * SIZE, activation="sigmoid", name="recon")(d)
    return keras.Model(image, {"digit": length, "recon": d}, name="capsnet")


def margin(y, length):
    t = tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), CLASSES, dtype=length.dtype)
    up = tf.square(tf.maximum(0.0, M_PLUS - length))
    down = tf.square(tf.maximum(0.0, length - M_MINUS))
    return tf.reduce_sum(t * up + DOWN * (1.0 - t) * down, axis=1)


def reconstruction(x, out):
    return tf.reduce_sum(tf.math.squared_difference(tf.cast(x, out.dtype), out), axis=-1)
