"""Variable star classes from irregular photometry: a phased LSTM in both directions of time."""

import keras
import numpy as np
import tensorflow as tf

CLASSES = 4
BANDS = 3
UNITS = 20
LEAK = 0.01


class PhasedCell(keras.layers.Layer):
    """LSTM whose units write only while their own oscillation is open (Neil et al., 2016)."""

    def __init__(self, units, longest, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.longest = longest
        self.from_input = keras.layers.Dense(4 * units, name="from_input")
        self.from_state = keras.layers.Dense(4 * units, use_bias=False, name="from_state")

    def build(self, shape):
        rng = np.random.RandomState(3)
        logs = rng.uniform(0.0, np.log(self.longest), self.units)
        self.log_period = self.add_weight(
            shape=(self.units,), initializer=lambda s, dtype=None: tf.cast(logs, dtype), name="log_period"
        )
        self.shift = self.add_weight(
            shape=(self.units,), initializer=keras.initializers.RandomUniform(0.0, 5.0), name="shift"
        )
        self.open_logit = self.add_weight(
            shape=(self.units,), initializer=keras.initializers.RandomUniform(-1.5, -0.5), name="open_logit"
        )
        self.from_input.build((None, shape[-1]))
        self.from_state.build((None, self.units))

    def openness(self, t):
        period = tf.exp(self.log_period)
        ratio = tf.sigmoid(self.open_logit)
        phase = tf.math.floormod(t[:, None] - self.shift, period) / period
        rising = 2.0 * phase / ratio
        falling = 2.0 - rising
        k = tf.where(phase < ratio, falling, LEAK * phase)
        return tf.where(phase < 0.5 * ratio, rising, k)

    def call(self, x, t, h, c):
        z = self.from_input(x) + self.from_state(h)
        i, f, g, o = tf.split(z, 4, axis=-1)
        new_c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(g)
        new_h = tf.sigmoid(o) * tf.tanh(new_c)
        k = self.openness(t)
        return k * new_h + (1.0 - k) * h, k * new_c + (1.0 - k) * c


class LightCurves(keras.Model):
    def __init__(self):
        super().__init__()
        self.bands = keras.layers.Embedding(BANDS + 1, 6, embeddings_initializer="glorot_uniform")
        self.encode = keras.layers.Dense(16, activation="tanh")
        self.forwards = PhasedCell(UNITS, 60.0)
        self.backwards = PhasedCell(UNITS, 30.0)
        self.score = keras.layers.Dense(1)
        self.hidden = keras.layers.Dense(24, activation="relu")
        self.out = keras.layers.Dense(CLASSES)

    def scan(self, cell, x, t, seen, order):
        b, n, _ = x.shape
        h = tf.zeros([b, UNITS])
        c = tf.zeros([b, UNITS])
        states = [None] * n
        for j in order:
            new_h, new_c = cell(x[:, j], t[:, j], h, c)
            m = seen[:, j][:, None]
            h = m * new_h + (1.0 - m) * h
            c = m * new_c + (1.0 - m) * c
            states[j] = h
        return tf.stack(states, axis=1)

    def call(self, inputs):
        t, flux, band = inputs["times"], inputs["flux"], inputs["band"]
        b, n = band.shape
        seen = tf.cast(band > 0, flux.dtype)
        last = tf.reduce_max(t, axis=1, keepdims=True)
        x = self.encode(tf.concat([flux, self.bands(band)], axis=-1))
        left = self.scan(self.forwards, x, t, seen, range(n))
        right = self.scan(self.backwards, x, (last - t) * seen, seen, reversed(range(n)))
        states = tf.concat([left, right], axis=-1)

        scores = tf.squeeze(self.score(states), -1) - 1e9 * (1.0 - seen)
        a = tf.nn.softmax(scores, axis=-1)
        pooled = tf.reduce_sum(a[:, :, None] * states, axis=1)
        centre = tf.reduce_sum(seen[:, :, None] * states, axis=1) / tf.reduce_sum(seen, axis=1)[:, None]
        return self.out(self.hidden(tf.concat([pooled, pooled - centre], axis=-1)))


def build():
    return LightCurves()
