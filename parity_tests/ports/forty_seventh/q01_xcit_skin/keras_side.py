"""Cross-covariance image transformer for dermoscopy patches, seven diagnoses."""

import math

import keras
import numpy as np
from keras import layers, ops

SIZE, DIM, HEADS, DEPTH, CLASSES = 32, 48, 4, 2, 7
GRID = SIZE // 4


def fourier_grid(side, hidden=16, temperature=10000.0):
    steps = np.arange(1, side + 1) / (side + 1e-6) * 2 * math.pi
    freq = temperature ** (2 * (np.arange(hidden) // 2) / hidden)
    angle = steps[:, None] / freq
    code = np.stack([np.sin(angle[:, 0::2]), np.cos(angle[:, 1::2])], axis=-1).reshape(side, hidden)
    rows = np.repeat(code[:, None], side, axis=1)
    cols = np.repeat(code[None], side, axis=0)
    return np.concatenate([rows, cols], axis=-1).reshape(side * side, 2 * hidden).astype(np.float32)


POSITIONS = fourier_grid(GRID)


class PositionalProjection(layers.Layer):
    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.project = layers.Dense(dim)

    def build(self, shape):
        self.project.build((None, POSITIONS.shape[-1]))

    def call(self, x):
        return x + self.project(ops.convert_to_tensor(POSITIONS, dtype=self.compute_dtype))[None]


class LayerScale(layers.Layer):
    def __init__(self, init, **kw):
        super().__init__(**kw)
        self.init = init

    def build(self, shape):
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.init), name="gamma"
        )

    def call(self, x):
        return x * self.gamma


class CrossCovarianceAttention(layers.Layer):
    def __init__(self, heads, **kw):
        super().__init__(**kw)
        self.heads = heads

    def build(self, shape):
        dim = shape[-1]
        self.temperature = self.add_weight(shape=(self.heads, 1, 1), initializer="ones", name="temperature")
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.qkv.build(shape)
        self.out = layers.Dense(dim, name="out")
        self.out.build(shape)

    def call(self, x):
        n, dim = x.shape[1], x.shape[2]
        qkv = ops.reshape(self.qkv(x), (-1, n, 3, self.heads, dim // self.heads))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 4, 1)), axis=0)
        q = ops.normalize(q, axis=-1)
        k = ops.normalize(k, axis=-1)
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) * self.temperature
        y = ops.matmul(ops.softmax(scores, axis=-1), v)
        return self.out(ops.reshape(ops.transpose(y, (0, 3, 1, 2)), (-1, n, dim)))


class ClassAttention(layers.Layer):
    def __init__(self, heads, **kw):
        super().__init__(**kw)
        self.heads = heads

    def build(self, shape):
        dim = shape[-1]
        for name in ("query", "key", "value", "out"):
            dense = layers.Dense(dim, name=name)
            dense.build(shape)
            setattr(self, name, dense)

    def split(self, x):
        return ops.transpose(
            ops.reshape(x, (-1, x.shape[1], self.heads, x.shape[2] // self.heads)), (0, 2, 1, 3)
        )

    def call(self, x):
        dim = x.shape[-1]
        q, k, v = self.split(self.query(x[:, :1])), self.split(self.key(x)), self.split(self.value(x))
        weights = ops.softmax(ops.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(dim // self.heads), axis=-1)
        y = ops.einsum("bhqk,bhkd->bqhd", weights, v)
        return self.out(ops.reshape(y, (-1, 1, dim)))


class PrependClass(layers.Layer):
    def build(self, shape):
        self.cls_token = self.add_weight(
            shape=(1, 1, shape[-1]),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="cls_token",
        )

    def call(self, x):
        token = ops.broadcast_to(self.cls_token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)


def norm(name):
    return layers.LayerNormalization(epsilon=1e-6, name=name)


def conv_bn(x, filters, name):
    x = layers.ZeroPadding2D(1)(x)
    x = layers.Conv2D(filters, 3, strides=2, use_bias=False, name=f"{name}_conv")(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)


def local_patch_interaction(x, name):
    y = layers.Reshape((GRID, GRID, DIM))(x)
    y = layers.DepthwiseConv2D(3, padding="same", name=f"{name}_dw1")(y)
    y = layers.Activation("silu")(y)
    y = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(y)
    y = layers.DepthwiseConv2D(3, padding="same", name=f"{name}_dw2")(y)
    return layers.Reshape((GRID * GRID, DIM))(y)


def mlp(x, name):
    y = layers.Dense(2 * DIM, activation="silu", name=f"{name}_fc1")(x)
    return layers.Dense(DIM, name=f"{name}_fc2")(y)


def build():
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = conv_bn(image, DIM // 2, "stem1")
    x = layers.Activation("silu")(x)
    x = conv_bn(x, DIM, "stem2")
    x = layers.Reshape((GRID * GRID, DIM))(x)
    x = PositionalProjection(DIM, name="positions")(x)
    for i in range(DEPTH):
        b = f"block{i}"
        y = CrossCovarianceAttention(HEADS, name=f"{b}_xca")(norm(f"{b}_ln1")(x))
        x = x + LayerScale(0.5, name=f"{b}_scale1")(y)
        y = local_patch_interaction(norm(f"{b}_ln3")(x), f"{b}_lpi")
        x = x + LayerScale(0.5, name=f"{b}_scale3")(y)
        y = mlp(norm(f"{b}_ln2")(x), f"{b}_mlp")
        x = x + LayerScale(0.5, name=f"{b}_scale2")(y)
    x = PrependClass(name="prepend")(x)
    y = norm("cls_ln1")(x)
    cls = x[:, :1] + LayerScale(0.5, name="cls_scale1")(ClassAttention(HEADS, name="cls_attention")(y))
    cls = cls + LayerScale(0.5, name="cls_scale2")(mlp(norm("cls_ln2")(cls), "cls_mlp"))
    cls = norm("final_ln")(layers.Flatten()(cls))
    return keras.Model(image, layers.Dense(CLASSES, name="head")(cls), name="xcit")


def optimizer():
    schedule = keras.optimizers.schedules.CosineDecay(
        2**-13, decay_steps=60, alpha=1 / 64, warmup_target=2**-9, warmup_steps=8
    )
    opt = keras.optimizers.AdamW(
        schedule, weight_decay=1 / 16, beta_1=0.875, beta_2=63 / 64, epsilon=1e-6, global_clipnorm=1.0
    )
    opt.exclude_from_weight_decay(var_names=["bias", "beta", "gamma", "temperature", "cls_token"])
    return opt
