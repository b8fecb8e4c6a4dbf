import keras
import numpy as np
from keras import layers, ops


def squash(v):
    sq = ops.sum(ops.square(v), axis=-1, keepdims=True)
    return v * sq / ((1.0 + sq) * ops.sqrt(sq + 1e-8))


class ClassCapsules(layers.Layer):
    def __init__(self, n, dim, routings=3, **kw):
        super().__init__(**kw)
        self.n, self.dim, self.routings = n, dim, routings

    def build(self, shape):
        self.w = self.add_weight(
            shape=(shape[1], self.n, shape[2], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=0.3),
            name="w",
        )

    def call(self, u):
        votes = ops.einsum("bid,iodk->biok", u, self.w)
        frozen = ops.stop_gradient(votes)
        b = ops.zeros_like(frozen[..., 0])
        for r in range(self.routings):
            c = ops.expand_dims(ops.softmax(b, axis=2), -1)
            if r == self.routings - 1:
                return squash(ops.sum(c * votes, axis=1))
            v = squash(ops.sum(c * frozen, axis=1))
            b = b + ops.sum(frozen * ops.expand_dims(v, 1), axis=-1)


class CapsNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv = layers.Conv2D(16, 5, activation="relu")
        self.primary = layers.Conv2D(4 * 8, 3, strides=2)
        self.split = layers.Reshape((-1, 8))
        self.classes = ClassCapsules(4, 6)

    def call(self, x, training=None):
        u = squash(self.split(self.primary(self.conv(x))))
        v = self.classes(u)
        return ops.sqrt(ops.sum(ops.square(v), axis=-1) + 1e-9)


def build():
    model = CapsNet()
    model(np.zeros((1, 12, 12, 1), "float32"))
    return model


def margin_loss(y_true, y_pred):
    pos = ops.square(ops.maximum(0.0, 0.9 - y_pred))
    neg = ops.square(ops.maximum(0.0, y_pred - 0.1))
    return ops.sum(y_true * pos + 0.5 * (1.0 - y_true) * neg, axis=-1)
