import keras
import numpy as np
from keras import ops
from keras.layers import (
    GRU,
    Activation,
    Add,
    AveragePooling1D,
    Conv1D,
    Dense,
    Input,
    Lambda,
    LayerNormalization,
    Multiply,
)

FRAMES, BINS, UNITS = 20, 33, 32
COMPRESS = 0.3
# equal-loudness-like weighting of the bins in the loss
BAND_WEIGHT = np.float32(1.0 / (1.0 + np.abs(np.arange(33) - 10.0) / 12.0))
BAND_WEIGHT = BAND_WEIGHT / BAND_WEIGHT.mean()


def log_cmvn(mag):
    x = ops.log(mag + 1e-4)
    return (x - ops.mean(x, axis=1, keepdims=True)) / (ops.std(x, axis=1, keepdims=True) + 0.1)


def build():
    noisy = Input((FRAMES, BINS), name="noisy")
    feats = Lambda(log_cmvn, output_shape=(FRAMES, BINS), name="log_cmvn")(noisy)
    x = Conv1D(UNITS, 3, padding="causal", name="front")(feats)
    x = LayerNormalization(epsilon=1e-5, name="front_norm")(x)
    x = Activation("elu")(x)
    h = GRU(UNITS, return_sequences=True, name="rnn_a")(x)
    x = Add()([x, h])
    h = GRU(UNITS, return_sequences=True, name="rnn_b")(x)
    x = Add()([x, h])
    x = Dense(48, activation="relu", name="back")(x)
    mask = Dense(BINS, activation="sigmoid", bias_initializer="ones", name="gain")(x)
    mask = AveragePooling1D(3, strides=1, padding="same", name="smooth")(mask)
    return keras.Model(noisy, Multiply(name="enhanced")([mask, noisy]), name="denoiser")


def spectral_loss(clean, enhanced):
    """Compressed magnitude error, over-suppression counted double."""
    e = ops.power(clean + 1e-5, COMPRESS) - ops.power(enhanced + 1e-5, COMPRESS)
    e = ops.where(e > 0, 2.0 * ops.square(e), ops.square(e))
    return ops.mean(e * BAND_WEIGHT, axis=(1, 2))
