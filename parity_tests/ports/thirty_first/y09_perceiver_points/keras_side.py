"""Perceiver-style point cloud classifier: learned latents read the points twice with the same weights."""

import keras
import numpy as np
from keras import layers, ops

BANDS = np.pi * 2.0 ** np.arange(3)


class LatentArray(layers.Layer):
    def __init__(self, n, dim, **kw):
        super().__init__(**kw)
        self.n, self.dim = n, dim
        self.latents = self.add_weight(
            name="latents", shape=(n, dim), initializer=keras.initializers.TruncatedNormal(stddev=0.2)
        )

    def call(self, batch_like):
        return ops.broadcast_to(self.latents, (ops.shape(batch_like)[0], self.n, self.dim))


class Residual(layers.Layer):
    """Pre-norm attention + pre-norm MLP."""

    def __init__(self, dim, heads, cross, **kw):
        super().__init__(**kw)
        self.cross = cross
        self.q_norm = layers.LayerNormalization()
        if cross:
            self.kv_norm = layers.LayerNormalization()
        self.attn = layers.MultiHeadAttention(heads, dim // heads)
        self.ff_norm = layers.LayerNormalization()
        self.ff1 = layers.Dense(2 * dim, activation="silu")
        self.ff2 = layers.Dense(dim)

    def call(self, z, context=None):
        q = self.q_norm(z)
        kv = self.kv_norm(context) if self.cross else q
        z = z + self.attn(q, kv)
        return z + self.ff2(self.ff1(self.ff_norm(z)))


class Perceiver(keras.Model):
    def __init__(self, dim=24, latents=6, heads=6, classes=4, repeats=2):
        super().__init__(name="perceiver")
        self.embed = layers.Dense(dim)
        self.latent_array = LatentArray(latents, dim)
        self.read = Residual(dim, heads, cross=True)
        self.think = Residual(dim, heads, cross=False)
        self.repeats = repeats
        self.head_norm = layers.LayerNormalization()
        self.head = layers.Dense(classes)

    def call(self, points):
        angles = points[..., None] * ops.cast(BANDS, points.dtype)  # (B, P, 3, F)
        angles = ops.reshape(angles, (-1, points.shape[1], 3 * len(BANDS)))
        tokens = self.embed(ops.concatenate([points, ops.sin(angles), ops.cos(angles)], axis=-1))
        z = self.latent_array(points)
        for _ in range(self.repeats):
            z = self.think(self.read(z, context=tokens))
        return self.head(self.head_norm(ops.mean(z, axis=1)))


def build():
    model = Perceiver()
    model(ops.zeros((8, 20, 3)))
    return model


def loss(y_true, y_pred):
    y = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    return ops.sparse_categorical_crossentropy(y, y_pred, from_logits=True)
