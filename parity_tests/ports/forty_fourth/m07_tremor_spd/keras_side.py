"""Kinds of tremor from wrist accelerometers and surface EMG: filters over time, a shrunk covariance of the filtered channels,
and a network on symmetric positive definite matrices (bilinear maps, rectified eigenvalues, the logarithm)."""

import keras
import numpy as np
from keras import layers, ops

SAMPLES, CHANNELS, CLASSES = 128, 8, 3
FILTERS = 12
SIZES = (9, 6)


@keras.saving.register_keras_serializable("spd")
class Covariance(layers.Layer):
    """Centred covariance over the recorded samples, shrunk towards a scaled identity by a learned share."""

    def build(self, signal_shape, recorded_shape):
        self.size = signal_shape[-1]
        self.share = self.add_weight(name="share", shape=(), initializer=keras.initializers.Constant(-2.0))

    def call(self, signal, recorded):
        weight = recorded[..., None]
        count = ops.sum(weight, axis=1, keepdims=True)
        centred = (signal - ops.sum(signal * weight, axis=1, keepdims=True) / count) * weight
        covariance = ops.einsum("bti,btj->bij", centred, centred) / (count - 1.0)
        eye = ops.eye(self.size, dtype=covariance.dtype)
        power = ops.trace(covariance, axis1=1, axis2=2)[:, None, None] / self.size
        share = ops.sigmoid(self.share)
        return (1.0 - share) * covariance + share * power * eye


@keras.saving.register_keras_serializable("spd")
class BiMap(layers.Layer):
    """W' S W, with the orthonormal columns that QR makes of the weights."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], self.size), initializer=keras.initializers.Orthogonal()
        )

    def call(self, s):
        q, r = ops.qr(self.kernel)
        q = q * ops.sign(ops.diagonal(r))
        return ops.einsum("im,bij,jn->bmn", q, s, q)

    def get_config(self):
        return {**super().get_config(), "size": self.size}


def spectral(s, function):
    values, vectors = ops.eigh(s)
    return ops.einsum("bim,bm,bjm->bij", vectors, function(values), vectors)


@keras.saving.register_keras_serializable("spd")
class ReEig(layers.Layer):
    """Rectified eigenvalues, with a hyperbola in place of the kink so that they stay apart."""

    def __init__(self, floor, **kwargs):
        super().__init__(**kwargs)
        self.floor = floor

    def call(self, s):
        return spectral(
            s, lambda values: 0.5 * (values + ops.hypot(values, ops.full_like(values, self.floor)))
        )

    def get_config(self):
        return {**super().get_config(), "floor": self.floor}


@keras.saving.register_keras_serializable("spd")
class LogEig(layers.Layer):
    """The upper triangle of the logarithm; the entries off the diagonal count twice in the norm."""

    def call(self, s):
        n = s.shape[-1]
        rows, columns = np.triu_indices(n)
        scale = np.where(rows == columns, 1.0, np.sqrt(2.0))
        flat = ops.reshape(spectral(s, ops.log), (-1, n * n))
        return ops.take(flat, rows * n + columns, axis=1) * ops.convert_to_tensor(scale, dtype=flat.dtype)


def build():
    signal = keras.Input((SAMPLES, CHANNELS), name="signal")
    recorded = keras.Input((SAMPLES,), name="recorded")
    x = layers.Conv1D(FILTERS, 1, use_bias=False, name="spatial")(signal)
    x = layers.DepthwiseConv1D(9, padding="same", use_bias=False, name="temporal")(x)
    x = layers.Activation("softsign", name="limit")(x)
    s = Covariance(name="covariance")(x, recorded)
    s = BiMap(SIZES[0], name="bimap0")(s)
    s = ReEig(0.01, name="reeig")(s)
    s = BiMap(SIZES[1], name="bimap1")(s)
    x = LogEig(name="logeig")(s)
    x = layers.Dense(16, activation="elu", name="hidden")(x)
    logits = layers.Dense(CLASSES, name="logits")(x)
    return keras.Model([signal, recorded], logits, name="spdnet")
