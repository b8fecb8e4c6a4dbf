import keras
import tensorflow as tf
from keras import layers, ops


class DeformSample(layers.Layer):
    """Moves each position by an offset (dy, dx) and reads the features there bilinearly."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.offset = layers.Conv2D(
            2,
            3,
            padding="same",
            name="offset",
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.1),
            bias_initializer=keras.initializers.RandomUniform(0.2, 0.5),
        )

    def call(self, x):
        n, h, w, c = tf.shape(x)[0], x.shape[1], x.shape[2], x.shape[3]
        o = self.offset(x)
        gy, gx = tf.meshgrid(tf.range(h, dtype=tf.float32), tf.range(w, dtype=tf.float32), indexing="ij")
        py = tf.clip_by_value(gy + o[..., 0], 0.0, h - 1.001)
        px = tf.clip_by_value(gx + o[..., 1], 0.0, w - 1.001)
        y0, x0 = tf.floor(py), tf.floor(px)
        wy, wx = (py - y0)[..., None], (px - x0)[..., None]
        iy, ix = tf.cast(y0, tf.int32), tf.cast(x0, tf.int32)
        flat = tf.reshape(x, (n, h * w, c))

        def read(a, b):
            i = tf.reshape(a * w + b, (n, h * w))
            return tf.reshape(tf.gather(flat, i, batch_dims=1), (n, h, w, c))

        top = read(iy, ix) * (1 - wx) + read(iy, ix + 1) * wx
        low = read(iy + 1, ix) * (1 - wx) + read(iy + 1, ix + 1) * wx
        return top * (1 - wy) + low * wy


def seg_loss(y, p):
    ce = keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
    return ops.mean(ce)


def kind_loss(y, p):
    return ops.mean(ops.binary_crossentropy(y, p, from_logits=True))


def conv(x, ch, name, **kw):
    x = layers.Conv2D(ch, 3, padding="same", use_bias=False, name=name, **kw)(x)
    x = layers.GroupNormalization(4, name=name + "_gn")(x)
    return layers.Activation("relu", name=name + "_relu")(x)


def build():
    page = keras.Input((32, 32, 1), name="page")
    x = layers.Rescaling(-1.0, offset=1.0)(page)
    x = conv(x, 12, "stem")
    x = layers.MaxPooling2D(2)(x)
    x = conv(x, 16, "body")
    r = DeformSample(name="deform")(x)
    r = layers.Conv2D(16, 3, padding="same", name="after")(r)
    r = layers.GroupNormalization(-1, name="after_gn")(r)
    x = layers.Add()([x, r])
    x = conv(x, 24, "wide", dilation_rate=2)
    seg = layers.Conv2D(4, 1, name="seg")(x)
    k = ops.logsumexp(x, axis=(1, 2))
    k = layers.Dense(16, activation="tanh", name="kind_hidden")(k)
    kind = layers.Dense(3, name="kind")(k)
    return keras.Model(page, {"seg": seg, "kind": kind})
