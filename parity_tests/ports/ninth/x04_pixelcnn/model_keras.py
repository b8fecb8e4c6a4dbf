import keras
import numpy as np
from keras import layers, ops


class MaskedConv(layers.Layer):
    def __init__(self, filters, size, stack, kind="A", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size = filters, (size, size) if stack == "vertical" else (1, size)
        self.stack, self.kind = stack, kind

    def build(self, shape):
        self.kernel = self.add_weight(shape=(*self.size, shape[-1], self.filters), name="kernel")
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")
        mask = np.ones((*self.size, 1, 1))
        first = self.size[1] // 2 + (self.kind == "B")
        if self.stack == "vertical":
            mask[first:] = 0
        else:
            mask[:, first:] = 0
        self.mask = mask

    def call(self, x):
        kernel = self.kernel * ops.cast(self.mask, self.kernel.dtype)
        return ops.conv(x, kernel, padding="same") + self.bias


def gate(x):
    a, b = ops.split(x, 2, axis=-1)
    return ops.tanh(a) * ops.sigmoid(b)


def build(channels=6, depth=3):
    inputs = keras.Input((8, 8, 1), name="x")
    v = h = inputs
    for i in range(depth):
        kind = "B" if i else "A"
        v = MaskedConv(2 * channels, 3, "vertical", kind, name=f"v{i}")(v)
        side = MaskedConv(2 * channels, 3, "horizontal", kind, name=f"h{i}")(h)
        side = layers.Add()([side, layers.Conv2D(2 * channels, 1, name=f"link{i}")(v)])
        v = layers.Lambda(gate)(v)
        out = layers.Conv2D(channels, 1, name=f"out{i}")(layers.Lambda(gate)(side))
        h = layers.Add()([h, out]) if i else out
    h = layers.Conv2D(8, 1, activation="relu", name="head")(layers.ReLU()(h))
    return keras.Model(inputs, layers.Conv2D(1, 1, name="logits")(h))


def nll(y_true, y_pred):
    pixel = ops.softplus(y_pred) - y_true * y_pred
    return ops.sum(pixel, axis=(1, 2, 3))
