"""Three findings in a two-lead ECG: residual 1-d network, weight standardisation, group norm, squeeze and excite."""

import keras
from keras import layers, ops


class WSConv1D(layers.Conv1D):
    """Conv1D whose kernel is standardised for each output channel."""

    def call(self, x):
        k = self.kernel
        mean = ops.mean(k, axis=(0, 1), keepdims=True)
        var = ops.var(k, axis=(0, 1), keepdims=True)
        k = (k - mean) / ops.sqrt(var + 1e-5)
        return ops.conv(x, k, strides=1, padding=self.padding) + self.bias


def squeeze_excite(x, i):
    c = x.shape[-1]
    s = layers.GlobalAveragePooling1D()(x)
    s = layers.Dense(c // 4, activation="relu", name=f"se{i}_down")(s)
    s = layers.Dense(c, activation="sigmoid", name=f"se{i}_up")(s)
    return layers.Multiply()([x, layers.Reshape((1, c))(s)])


def build():
    inp = keras.Input((96, 2), name="x")
    h = layers.Conv1D(16, 7, padding="same", name="stem")(inp)
    for i in range(3):
        y = layers.GroupNormalization(4, epsilon=1e-5, name=f"norm{i}_a")(h)
        y = WSConv1D(16, 5, padding="same", name=f"conv{i}_a")(layers.Activation("relu")(y))
        y = layers.GroupNormalization(4, epsilon=1e-5, name=f"norm{i}_b")(y)
        y = WSConv1D(16, 3, padding="same", name=f"conv{i}_b")(layers.Activation("relu")(y))
        h = layers.MaxPooling1D(2)(layers.Add()([h, squeeze_excite(y, i)]))
    h = layers.GlobalAveragePooling1D()(layers.Activation("relu")(h))
    return keras.Model(inp, layers.Dense(3, name="head")(h))


def focal_loss(y, logits, alpha=0.75, gamma=2.0):
    y = ops.cast(y, logits.dtype)
    bce = ops.binary_crossentropy(y, logits, from_logits=True)
    p = ops.sigmoid(logits)
    pt = y * p + (1 - y) * (1 - p)
    return ops.mean((y * alpha + (1 - y) * (1 - alpha)) * (1 - pt) ** gamma * bce)
