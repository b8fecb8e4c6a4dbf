import keras
from keras import layers, ops


class FiLM(layers.Layer):
    def __init__(self, channels, **kw):
        super().__init__(**kw)
        self.channels = channels
        self.proj = layers.Dense(2 * channels, name="proj")

    def build(self, shapes):
        self.proj.build(shapes[1])
        self.built = True

    def call(self, inputs):
        seq, cond = inputs
        scale, shift = ops.split(self.proj(cond), 2, axis=-1)
        return seq * (1.0 + scale[:, None, :]) + shift[:, None, :]

    def compute_output_shape(self, shapes):
        return shapes[0]


def build():
    series = keras.Input((18, 5), name="series")
    static = keras.Input((7,), name="static")
    cond = layers.Dense(12, activation="tanh", name="cond")(static)
    h = layers.Bidirectional(layers.GRU(10, return_sequences=True), merge_mode="concat", name="gru1")(series)
    h = FiLM(20, name="film")([h, cond])
    h = layers.Bidirectional(layers.GRU(10), merge_mode="ave", name="gru2")(h)
    h = layers.Concatenate(name="join")([h, cond])
    out = layers.Dense(2, name="out")(h)
    return keras.Model([series, static], out, name="patient")
