"""A T5 v1.1 encoder: relative position buckets shared by all layers, RMS norms, gated GELU, no scaling of the scores."""

import math

import keras
import numpy as np
from keras import layers, ops


def buckets(length, count=16, furthest=32):
    """Bidirectional buckets of memory position minus query position."""
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    half = count // 2
    result = np.where(distance > 0, half, 0)
    distance = np.abs(distance)
    exact = half // 2
    large = exact + (
        np.log(np.maximum(distance, 1) / exact) / math.log(furthest / exact) * (half - exact)
    ).astype("int32")
    return (result + np.where(distance < exact, distance, np.minimum(large, half - 1))).astype("int32")


class RMSNorm(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6) * self.scale


class SelfAttention(layers.Layer):
    def __init__(self, heads, dim, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.dim = heads, dim
        self.q, self.k, self.v, self.o = (layers.Dense(dim, use_bias=False, name=n) for n in "qkvo")

    def build(self, shape):
        for layer in (self.q, self.k, self.v, self.o):
            layer.build(shape)

    def split(self, x):
        return ops.transpose(
            ops.reshape(x, (-1, x.shape[1], self.heads, self.dim // self.heads)), (0, 2, 1, 3)
        )

    def call(self, x, bias):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) + bias)
        y = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return self.o(ops.reshape(y, (-1, x.shape[1], self.dim)))


class Block(layers.Layer):
    def __init__(self, heads, dim, hidden, rate, **kwargs):
        super().__init__(**kwargs)
        self.norms = [RMSNorm(name="attention_norm"), RMSNorm(name="ff_norm")]
        self.attention = SelfAttention(heads, dim, name="attention")
        self.wi_0 = layers.Dense(hidden, use_bias=False, name="wi_0")
        self.wi_1 = layers.Dense(hidden, use_bias=False, name="wi_1")
        self.wo = layers.Dense(dim, use_bias=False, name="wo")
        self.drop = layers.Dropout(rate, name="drop")

    def build(self, x_shape, bias_shape):
        for layer in (*self.norms, self.attention, self.wi_0, self.wi_1):
            layer.build(x_shape)
        self.wo.build((*x_shape[:-1], self.wi_0.units))

    def call(self, x, bias, training=None):
        x = x + self.drop(self.attention(self.norms[0](x), bias), training=training)
        y = self.norms[1](x)
        y = keras.activations.gelu(self.wi_0(y), approximate=True) * self.wi_1(y)
        return x + self.drop(self.wo(y), training=training)


class Encoder(keras.Model):
    def __init__(self, vocabulary=50, dim=32, heads=4, hidden=48, depth=2, classes=3, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.shared = layers.Embedding(vocabulary, dim, name="shared")
        self.relative = layers.Embedding(16, heads, name="relative")
        self.blocks = [Block(heads, dim, hidden, 0.1, name=f"block_{i}") for i in range(depth)]
        self.final = RMSNorm(name="final_norm")
        self.classifier = layers.Dense(classes, name="classifier")

    def call(self, tokens, training=None):
        real = ops.not_equal(tokens, 0)
        x = self.shared(tokens)
        bias = ops.transpose(self.relative(buckets(tokens.shape[1])), (2, 0, 1))[None]
        bias = ops.where(real[:, None, None, :], bias, ops.cast(-1e9, x.dtype))
        for block in self.blocks:
            x = block(x, bias, training=training)
        weight = ops.cast(real, x.dtype)[..., None]
        pooled = ops.sum(self.final(x) * weight, axis=1) / ops.sum(weight, axis=1)
        return self.classifier(pooled)


def build():
    model = Encoder()
    model(ops.ones((1, 16), dtype="int32"))
    return model
