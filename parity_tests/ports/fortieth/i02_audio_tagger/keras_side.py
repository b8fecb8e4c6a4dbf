import keras
import numpy as np
import tensorflow as tf
from keras import layers as kl

SR, FFT, HOP, MELS = 8000, 256, 128, 24
COUNTS = np.array([70, 51, 38, 26, 15], np.float32)
BETA = 0.98


def mel_matrix():
    top = 2595.0 * np.log10(1 + SR / 2 / 700.0)
    low = 2595.0 * np.log10(1 + 60.0 / 700.0)
    hz = 700.0 * (10 ** (np.linspace(low, top, MELS + 2) / 2595.0) - 1)
    f = np.linspace(0, SR / 2, FFT // 2 + 1)
    up = (f[:, None] - hz[:-2]) / (hz[1:-1] - hz[:-2])
    down = (hz[2:] - f[:, None]) / (hz[2:] - hz[1:-1])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class LogMel(kl.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.mel = tf.constant(mel_matrix())

    def call(self, wav):
        # pre-emphasis
        wav = tf.concat([wav[:, :1], wav[:, 1:] - 0.97 * wav[:, :-1]], 1)
        s = tf.signal.stft(wav, FFT, HOP, window_fn=tf.signal.hann_window)
        power = tf.math.real(s) ** 2 + tf.math.imag(s) ** 2
        return tf.math.log(tf.matmul(power, tf.cast(self.mel, power.dtype)) + 1e-3)


class Tagger(keras.Model):
    def __init__(self):
        super().__init__(name="tagger")
        self.logmel = LogMel(name="logmel")
        self.bn0 = kl.BatchNormalization(momentum=0.9, name="bn_mel")
        self.c1 = kl.Conv1D(32, 3, padding="same", use_bias=False, name="c1")
        self.bn1 = kl.BatchNormalization(momentum=0.9, name="bn1")
        self.c2a = kl.Conv1D(24, 3, padding="same", dilation_rate=2, name="c2_value")
        self.c2b = kl.Conv1D(24, 3, padding="same", dilation_rate=2, activation="sigmoid", name="c2_gate")
        self.drop = kl.Dropout(0.2)
        self.fc = kl.Dense(32, activation="elu", name="fc")
        self.att = kl.Dense(5, name="att")
        self.cla = kl.Dense(5, activation="sigmoid", name="cla")

    def call(self, wav, training=None):
        x = self.bn0(self.logmel(wav), training=training)
        x = keras.activations.relu(self.bn1(self.c1(x), training=training), negative_slope=0.1)
        x = self.c2a(x) * self.c2b(x)
        x = self.fc(self.drop(x, training=training))
        a = tf.nn.softmax(tf.clip_by_value(self.att(x), -10.0, 10.0), axis=1)
        return tf.reduce_sum(a * self.cla(x), axis=1)


def build():
    m = Tagger()
    m(np.zeros((1, 2048), np.float32))
    return m


def loss(y, p):
    w = (1 - BETA) / (1 - BETA**COUNTS)
    w = tf.constant((w / w.mean()).astype(np.float32))
    p = tf.clip_by_value(p, 1e-6, 1 - 1e-6)
    ce = -(y * tf.math.log(p) + (1 - y) * tf.math.log(1 - p))
    return tf.reduce_mean(ce * (y * tf.cast(w, p.dtype) + 1 - y), -1)
