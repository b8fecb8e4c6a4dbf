"""Keras models for the tests of mapping; `mapped_torch` has their counterparts, under other names."""

from __future__ import annotations

import keras
from keras import layers, ops


def convolutions() -> keras.Model:
    """Every convolution, batch norm, and dense layers after a flatten, one of them square."""
    x = inputs = keras.Input((8, 8, 4))
    x = layers.Conv2D(8, 3, padding="same", use_bias=True, name="stem")(x)
    x = layers.BatchNormalization(name="stem_bn")(x)
    x = layers.ReLU(name="stem_relu")(x)
    x = layers.Conv2D(8, 3, padding="same", groups=2, name="grouped")(x)
    x = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name="deep")(x)
    x = layers.BatchNormalization(scale=False, name="deep_bn")(x)
    x = layers.SeparableConv2D(8, 3, padding="same", activation="relu", name="separable")(x)
    x = layers.Conv2DTranspose(8, 3, padding="valid", name="up")(x)
    x = layers.Conv2D(8, 3, strides=3, name="down")(x)
    x = layers.Conv2D(8, 1, name="same_size")(x)
    x = layers.Flatten(name="flat")(x)
    x = layers.Dense(72, activation="tanh", name="square")(x)
    x = layers.Dense(72, name="square_again")(x)
    return keras.Model(inputs, layers.Dense(5, name="top")(x))


def attention() -> keras.Model:
    """Two blocks with Keras's own attention."""
    x = inputs = keras.Input((6, 16))
    for number in range(2):
        y = layers.LayerNormalization(epsilon=1e-5, name=f"before_{number}")(x)
        y = layers.MultiHeadAttention(4, 4, name=f"attend_{number}")(y, y)
        x = layers.Add(name=f"add_{number}")([x, y])
        y = layers.LayerNormalization(epsilon=1e-5, name=f"between_{number}")(x)
        y = layers.Dense(16, activation="relu", name=f"wide_{number}")(y)
        y = layers.Dense(16, name=f"narrow_{number}")(y)
        x = layers.Add(name=f"plus_{number}")([x, y])
    return keras.Model(inputs, layers.Dense(3, name="top")(x))


def recurrent() -> keras.Model:
    """LSTM, GRU and a plain one, in both directions and stacked."""
    x = inputs = keras.Input((5, 6))
    x = layers.Bidirectional(layers.LSTM(6, return_sequences=True), name="both")(x)
    x = layers.LSTM(6, return_sequences=True, name="first")(x)
    x = layers.LSTM(6, return_sequences=True, name="second")(x)
    x = layers.GRU(6, return_sequences=True, name="gated")(x)
    x = layers.SimpleRNN(6, return_sequences=True, name="plain")(x)
    return keras.Model(inputs, layers.Dense(6, name="top")(x))


def sequences() -> keras.Model:
    """What one axis is convolved with."""
    x = inputs = keras.Input((5, 6))
    x = layers.Conv1D(6, 3, padding="same", name="one")(x)
    x = layers.DepthwiseConv1D(3, padding="same", name="deep")(x)
    x = layers.SeparableConv1D(6, 3, padding="same", name="separable")(x)
    x = layers.Conv1DTranspose(6, 3, name="up")(x)
    x = layers.GroupNormalization(2, epsilon=1e-5, name="groups")(x)
    x = layers.Reshape((7, 1, 1, 6))(x)
    x = layers.Conv3D(6, (3, 1, 1), padding="same", name="volume")(x)
    x = layers.PReLU(shared_axes=[1, 2, 3], alpha_initializer="normal", name="slope")(x)
    return keras.Model(inputs, layers.Dense(6, name="top")(layers.Reshape((7, 6))(x)))


def branches() -> keras.Model:
    """Branches of equal shapes, named so that nothing can be told from it."""
    x = inputs = keras.Input((6, 6, 8))
    for block in range(2):
        a = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 1}")(x)
        b = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 2}")(x)
        b = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 3}")(layers.ReLU()(b))
        c = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 4}")(x)
        c = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 5}")(layers.ReLU()(c))
        c = layers.Conv2D(8, 3, padding="same", name=f"l{7 * block + 6}")(layers.ReLU()(c))
        x = layers.Concatenate()([a, b, c])
        x = layers.Conv2D(8, 1, activation="relu", name=f"l{7 * block + 7}")(x)
    return keras.Model(inputs, layers.Dense(3, name="top")(layers.GlobalAveragePooling2D()(x)))


def unnamed() -> keras.Model:
    """Branches of one to three convolutions with their norms, which Keras numbers as they are made."""
    x = inputs = keras.Input((6, 6, 8))
    for _ in range(2):
        ends = []
        for depth in (1, 2, 3):
            y = x
            for _ in range(depth):
                y = layers.Conv2D(4, 3, padding="same", use_bias=False)(y)
                y = layers.BatchNormalization(scale=False)(y)
                y = layers.ReLU()(y)
            ends.append(y)
        x = layers.Concatenate()(ends)
    return keras.Model(inputs, layers.Dense(3, name="top")(layers.GlobalAveragePooling2D()(x)))


class Custom(keras.layers.Layer):
    """Attention by hand over square kernels, with one tensor for three, a class token and a layer scale."""

    def build(self, shape):
        width = shape[-1]
        self.token = self.add_weight(shape=(1, 1, width), initializer="normal", name="cls_token")
        self.position = self.add_weight(shape=(shape[1] + 1, width), initializer="normal", name="position")
        self.qkv = self.add_weight(shape=(width, 3 * width), initializer="normal", name="qkv_kernel")
        self.mix = self.add_weight(shape=(width, width), initializer="normal", name="mix")
        self.gain = self.add_weight(shape=(1, 1, width), initializer="ones", name="layer_scale")

    def call(self, x):
        token = ops.repeat(self.token, ops.shape(x)[0], axis=0)
        x = ops.concatenate([token, x], axis=1) + self.position
        q, k, v = ops.split(ops.matmul(x, self.qkv), 3, axis=-1)
        scores = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 2, 1))) * 0.25)
        return x + self.gain * ops.matmul(ops.matmul(scores, v), self.mix)


def custom() -> keras.Model:
    """A layer of nobody's kind."""
    inputs = keras.Input((6,), dtype="int32")
    x = Custom(name="custom")(layers.Embedding(11, 8, name="table")(inputs))
    return keras.Model(inputs, layers.Dense(11, name="top")(x))


class Experts(keras.Model):
    """Layers of one shape that their attributes alone tell apart: Keras numbers them dense, dense_1, ..."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (layers.Dense(16, use_bias=False) for _ in range(3))
        self.experts = [{"gate": layers.Dense(16), "up": layers.Dense(16)} for _ in range(3)]
        self.top = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(3)])

    def call(self, x):
        scores = ops.softmax(ops.matmul(self.query(x), ops.transpose(self.key(x), (0, 2, 1))))
        y = ops.matmul(scores, self.value(x))
        for number, each in enumerate(self.experts):
            y = y + (number + 1) * ops.silu(each["gate"](y)) * each["up"](y)
        return self.top(y)


def projections() -> keras.Model:
    """Three dense layers over places, computed in another order than they were made in."""
    inputs = keras.Input((6, 16))
    query, key, value = layers.Dense(8), layers.Dense(8), layers.Dense(8)
    keys = key(inputs)
    scores = ops.softmax(ops.matmul(query(inputs), ops.transpose(keys, (0, 2, 1))))
    return keras.Model(inputs, layers.Dense(3, name="top")(ops.matmul(scores, value(inputs))))
