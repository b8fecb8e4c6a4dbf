"""Shifted-window attention on small pictures whose frame is cut off unevenly (1 row above and below, 2 columns left)."""

import keras
from keras import layers, ops


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(
            shape=shape[1:], name="table", initializer=keras.initializers.RandomNormal(stddev=0.3)
        )

    def call(self, x):
        return x + self.table


class WindowAttention(layers.Layer):
    def __init__(self, window, shift, heads, **kwargs):
        super().__init__(**kwargs)
        self.window, self.shift, self.heads = window, shift, heads

    def build(self, shape):
        self.rows, self.cols, self.width = shape[1:]
        self.qkv = layers.Dense(3 * self.width, name="qkv")
        self.out = layers.Dense(self.width, name="out")
        self.qkv.build((None, self.width))
        self.out.build((None, self.width))

    def call(self, x):
        w, nr, nc = self.window, self.rows // self.window, self.cols // self.window
        x = ops.roll(x, (-self.shift, -self.shift), axis=(1, 2))
        x = ops.reshape(x, (-1, nr, w, nc, w, self.width))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, w * w, self.width))
        qkv = ops.reshape(self.qkv(x), (-1, w * w, 3, self.heads, self.width // self.heads))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), axis=0)
        weights = ops.softmax(ops.matmul(q, ops.swapaxes(k, -1, -2)) / (self.width // self.heads) ** 0.5)
        x = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, w * w, self.width))
        x = ops.reshape(self.out(x), (-1, nr, nc, w, w, self.width))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, self.rows, self.cols, self.width))
        return ops.roll(x, (self.shift, self.shift), axis=(1, 2))


def build():
    image = keras.Input((14, 14, 3), name="x")
    x = layers.Cropping2D(((1, 1), (2, 0)))(image)
    x = layers.Conv2D(16, 2, strides=2, name="patches")(x)
    x = Positions(name="positions")(x)
    for i, shift in enumerate((0, 1)):
        h = layers.LayerNormalization(epsilon=1e-5, name=f"norm_a{i}")(x)
        x = x + WindowAttention(3, shift, 2, name=f"attention{i}")(h)
        h = layers.LayerNormalization(epsilon=1e-5, name=f"norm_b{i}")(x)
        h = layers.Dense(32, activation="gelu", name=f"up{i}")(h)
        x = x + layers.Dense(16, name=f"down{i}")(h)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(5, name="head")(x))
