"""Diagonal state-space layers (S4D), run as a recurrence, for the classification of sensor sequences."""

import keras
from keras import layers, ops


class DiagonalSSM(layers.Layer):
    """y = C h + D u with h' = A h + B u, A complex and diagonal, zero-order hold; in real arithmetic."""

    def __init__(self, states, **kwargs):
        super().__init__(**kwargs)
        self.states = states

    def build(self, shape):
        h, n = shape[-1], self.states
        self.log_dt = self.add_weight(
            name="log_dt", shape=(h,), initializer=keras.initializers.RandomUniform(-3.0, -1.0)
        )
        self.log_decay = self.add_weight(
            name="log_decay", shape=(h, n), initializer=keras.initializers.Constant(-0.7)
        )
        self.frequency = self.add_weight(
            name="frequency", shape=(h, n), initializer=keras.initializers.RandomUniform(0.0, 10.0)
        )
        self.readout = self.add_weight(name="readout", shape=(2, h, n), initializer="random_normal")
        self.through = self.add_weight(name="through", shape=(h,), initializer="ones")

    def call(self, u):
        dt = ops.exp(self.log_dt)[:, None]
        re, im = -ops.exp(self.log_decay), self.frequency
        size = ops.exp(dt * re)
        a_re, a_im = size * ops.cos(dt * im), size * ops.sin(dt * im)
        norm = ops.square(re) + ops.square(im)
        # (exp(dt A) - 1) / A
        b_re = ((a_re - 1) * re + a_im * im) / norm
        b_im = (a_im * re - (a_re - 1) * im) / norm
        h_re = h_im = ops.zeros_like(u[:, 0, :, None] * b_re)
        outputs = []
        for t in range(u.shape[1]):
            x = u[:, t, :, None]
            h_re, h_im = a_re * h_re - a_im * h_im + b_re * x, a_re * h_im + a_im * h_re + b_im * x
            y = 2 * ops.sum(self.readout[0] * h_re - self.readout[1] * h_im, axis=-1)
            outputs.append(y + self.through * u[:, t])
        return ops.stack(outputs, axis=1)


class Block(layers.Layer):
    def __init__(self, width, states, rate, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.ssm = DiagonalSSM(states, name="ssm")
        self.value = layers.Dense(width, name="value")
        self.gate = layers.Dense(width, activation="sigmoid", name="gate")
        self.dropout = layers.Dropout(rate, name="drop")

    def build(self, shape):
        for layer in (self.norm, self.ssm, self.value, self.gate):
            layer.build(shape)

    def call(self, x, training=None):
        y = keras.activations.gelu(self.ssm(self.norm(x)))
        y = self.value(y) * self.gate(y)
        return x + self.dropout(y, training=training)


class Classifier(keras.Model):
    def __init__(self, width=16, states=4, depth=2, classes=5, **kwargs):
        super().__init__(**kwargs)
        self.encoder = layers.Dense(width, name="encoder")
        self.blocks = [Block(width, states, 0.1, name=f"block_{i}") for i in range(depth)]
        self.decoder = layers.Dense(classes, name="decoder")

    def call(self, x, training=None):
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, training=training)
        return self.decoder(ops.mean(x, axis=1))


def build():
    model = Classifier()
    model(ops.zeros((1, 24, 3)))
    return model
