"""Patch transformer for the electric load of several meters; every meter is a series of its own (PatchTST)."""

import keras
import numpy as np
from keras import layers, ops


class ReversibleNorm(layers.Layer):
    """Takes level and scale off each series, and puts them back on the forecast."""

    def __init__(self, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(input_shape[-1],), initializer="zeros")

    def call(self, x):
        mean, variance = ops.moments(x, axes=1, keepdims=True)
        mean, std = ops.stop_gradient(mean), ops.stop_gradient(ops.sqrt(variance + self.epsilon))
        return (x - mean) / std * self.gamma + self.beta, mean, std

    def restore(self, y, mean, std):
        return (y - self.beta) / (self.gamma + self.epsilon) * std + mean


class Block(layers.Layer):
    def __init__(self, dim, heads, hidden, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.attention = layers.MultiHeadAttention(heads, dim // heads, dropout=dropout)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.up = layers.Dense(hidden, activation="silu")
        self.down = layers.Dense(dim)
        self.drop = layers.Dropout(dropout)

    def build(self, shape):
        for norm in (self.norm1, self.norm2):
            norm.build(shape)
        self.attention.build(shape, shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], self.up.units))

    def call(self, x, training=False):
        h = self.norm1(x)
        x = x + self.drop(self.attention(h, h, training=training), training=training)
        return x + self.drop(self.down(self.up(self.norm2(x))), training=training)


class LoadForecaster(keras.Model):
    def __init__(self, length=48, horizon=12, patch=8, stride=4, dim=16, heads=4, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.horizon = horizon
        starts = np.arange(0, length - patch + 1, stride)
        self.windows = starts[:, None] + np.arange(patch)
        self.norm = ReversibleNorm()
        self.embed = layers.Dense(dim)
        self.position = self.add_weight(
            name="position",
            shape=(len(starts), dim),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        self.blocks = [Block(dim, heads, 2 * dim) for _ in range(depth)]
        self.final_norm = layers.LayerNormalization(epsilon=1e-6)
        self.head = layers.Dense(horizon)

    def call(self, load, training=False):
        meters = load.shape[-1]
        x, mean, std = self.norm(load)
        x = ops.reshape(ops.transpose(x, (0, 2, 1)), (-1, load.shape[1]))
        x = self.embed(ops.take(x, self.windows, axis=1)) + self.position
        for block in self.blocks:
            x = block(x, training=training)
        x = self.final_norm(x)
        y = self.head(ops.reshape(x, (-1, x.shape[1] * x.shape[2])))
        y = ops.transpose(ops.reshape(y, (-1, meters, self.horizon)), (0, 2, 1))
        return self.norm.restore(y, mean, std)


def build():
    return LoadForecaster()
