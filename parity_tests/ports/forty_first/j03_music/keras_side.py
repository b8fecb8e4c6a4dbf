import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SR, FMIN, PER_OCTAVE, OCTAVES, WIDTH, HOP = 4000.0, 110.0, 8, 3, 192, 48


def filter_bank():
    """Complex kernels of constant Q, octave by octave from the lowest bin; (WIDTH, 1, bins) each."""
    q = 1.0 / (2 ** (1 / PER_OCTAVE) - 1)
    re = np.zeros((WIDTH, 1, PER_OCTAVE * OCTAVES), np.float32)
    im = np.zeros_like(re)
    for b in range(PER_OCTAVE * OCTAVES):
        f = FMIN * 2 ** (b / PER_OCTAVE)
        n = min(WIDTH, round(0.5 * q * SR / f))
        s = (WIDTH - n) // 2
        k = np.hanning(n) * np.exp(2j * np.pi * f / SR * (np.arange(n) - n / 2)) / n
        re[s : s + n, 0, b], im[s : s + n, 0, b] = k.real, k.imag
    return re, im


class ConstantQ(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        re, im = filter_bank()
        self.re, self.im = tf.constant(re), tf.constant(im)

    def call(self, x):
        x = x[..., None]
        a = tf.nn.conv1d(x, self.re, HOP, "VALID")
        b = tf.nn.conv1d(x, self.im, HOP, "VALID")
        mag = tf.sqrt(a * a + b * b + 1e-8)
        return tf.math.log1p(50.0 * mag)  # (n, frames, bins)


def build():
    audio = keras.Input((1536,), name="audio")
    s = ConstantQ(name="cq")(audio)
    frames = s.shape[1]
    s = layers.BatchNormalization(name="bin_norm")(s)
    o = layers.Reshape((frames, OCTAVES, PER_OCTAVE))(s)
    chroma = ops.max(o, axis=2)  # over the octaves
    height = ops.mean(o, axis=3)  # over the notes
    x = layers.Concatenate()([s, chroma, height])
    x = layers.Conv1D(32, 5, padding="same", activation="elu", name="c1")(x)
    x = layers.MaxPooling1D(2, name="p1")(x)
    x = layers.Conv1D(32, 3, padding="same", activation="elu", name="c2")(x)
    w = layers.Dense(1, name="frame_score")(x)
    w = ops.softmax(w, axis=1)
    x = ops.concatenate([ops.sum(w * x, axis=1), ops.std(x, axis=1)], axis=-1)
    x = layers.Dense(32, activation="relu", name="fc")(x)
    return keras.Model(audio, layers.Dense(5, name="tags")(x))
