"""A small Demucs that takes cabin noise (2 kHz) apart into engine and road."""

import keras
import tensorflow as tf
from keras import layers

KERNEL, STRIDE = 8, 4


def glu(x):
    value, gate = tf.split(x, 2, axis=-1)
    return value * tf.sigmoid(gate)


def crop_like(x, ref):
    """The middle of x, as long as ref."""
    surplus = x.shape[1] - ref.shape[1]
    start = surplus // 2
    return x[:, start : start + ref.shape[1]]


class Encode(layers.Layer):
    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.down = layers.Conv1D(channels, KERNEL, strides=STRIDE, activation="relu", name="down")
        self.rewrite = layers.Conv1D(2 * channels, 1, name="rewrite")

    def call(self, x):
        return glu(self.rewrite(self.down(x)))


class Decode(layers.Layer):
    def __init__(self, channels, out, last, **kwargs):
        super().__init__(**kwargs)
        self.rewrite = layers.Conv1D(2 * channels, 3, name="rewrite")
        self.up = layers.Conv1DTranspose(out, KERNEL, strides=STRIDE, name="up")
        self.last = last

    def call(self, x):
        x = self.up(glu(self.rewrite(x)))
        return x if self.last else tf.nn.relu(x)


class Demucs(keras.Model):
    def __init__(self, sources=2, channels=(12, 20)):
        super().__init__()
        self.encoder = [Encode(c, name=f"enc{i}") for i, c in enumerate(channels)]
        c = channels[-1]
        self.rnn = layers.Bidirectional(layers.LSTM(c, return_sequences=True), name="rnn")
        self.bottleneck = layers.Dense(c, name="bottleneck")
        outs = (sources,) + tuple(channels[:-1])
        self.decoder = [
            Decode(channels[i], outs[i], last=i == 0, name=f"dec{i}") for i in reversed(range(len(channels)))
        ]

    def call(self, mix):
        mean = tf.reduce_mean(mix, axis=1, keepdims=True)
        std = tf.math.reduce_std(mix, axis=1, keepdims=True)
        x = ((mix - mean) / (std + 1e-3))[..., None]
        skips = []
        for block in self.encoder:
            x = block(x)
            skips.append(x)
        x = self.bottleneck(self.rnn(x))
        for block in self.decoder:
            x = block(x + crop_like(skips.pop(), x))
        return x * std[..., None] + mean[..., None]


def spectrum(x, size):
    """Magnitudes of (batch, time, sources) as (batch, sources, frames, bins)."""
    z = tf.signal.stft(tf.transpose(x, (0, 2, 1)), size, size // 4, window_fn=tf.signal.hann_window)
    return tf.sqrt(tf.square(tf.math.real(z)) + tf.square(tf.math.imag(z)) + 1e-8)


def loss(targets, outputs):
    """L1 of the wave, then spectral convergence and log magnitudes at three resolutions; one value a sample."""
    targets = crop_like(targets, outputs)
    total = tf.reduce_mean(tf.abs(targets - outputs), axis=(1, 2))
    for size in (16, 32, 64):
        true, got = spectrum(targets, size), spectrum(outputs, size)
        norm = lambda v: tf.sqrt(tf.reduce_sum(tf.square(v), axis=(2, 3)))
        convergence = tf.reduce_mean(norm(true - got) / norm(true), axis=1)
        log = tf.reduce_mean(tf.abs(tf.math.log(true + 0.02) - tf.math.log(got + 0.02)), axis=(1, 2, 3))
        total += 0.1 * (convergence + log)
    return total


def build():
    model = Demucs()
    model(tf.zeros((1, 260)))
    return model
