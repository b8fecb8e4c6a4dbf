"""Patch-based forecaster for multivariate series: 48 steps in, 6 steps out, channels handled independently."""

import keras
from keras import layers, ops

LENGTH, HORIZON, CHANNELS = 48, 6, 3
PATCH, STRIDE = 8, 4
PATCHES = (LENGTH + STRIDE - PATCH) // STRIDE + 1


class InstanceScale(layers.Layer):
    """Reversible instance normalisation; gives the scaled series and the statistics to undo it."""

    def __init__(self, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x):
        mean = ops.stop_gradient(ops.mean(x, axis=1, keepdims=True))
        std = ops.stop_gradient(ops.sqrt(ops.var(x, axis=1, keepdims=True) + self.epsilon))
        return (x - mean) / std * self.gamma + self.beta, mean, std

    def restore(self, y, mean, std):
        return (y - self.beta) / (self.gamma + self.epsilon**2) * std + mean


class Patches(layers.Layer):
    """(batch, time, channels) -> (batch * channels, patches, patch length), the last value repeated at the end."""

    def call(self, x):
        x = ops.concatenate([x, ops.repeat(x[:, -1:], STRIDE, axis=1)], axis=1)
        x = ops.transpose(x, (0, 2, 1))
        pieces = [x[:, :, i * STRIDE : i * STRIDE + PATCH] for i in range(PATCHES)]
        return ops.reshape(ops.stack(pieces, axis=2), (-1, PATCHES, PATCH))


class Positions(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(
            shape=shape[1:], initializer=keras.initializers.RandomUniform(-0.02, 0.02), name="table"
        )

    def call(self, x):
        return x + self.table


def encoder_layer(x, width, heads, rate):
    a = layers.MultiHeadAttention(heads, width // heads)(x, x)
    x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dropout(rate)(a))
    f = layers.Dense(2 * width, activation="gelu")(x)
    f = layers.Dense(width)(layers.Dropout(rate)(f))
    return layers.LayerNormalization(epsilon=1e-5)(x + layers.Dropout(rate)(f))


class Forecaster(keras.Model):
    def __init__(self, width=16, heads=4, depth=2, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.scale = InstanceScale()
        tokens = keras.Input((PATCHES, PATCH))
        x = Positions()(layers.Dense(width)(tokens))
        x = layers.Dropout(rate)(x)
        for _ in range(depth):
            x = encoder_layer(x, width, heads, rate)
        self.patches = Patches()
        self.backbone = keras.Model(tokens, layers.Flatten()(x))
        self.head = layers.Dense(HORIZON)

    def call(self, x, training=False):
        x, mean, std = self.scale(x)
        y = self.head(self.backbone(self.patches(x), training=training))
        y = ops.transpose(ops.reshape(y, (-1, CHANNELS, HORIZON)), (0, 2, 1))
        return self.scale.restore(y, mean, std)


def build():
    model = Forecaster()
    model(ops.zeros((1, LENGTH, CHANNELS)))
    return model
