"""SchNet-flavoured property regressor (per-molecule energy and dipole magnitude)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

MAX_ATOMS = 10
N_SPECIES = 6
F = 20
N_RBF = 16
R_CUT = np.float32(4.5)
CENTERS = np.linspace(0.4, R_CUT, N_RBF).astype("float32")
WIDTH = np.float32(CENTERS[1] - CENTERS[0])
LOG2 = float(np.log(2.0))


def ssp(x):
    return ops.softplus(x) - LOG2


@keras.saving.register_keras_serializable("mol")
class PairGeometry(layers.Layer):
    """positions, species -> radial basis (B,A,A,R) times the cutoff, without i=j and padding."""

    def call(self, pos, z):
        diff = pos[:, :, None, :] - pos[:, None, :, :]
        d = tf.sqrt(tf.reduce_sum(tf.square(diff), -1) + 1e-6)
        c = tf.constant(CENTERS, dtype=d.dtype)
        rbf = tf.exp(-0.5 * tf.square((d[..., None] - c) / WIDTH))
        cut = 0.5 * (tf.cos(d * (np.pi / R_CUT)) + 1.0) * tf.cast(d < R_CUT, d.dtype)
        m = tf.cast(z > 0, d.dtype)
        pair = m[:, :, None] * m[:, None, :] * (1.0 - tf.eye(MAX_ATOMS, dtype=d.dtype))
        return rbf, cut * pair


@keras.saving.register_keras_serializable("mol")
class GatedInteraction(layers.Layer):
    def __init__(self, feats, **kw):
        super().__init__(**kw)
        self.in2f = layers.Dense(feats, use_bias=False)
        self.filt1 = layers.Dense(feats, activation=ssp)
        self.filt2 = layers.Dense(feats)
        self.gate = layers.Dense(feats, activation="sigmoid")
        self.cand = layers.Dense(feats, activation=ssp)

    def call(self, x, rbf, cut):
        w = self.filt2(self.filt1(rbf)) * cut[..., None]
        msg = ops.einsum("bijf,bjf->bif", w, self.in2f(x))
        xm = ops.concatenate([x, msg], axis=-1)
        g = self.gate(xm)
        return (1.0 - g) * x + g * self.cand(xm)


def build():
    z = keras.Input((MAX_ATOMS,), dtype="int32", name="z")
    pos = keras.Input((MAX_ATOMS, 3), name="pos")
    x = layers.Embedding(
        N_SPECIES, F, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5), name="species"
    )(z)
    rbf, cut = PairGeometry(name="geometry")(pos, z)
    for i in range(2):
        x = GatedInteraction(F, name=f"interaction{i}")(x, rbf, cut)
    h = layers.Dense(16, activation=ssp, name="atom_hidden")(x)
    contrib = layers.Dense(2, name="atom_out")(h)
    mask = ops.cast(ops.expand_dims(ops.not_equal(z, 0), -1), contrib.dtype)
    y = ops.sum(contrib * mask, axis=1)
    y = layers.Rescaling(0.5, offset=[-1.0, 0.2], name="units")(y)
    return keras.Model({"z": z, "pos": pos}, y, name="molnet")
