import math

import keras
import numpy as np
from keras import layers, ops


class TimeEmbedding(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        half = dim // 2
        self.freqs = np.exp(-math.log(10000.0) * np.arange(half) / (half - 1))

    def call(self, t):
        angles = t[:, None] * ops.convert_to_tensor(self.freqs, dtype=t.dtype)[None, :]
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def res_block(x, temb, width, name):
    skip = x
    if x.shape[-1] != width:
        skip = layers.Conv2D(width, 1, name=f"{name}_skip")(x)
    h = layers.GroupNormalization(groups=4, name=f"{name}_norm1")(x)
    h = layers.Activation("silu")(h)
    h = layers.Conv2D(width, 3, padding="same", name=f"{name}_conv1")(h)
    t = layers.Dense(width, name=f"{name}_temb")(layers.Activation("silu")(temb))
    h = h + t[:, None, None, :]
    h = layers.GroupNormalization(groups=4, name=f"{name}_norm2")(h)
    h = layers.Activation("silu")(h)
    h = layers.Conv2D(width, 3, padding="same", name=f"{name}_conv2")(h)
    return layers.Add()([h, skip])


def attention(x, name):
    h, w, c = x.shape[1:]
    n = layers.GroupNormalization(groups=4, name=f"{name}_norm")(x)
    q = layers.Dense(c, name=f"{name}_q")(n)
    k = layers.Dense(c, name=f"{name}_k")(n)
    v = layers.Dense(c, name=f"{name}_v")(n)
    scores = ops.einsum("bhwc,bijc->bhwij", q, k) * (c**-0.5)
    scores = ops.reshape(scores, (-1, h, w, h * w))
    weights = ops.reshape(ops.softmax(scores, axis=-1), (-1, h, w, h, w))
    out = ops.einsum("bhwij,bijc->bhwc", weights, v)
    return x + layers.Dense(c, name=f"{name}_out")(out)


def build():
    image = keras.Input((16, 16, 1), name="noisy")
    t = keras.Input((), name="t")
    temb = TimeEmbedding(16)(t)
    temb = layers.Dense(24, activation="silu", name="time1")(temb)
    temb = layers.Dense(24, name="time2")(temb)
    x = layers.Conv2D(8, 3, padding="same", name="stem")(image)
    skip1 = x = res_block(x, temb, 8, "down1")
    x = layers.AveragePooling2D(2)(x)
    skip2 = x = res_block(x, temb, 16, "down2")
    x = layers.AveragePooling2D(2)(x)
    x = res_block(x, temb, 16, "mid1")
    x = attention(x, "mid_attn")
    x = layers.UpSampling2D(2)(x)
    x = layers.Concatenate()([x, skip2])
    x = res_block(x, temb, 16, "up2")
    x = layers.UpSampling2D(2)(x)
    x = layers.Concatenate()([x, skip1])
    x = res_block(x, temb, 8, "up1")
    x = layers.GroupNormalization(groups=4, name="out_norm")(x)
    x = layers.Activation("silu")(x)
    out = layers.Conv2D(1, 3, padding="same", name="out_conv")(x)
    return keras.Model([image, t], out, name="ddpm_unet")
