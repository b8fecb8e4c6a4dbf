import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

CHUNK = 8
LEAD = np.linspace(0.5, 1.5, CHUNK).astype("float32")  # later steps of a chunk count more


class MGUCell(layers.Layer):
    """Minimal gated unit: one gate that forgets and updates."""

    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = self.state_size = units

    def build(self, shape):
        u = self.units
        self.w_f = self.add_weight(shape=(shape[-1] + u, u), initializer="glorot_uniform", name="w_f")
        self.b_f = self.add_weight(shape=(u,), initializer="ones", name="b_f")
        self.w_h = self.add_weight(shape=(shape[-1] + u, u), initializer="glorot_uniform", name="w_h")
        self.b_h = self.add_weight(shape=(u,), initializer="zeros", name="b_h")

    def call(self, x, states):
        h = states[0]
        f = ops.sigmoid(ops.concatenate([x, h], -1) @ self.w_f + self.b_f)
        c = ops.tanh(ops.concatenate([x, f * h], -1) @ self.w_h + self.b_h)
        h = (1.0 - f) * h + f * c
        return h, [h]


class HighwayCell(layers.Layer):
    """Recurrent highway of some micro steps; the input enters in the first."""

    def __init__(self, units, depth=2, **kw):
        super().__init__(**kw)
        self.units = self.state_size = units
        self.inp = layers.Dense(2 * units, use_bias=False, name="inp")
        self.rec = [layers.Dense(2 * units, name=f"rec{i}") for i in range(depth)]

    def build(self, shape):
        self.inp.build(shape)
        for r in self.rec:
            r.build((None, self.units))

    def call(self, x, states):
        s = states[0]
        for i, r in enumerate(self.rec):
            a = r(s) + self.inp(x) if i == 0 else r(s)
            h, t = ops.split(a, 2, axis=-1)
            t = ops.sigmoid(t - 1.0)
            s = ops.tanh(h) * t + s * (1.0 - t)
        return s, [s]


class River(keras.Model):
    def __init__(self):
        super().__init__(name="river")
        self.embed = layers.Dense(16, activation="swish", name="embed")
        self.lower = layers.RNN(
            MGUCell(20, name="mgu"), return_sequences=True, return_state=True, name="lower"
        )
        self.norm = layers.LayerNormalization(name="norm")
        self.upper = layers.RNN(
            HighwayCell(16, name="rhn"), return_sequences=True, return_state=True, name="upper"
        )
        self.hidden = layers.Dense(12, activation="relu", name="hidden")
        self.flow = layers.Dense(1, name="flow")

    def advance(self, x, a, b):
        y, a = self.lower(self.embed(x), initial_state=[a])
        z, b = self.upper(self.norm(y), initial_state=[b])
        return self.flow(self.hidden(ops.concatenate([z, y], -1))), a, b

    def start(self, n):
        return ops.zeros((n, 20)), ops.zeros((n, 16))

    def call(self, x, training=None):
        return self.advance(x, *self.start(ops.shape(x)[0]))[0]

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        a, b = self.start(tf.shape(x)[0])
        total = 0.0
        with tf.GradientTape() as tape:
            for i in range(0, x.shape[1], CHUNK):
                out, a, b = self.advance(x[:, i : i + CHUNK], tf.stop_gradient(a), tf.stop_gradient(b))
                err = tf.square(out - y[:, i : i + CHUNK])[..., 0]
                total += tf.reduce_mean(err * LEAD)
            total /= x.shape[1] // CHUNK
        grads = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": total}


def build():
    model = River()
    model(np.zeros((2, 24, 3), np.float32))
    return model
