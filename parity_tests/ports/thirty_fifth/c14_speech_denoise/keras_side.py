"""Speech denoising in the waveform: strided encoder, GRU with a learned first state, masked features, transposed decoder."""

import math

import keras
from keras import layers, ops

SAMPLES, FILTERS, KERNEL, HOP, UNITS = 128, 16, 8, 4, 12


class FirstState(layers.Layer):
    """A learned state, the same for each sample of the batch."""

    def build(self, shape):
        self.state = self.add_weight(name="state", shape=(1, UNITS), initializer="random_normal")

    def call(self, like):
        return ops.repeat(self.state, ops.shape(like)[0], axis=0)


def build():
    noisy = keras.Input((SAMPLES,), name="noisy")
    wave = layers.Reshape((SAMPLES, 1), name="wave")(noisy)
    feats = layers.Conv1D(
        FILTERS, KERNEL, strides=HOP, padding="same", use_bias=False, activation="relu", name="encoder"
    )(wave)
    x = layers.LayerNormalization(epsilon=2**-10, name="norm")(feats)
    x = layers.GRU(UNITS, return_sequences=True, name="gru")(x, initial_state=FirstState(name="first")(feats))
    mask = layers.Dense(FILTERS, activation="sigmoid", name="mask")(x)
    y = layers.Multiply(name="masked")([feats, mask])
    y = layers.Conv1DTranspose(1, KERNEL, strides=HOP, padding="same", use_bias=False, name="decoder")(y)
    clean = layers.Reshape((SAMPLES,), name="clean")(y)
    return keras.Model(noisy, clean, name="denoise")


def si_snr(y_true, y_pred, eps=1e-6):
    """Negative scale-invariant signal-to-noise ratio in dB."""
    t = y_true - ops.mean(y_true, axis=-1, keepdims=True)
    p = y_pred - ops.mean(y_pred, axis=-1, keepdims=True)
    scale = ops.sum(p * t, axis=-1, keepdims=True) / (ops.sum(t * t, axis=-1, keepdims=True) + eps)
    target = scale * t
    ratio = (ops.sum(target**2, axis=-1) + eps) / (ops.sum((p - target) ** 2, axis=-1) + eps)
    return -10.0 / math.log(10.0) * ops.mean(ops.log(ratio))


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.0625, momentum=0.875, global_clipnorm=1.0)
