"""SchNet-style continuous-filter network on small molecules.

Inputs: atomic numbers `z` (padded with 0) and positions `pos`. Output: energy.
"""

import math

import keras
import numpy as np
from keras import layers, ops

MAX_Z, FEATS, RBF, CUTOFF = 10, 16, 12, 4.0


def ssp(x):
    """Shifted softplus."""
    return ops.softplus(x) - math.log(2.0)


class Geometry(layers.Layer):
    """Distances, radial basis and pair weights (cosine cutoff, no self pairs)."""

    def call(self, z, pos):
        diff = pos[:, :, None, :] - pos[:, None, :, :]
        dist = ops.sqrt(ops.sum(ops.square(diff), axis=-1) + 1e-12)
        centres = ops.convert_to_tensor(np.linspace(0.0, CUTOFF, RBF), dtype=dist.dtype)
        width = CUTOFF / (RBF - 1)
        rbf = ops.exp(-0.5 * ops.square((dist[..., None] - centres) / width))
        smooth = 0.5 * (ops.cos(math.pi * dist / CUTOFF) + 1.0)
        smooth = ops.where(dist < CUTOFF, smooth, ops.zeros_like(smooth))
        real = ops.cast(ops.greater(z, 0), dist.dtype)
        pair = real[:, :, None] * real[:, None, :] * (1.0 - ops.eye(z.shape[1], dtype=dist.dtype))
        return rbf, smooth * pair, real


class CFConv(layers.Layer):
    def call(self, h, filters, weight):
        # h: B,N,F   filters: B,N,N,F   weight: B,N,N
        return ops.sum(h[:, None, :, :] * filters * weight[..., None], axis=2)


def interaction(x, rbf, weight, i):
    filters = layers.Dense(FEATS, activation=ssp, name=f"filter{i}_a")(rbf)
    filters = layers.Dense(FEATS, activation=ssp, name=f"filter{i}_b")(filters)
    h = layers.Dense(FEATS, use_bias=False, name=f"inter{i}_in")(x)
    h = CFConv(name=f"inter{i}_conv")(h, filters, weight)
    h = layers.Dense(FEATS, activation=ssp, name=f"inter{i}_mid")(h)
    h = layers.Dense(FEATS, name=f"inter{i}_out")(h)
    return layers.Add(name=f"inter{i}_res")([x, h])


class MaskedSum(layers.Layer):
    def call(self, per_atom, real):
        return ops.sum(per_atom * real[..., None], axis=1)


def build(atoms=9):
    z = keras.Input((atoms,), dtype="int32", name="z")
    pos = keras.Input((atoms, 3), name="pos")
    rbf, weight, real = Geometry(name="geometry")(z, pos)
    x = layers.Embedding(MAX_Z, FEATS, name="atom_embedding")(z)
    for i in range(2):
        x = interaction(x, rbf, weight, i)
    e = layers.Dense(FEATS // 2, activation=ssp, name="atomwise1")(x)
    e = layers.Dense(1, name="atomwise2")(e)
    ref = layers.Embedding(MAX_Z, 1, embeddings_initializer="zeros", name="atom_ref")(z)
    energy = MaskedSum(name="energy")(layers.Add()([e, ref]), real)
    return keras.Model([z, pos], energy, name="schnet")
