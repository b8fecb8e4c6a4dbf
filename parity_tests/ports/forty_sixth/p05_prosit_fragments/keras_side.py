"""Prosit: intensities of the fragment ions of a peptide, from its sequence, its charge and the energy of collision."""

import math

import keras
from keras import layers, ops

LENGTH = 16
RESIDUES = 22
CHARGES = 4
IONS = 6


class Attention(layers.Layer):
    """A weighted mean over the positions that are not masked."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="w")
        self.b = self.add_weight(shape=(shape[1],), initializer="zeros", name="b")

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_shape(self, shape):
        return (shape[0], shape[-1])

    def call(self, x, mask=None):
        scores = ops.exp(ops.tanh(ops.matmul(x, self.w) + self.b))
        if mask is not None:
            scores = scores * ops.cast(mask, scores.dtype)
        weights = scores / (ops.sum(scores, axis=1, keepdims=True) + keras.config.epsilon())
        return ops.sum(x * weights[..., None], axis=1)


def build(dim=48):
    peptide = keras.Input((LENGTH,), dtype="int32", name="peptide")
    charge = keras.Input((CHARGES,), name="charge")
    energy = keras.Input((1,), name="energy")

    x = layers.Embedding(RESIDUES, 24, mask_zero=True, name="residues")(peptide)
    x = layers.Bidirectional(layers.GRU(dim // 2, return_sequences=True), name="encoder1")(x)
    x = layers.GRU(dim, return_sequences=True, name="encoder2")(x)
    x = Attention(name="encoder_attention")(x)

    meta = layers.Concatenate()([charge, energy])
    meta = layers.Dense(dim, name="meta")(meta)
    x = layers.Multiply()([x, meta])

    steps = LENGTH - 1
    x = layers.RepeatVector(steps)(x)
    x = layers.GRU(dim, return_sequences=True, name="decoder")(x)
    attention = layers.Permute((2, 1))(x)
    attention = layers.Dense(steps, activation="softmax", name="decoder_attention")(attention)
    attention = layers.Permute((2, 1))(attention)
    x = layers.Multiply()([x, attention])

    x = layers.TimeDistributed(layers.Dense(IONS, name="ions"), name="timed_ions")(x)
    x = layers.LeakyReLU(negative_slope=0.25, name="activation")(x)
    x = layers.Flatten(name="intensities")(x)
    return keras.Model([peptide, charge, energy], x, name="prosit")


def spectral_distance(targets, outputs):
    """The angle between the spectra, without the ions that a peptide cannot have (-1)."""
    targets = ops.cast(targets, outputs.dtype)
    possible = ops.cast(ops.greater_equal(targets, 0.0), outputs.dtype)
    measured = ops.normalize(targets * possible, axis=-1)
    predicted = ops.normalize(outputs * possible, axis=-1)
    cosine = ops.sum(measured * predicted, axis=-1)
    return ops.mean(2.0 * ops.arccos(ops.clip(cosine, -0.9999, 0.9999)) / math.pi)
