"""E-Branchformer on short spectrogram strips of dolphin whistles, padded to a common length."""

import math

import keras
from keras import layers, ops

FRAMES = 26
BANDS = 10
WIDTH = 16
HEADS = 4
CLASSES = 6
SMOOTHING = 0.1


def gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / math.sqrt(2.0)))


class FeedForward(layers.Layer):
    def __init__(self, width, inner, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.up = layers.Dense(inner, activation="silu", name="up")
        self.down = layers.Dense(width, name="down")

    def call(self, x):
        return x + 0.5 * self.down(self.up(self.norm(x)))


class GlobalBranch(layers.Layer):
    def __init__(self, width, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size = heads, width // heads
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.qkv = layers.Dense(3 * width, name="qkv")
        self.out = layers.Dense(width, name="out")

    def call(self, x, valid):
        n = x.shape[1]
        z = ops.reshape(self.qkv(self.norm(x)), (-1, n, 3, self.heads, self.size))
        q, k, v = z[:, :, 0], z[:, :, 1], z[:, :, 2]
        score = ops.einsum("bqhd,bkhd->bhqk", q, k) * self.size**-0.5
        score = score + (1.0 - valid[:, None, None, :]) * -1e9
        z = ops.einsum("bhqk,bkhd->bqhd", ops.softmax(score, axis=-1), v)
        return self.out(ops.reshape(z, (-1, n, self.heads * self.size)))


class LocalBranch(layers.Layer):
    """The convolutional gating MLP."""

    def __init__(self, width, inner, kernel, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.up = layers.Dense(inner, activation=gelu, name="up")
        self.gate_norm = layers.LayerNormalization(epsilon=1e-5, name="gate_norm")
        self.gate_conv = layers.DepthwiseConv1D(kernel, padding="same", name="gate_conv")
        self.down = layers.Dense(width, name="down")

    def call(self, x, valid):
        content, gate = ops.split(self.up(self.norm(x)), 2, axis=-1)
        gate = self.gate_conv(self.gate_norm(gate) * valid[..., None])
        return self.down(content * gate)


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ffn_in = FeedForward(WIDTH, 32, name="ffn_in")
        self.attend = GlobalBranch(WIDTH, HEADS, name="attend")
        self.local = LocalBranch(WIDTH, 40, 7, name="local")
        self.merge_conv = layers.DepthwiseConv1D(5, padding="same", name="merge_conv")
        self.merge = layers.Dense(WIDTH, name="merge")
        self.ffn_out = FeedForward(WIDTH, 32, name="ffn_out")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")

    def call(self, x, valid):
        x = self.ffn_in(x)
        both = ops.concatenate([self.attend(x, valid), self.local(x, valid)], axis=-1)
        mixed = both + self.merge_conv(both * valid[..., None])
        x = x + self.merge(mixed)
        return self.norm(self.ffn_out(x))


class WhistleNet(keras.Model):
    def __init__(self):
        super().__init__(name="whistle_net")
        self.stem_a = layers.Conv1D(WIDTH, 3, strides=2, padding="same", activation="relu", name="stem_a")
        self.stem_b = layers.Conv1D(WIDTH, 3, padding="same", activation="relu", name="stem_b")
        self.stem_norm = layers.LayerNormalization(epsilon=1e-5, name="stem_norm")
        self.blocks = [Block(name=f"block_{i}") for i in range(2)]
        self.pool_hidden = layers.Dense(12, activation="tanh", name="pool_hidden")
        self.pool_score = layers.Dense(1, use_bias=False, name="pool_score")
        self.classes = layers.Dense(CLASSES, name="classes")

    def call(self, inputs):
        strip, length = inputs["strip"], inputs["length"]
        valid = ops.cast(
            ops.arange(FRAMES, dtype="int32")[None, :] < ops.cast(length, "int32")[:, None],
            self.compute_dtype,
        )
        x = self.stem_a(strip * valid[..., None])
        valid = valid[:, ::2]
        x = self.stem_b(x * valid[..., None])
        x = self.stem_norm(x)
        for block in self.blocks:
            x = block(x, valid)

        score = self.pool_score(self.pool_hidden(x))
        score = score + (1.0 - valid[..., None]) * -1e9
        weight = ops.softmax(score, axis=1)
        mean = ops.sum(weight * x, axis=1)
        spread = ops.sum(weight * ops.square(x - mean[:, None, :]), axis=1)
        return self.classes(ops.concatenate([mean, ops.sqrt(spread + 1e-5)], axis=-1))


def loss(targets, outputs):
    hard = ops.one_hot(ops.cast(targets, "int32"), CLASSES, dtype=outputs.dtype)
    soft = hard * (1.0 - SMOOTHING) + SMOOTHING / CLASSES
    return -ops.sum(soft * ops.log_softmax(outputs, axis=-1), axis=-1)


def build():
    return WhistleNet()
