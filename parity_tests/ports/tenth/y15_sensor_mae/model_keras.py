"""A masked autoencoder for sensor recordings: few patches are seen, the others are to be drawn.

`order` is a permutation of a recording's patches; the first VISIBLE of it are seen.
"""

import keras
from keras import layers, ops

STEPS, SENSORS, PATCH, VISIBLE = 48, 2, 4, 4
PATCHES = STEPS // PATCH
WIDTH, DECODER, HEADS = 32, 24, 4


def gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / 2.0**0.5))


class Positions(layers.Layer):
    def build(self, input_shape):
        self.table = self.add_weight(
            shape=input_shape[1:], initializer=keras.initializers.RandomNormal(stddev=0.1), name="table"
        )

    def call(self, x):
        return x + self.table


class MaskTokens(layers.Layer):
    """Appends the learned token for everything that wasn't seen."""

    def build(self, input_shape):
        self.token = self.add_weight(
            shape=(input_shape[-1],), initializer=keras.initializers.RandomNormal(stddev=0.1), name="token"
        )

    def call(self, x):
        missing = ops.broadcast_to(self.token, (ops.shape(x)[0], PATCHES - VISIBLE, x.shape[-1]))
        return ops.concatenate([x, missing], axis=1)


class SelfAttention(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads = width, heads
        self.query, self.key, self.value = (
            layers.Dense(width, use_bias=False, name=name) for name in ("query", "key", "value")
        )
        self.out = layers.Dense(width, name="out")

    def call(self, x):
        shape = (-1, x.shape[1], self.heads, self.width // self.heads)
        q, k, v = (ops.reshape(project(x), shape) for project in (self.query, self.key, self.value))
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / (self.width // self.heads) ** 0.5
        y = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores), v)
        return self.out(ops.reshape(y, (-1, x.shape[1], self.width)))


def block(x, width, name):
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    x = layers.Add()([x, SelfAttention(width, HEADS, name=f"{name}_attention")(y)])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * width, activation=gelu, name=f"{name}_expand")(y)
    return layers.Add()([x, layers.Dense(width, name=f"{name}_contract")(y)])


def pick(x, index):
    """Rows of every sample: (B, N, D), (B, K) -> (B, K, D)"""
    return ops.take_along_axis(x, ops.repeat(index[..., None], x.shape[-1], axis=-1), axis=1)


def build():
    signal = keras.Input((STEPS, SENSORS), name="signal")
    order = keras.Input((PATCHES,), dtype="int32", name="order")

    x = layers.Reshape((PATCHES, PATCH * SENSORS))(signal)
    x = layers.Dense(WIDTH, name="embed")(x)
    x = Positions(name="encoder_positions")(x)
    x = pick(x, order[:, :VISIBLE])
    x = block(x, WIDTH, "encoder1")
    x = block(x, WIDTH, "encoder2")
    x = layers.LayerNormalization(epsilon=1e-6, name="encoder_norm")(x)

    x = layers.Dense(DECODER, name="to_decoder")(x)
    x = MaskTokens(name="mask_tokens")(x)
    x = pick(x, ops.argsort(order, axis=1))
    x = Positions(name="decoder_positions")(x)
    x = block(x, DECODER, "decoder1")
    x = layers.LayerNormalization(epsilon=1e-6, name="decoder_norm")(x)
    return keras.Model([signal, order], layers.Dense(PATCH * SENSORS, name="draw")(x))


def loss(y_true, y_pred):
    """y_true: the patches, and behind them 1 for those that were hidden. Only these count, each normalised."""
    y_true = ops.cast(y_true, y_pred.dtype)
    patches, hidden = y_true[..., :-1], y_true[..., -1]
    mean = ops.mean(patches, axis=-1, keepdims=True)
    variance = ops.var(patches, axis=-1, keepdims=True)
    error = ops.square((patches - mean) / ops.sqrt(variance + 1e-4) - y_pred)
    return ops.sum(ops.mean(error, axis=-1) * hidden, axis=1) / ops.sum(hidden, axis=1)
