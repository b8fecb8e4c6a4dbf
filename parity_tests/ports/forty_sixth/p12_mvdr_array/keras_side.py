"""Mask-based MVDR beamforming: a recurrent net gives the masks, linear algebra the filter."""

import keras
import tensorflow as tf
from keras import layers, ops

FRAMES, BINS, MICS, UNITS = 12, 17, 4, 24


@keras.saving.register_keras_serializable("mvdr")
class LogFeatures(layers.Layer):
    """Log magnitude, averaged over the microphones, standardised per bin over time."""

    def call(self, inputs):
        real, imag = inputs
        x = ops.mean(ops.log(ops.sqrt(ops.square(real) + ops.square(imag)) + 1e-3), axis=-1)
        mean, variance = ops.moments(x, axes=1, keepdims=True)
        return (x - mean) * ops.rsqrt(variance + 1e-3)


@keras.saving.register_keras_serializable("mvdr")
class Beamformer(layers.Layer):
    """Souden's MVDR filter; attention over the microphones chooses the reference."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.project = layers.Dense(16, activation="tanh", name="project")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def build(self, shapes):
        self.project.build((None, MICS, BINS))
        self.score.build((None, MICS, 16))

    def covariance(self, mask, signal):
        weight = mask / (tf.reduce_sum(mask, axis=1, keepdims=True) + 1e-6)
        return tf.einsum("btf,btfm,btfn->bfmn", tf.cast(weight, signal.dtype), signal, tf.math.conj(signal))

    def reference(self, speech):
        others = 1 - tf.eye(MICS, dtype=speech.dtype)
        mean = tf.reduce_sum(speech * others, axis=-1) / (MICS - 1)
        feature = tf.transpose(tf.abs(mean), (0, 2, 1))
        return tf.nn.softmax(4.0 * self.score(self.project(feature))[..., 0], axis=-1)

    def call(self, inputs):
        real, imag, speech_mask, noise_mask = inputs
        signal = tf.complex(real, imag)
        speech = self.covariance(speech_mask, signal)
        noise = self.covariance(noise_mask, signal)
        power = tf.linalg.trace(noise)[..., None, None] / MICS
        noise = noise + (1e-2 * power + 1e-4) * tf.eye(MICS, dtype=noise.dtype)
        ratio = tf.linalg.solve(noise, speech)
        ratio = ratio / (tf.linalg.trace(ratio)[..., None, None] + 1e-6)
        choice = tf.cast(self.reference(speech), ratio.dtype)
        weights = tf.einsum("bfmn,bn->bfm", ratio, choice)
        output = tf.einsum("bfm,btfm->btf", tf.math.conj(weights), signal)
        return tf.stack([tf.math.real(output), tf.math.imag(output)], axis=-1)

    def compute_output_shape(self, shapes):
        return shapes[0][:-1] + (2,)


def build():
    real = keras.Input((FRAMES, BINS, MICS), name="real")
    imag = keras.Input((FRAMES, BINS, MICS), name="imag")
    x = LogFeatures()([real, imag])
    x = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), name="context")(x)
    x = layers.Dense(32, activation="relu", name="hidden")(x)
    speech = layers.Dense(BINS, activation="sigmoid", name="speech_mask")(x)
    noise = layers.Dense(BINS, activation="sigmoid", name="noise_mask")(x)
    return keras.Model([real, imag], Beamformer(name="mvdr")([real, imag, speech, noise]))


def loss(targets, outputs):
    """Compressed spectra: half complex, half magnitude alone."""
    targets = ops.cast(targets, outputs.dtype)

    def compress(x):
        magnitude = ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + 1e-6)
        return x * magnitude**-0.7, magnitude**0.3

    (clean, clean_magnitude), (found, magnitude) = compress(targets), compress(outputs)
    complex_part = ops.mean(ops.sum(ops.square(found - clean), axis=-1))
    return 0.5 * complex_part + 0.5 * ops.mean(ops.square(magnitude - clean_magnitude))
