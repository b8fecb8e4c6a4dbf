"""Tiny NeRF: rays in, composited colour (white background) out."""

import keras
import numpy as np
from keras import layers, ops

NEAR, FAR, SAMPLES = 1.0, 4.0, 12
WIDTH, DEPTH, SKIP = 32, 4, 2


def encode(x, n_freqs):
    """[x, sin(2^0 x), cos(2^0 x), sin(2^1 x), ...]"""
    parts = [x]
    for k in range(n_freqs):
        parts += [ops.sin(2.0**k * x), ops.cos(2.0**k * x)]
    return ops.concatenate(parts, axis=-1)


class RayMarcher(layers.Layer):
    """Midpoints of equal bins between NEAR and FAR, as world points."""

    def call(self, origins, directions):
        edges = ops.convert_to_tensor(np.linspace(NEAR, FAR, SAMPLES + 1), dtype=origins.dtype)
        mids = 0.5 * (edges[1:] + edges[:-1])
        points = origins[:, None, :] + directions[:, None, :] * mids[None, :, None]
        # metric length of every bin: directions are not unit vectors
        length = ops.norm(directions, axis=-1, keepdims=True)
        deltas = (edges[1:] - edges[:-1])[None, :] * length
        view = ops.broadcast_to((directions / length)[:, None, :], ops.shape(points))
        return encode(points, 4), encode(view, 2), deltas


class VolumeRender(layers.Layer):
    def call(self, density, rgb, deltas):
        tau = ops.squeeze(density, -1) * deltas
        alpha = 1.0 - ops.exp(-tau)
        # light that reaches the FRONT of each bin
        before = ops.cumsum(tau, axis=-1) - tau
        weights = alpha * ops.exp(-before)
        colour = ops.sum(weights[..., None] * rgb, axis=1)
        return colour + (1.0 - ops.sum(weights, axis=1, keepdims=True))


def build():
    origins = keras.Input((3,), name="origins")
    directions = keras.Input((3,), name="directions")
    pts, view, deltas = RayMarcher(name="rays")(origins, directions)
    h = pts
    for i in range(DEPTH):
        if i == SKIP:
            h = layers.Concatenate(name="skip")([pts, h])
        h = layers.Dense(WIDTH, activation="relu", name=f"trunk{i}")(h)
    raw = layers.Dense(1, name="density")(h)
    density = ops.softplus(raw - 1.0)
    feat = layers.Dense(WIDTH, name="feature")(h)
    c = layers.Concatenate()([feat, view])
    c = layers.Dense(WIDTH // 2, activation="relu", name="colour1")(c)
    rgb = layers.Dense(3, activation="sigmoid", name="colour2")(c)
    out = VolumeRender(name="render")(density, rgb, deltas)
    return keras.Model([origins, directions], out, name="tiny_nerf")
