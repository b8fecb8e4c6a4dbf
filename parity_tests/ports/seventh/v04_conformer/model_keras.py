"""Keyword spotting with a small Conformer: log-mel frames of different lengths, one of eight words."""

import keras
from keras import layers, ops


class FeedForward(layers.Layer):
    def __init__(self, width, expansion=2, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.up = layers.Dense(width * expansion, activation="swish")
        self.drop1 = layers.Dropout(rate)
        self.down = layers.Dense(width)
        self.drop2 = layers.Dropout(rate)

    def call(self, x, training=False):
        h = self.drop1(self.up(self.norm(x)), training=training)
        return x + 0.5 * self.drop2(self.down(h), training=training)


class SelfAttention(layers.Layer):
    def __init__(self, width, heads, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.attention = layers.MultiHeadAttention(num_heads=heads, key_dim=width // heads)
        self.drop = layers.Dropout(rate)

    def call(self, x, valid, training=False):
        h = self.norm(x)
        h = self.attention(h, h, attention_mask=valid[:, None, :], training=training)
        return x + self.drop(h, training=training)


class Convolution(layers.Layer):
    def __init__(self, width, kernel=5, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.pointwise_in = layers.Conv1D(2 * width, 1)
        self.depthwise = layers.DepthwiseConv1D(kernel, padding="same")
        self.inner_norm = layers.LayerNormalization(epsilon=1e-5)
        self.pointwise_out = layers.Conv1D(width, 1)
        self.drop = layers.Dropout(rate)

    def call(self, x, valid, training=False):
        h, gate = ops.split(self.pointwise_in(self.norm(x)), 2, axis=-1)
        h = h * ops.sigmoid(gate) * ops.cast(valid, x.dtype)[:, :, None]
        h = ops.silu(self.inner_norm(self.depthwise(h)))
        return x + self.drop(self.pointwise_out(h), training=training)


class ConformerBlock(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.first = FeedForward(width)
        self.attention = SelfAttention(width, heads)
        self.convolution = Convolution(width)
        self.second = FeedForward(width)
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, x, valid, training=False):
        x = self.first(x, training=training)
        x = self.attention(x, valid, training=training)
        x = self.convolution(x, valid, training=training)
        return self.norm(self.second(x, training=training))


class MaskedMean(layers.Layer):
    def call(self, x, valid):
        valid = ops.cast(valid, x.dtype)[:, :, None]
        return ops.sum(x * valid, axis=1) / ops.sum(valid, axis=1)


def build(width=16, heads=4, words=8):
    mel = keras.Input((24, 10), name="mel")
    frames = keras.Input((24,), dtype="int32", name="frames")  # 1 for a frame, 0 for silence added at the end
    x = layers.Conv1D(width, 3, strides=2, padding="same", activation="relu", name="subsample")(mel)
    x = layers.Dropout(0.1)(layers.Dense(width, name="embed")(x))
    valid = frames[:, ::2] > 0
    for i in range(2):
        x = ConformerBlock(width, heads, name=f"block{i}")(x, valid)
    x = MaskedMean()(x, valid)
    return keras.Model([mel, frames], layers.Dense(words, name="word")(x))
