import keras
import numpy as np
from keras import layers, ops


class DiagonalSSM(layers.Layer):
    """h' = -exp(log_a) h + B u, y = C h + D u; zero-order hold, run as a recurrence."""

    def __init__(self, state=4, **kw):
        super().__init__(**kw)
        self.n = state

    def build(self, shape):
        d = shape[-1]
        init = np.log(np.tile(np.arange(1, self.n + 1), (d, 1)) * 0.5)
        self.log_a = self.add_weight(
            shape=(d, self.n), initializer=lambda s, dtype=None: ops.cast(init, dtype), name="log_a"
        )
        self.b = self.add_weight(
            shape=(d, self.n), initializer=keras.initializers.RandomNormal(0, 1), name="b"
        )
        self.c = self.add_weight(
            shape=(d, self.n), initializer=keras.initializers.RandomNormal(0, 0.5), name="c"
        )
        self.skip = self.add_weight(shape=(d,), initializer="ones", name="skip")
        self.log_dt = self.add_weight(
            shape=(d,), initializer=keras.initializers.RandomUniform(-3, -0.5), name="log_dt"
        )

    def call(self, u):
        a = ops.exp(self.log_a)
        decay = ops.exp(-a * ops.exp(self.log_dt)[:, None])
        b = (1 - decay) / a * self.b
        h = ops.zeros_like(u[:, 0, :, None]) * decay
        ys = []
        for t in range(u.shape[1]):
            h = decay * h + b * u[:, t, :, None]
            ys.append(ops.sum(h * self.c, -1))
        return ops.stack(ys, 1) + self.skip * u


def build():
    inp = keras.Input((20, 2), name="series")
    x = layers.Dense(10, name="lift")(inp)
    for i in range(2):
        h = layers.LayerNormalization(name=f"ln_{i}")(x)
        h = DiagonalSSM(name=f"ssm_{i}")(h)
        h = layers.Lambda(lambda t: ops.gelu(t), name=f"act_{i}")(h)
        val = layers.Dense(10, name=f"value_{i}")(h)
        gate = layers.Dense(10, activation="sigmoid", name=f"gate_{i}")(h)
        x = layers.Add()([x, layers.Multiply()([val, gate])])
    last = layers.Lambda(lambda t: t[:, -1])(x)
    return keras.Model(inp, layers.Dense(1, name="forecast")(last))
