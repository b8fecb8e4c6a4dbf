# Keyword spotting from mel energies: trainable PCEN front end, one strided conv, GRU.
import keras
from keras import ops
from keras.layers import GRU, Conv1D, Dense, Layer


class PCEN(Layer):
    floor = 1e-6

    def build(self, input_shape):
        n = input_shape[-1]

        def w(name, v):
            return self.add_weight(name=name, shape=(n,), initializer=keras.initializers.Constant(v))

        self.alpha = w("alpha", 0.9)
        self.delta = w("delta", 2.0)
        self.root = w("root", 2.0)
        self.smooth = w("smooth", 0.08)

    def call(self, e):
        s = ops.clip(self.smooth, 0.0, 1.0)
        m = e[:, 0]
        track = []
        for t in range(e.shape[1]):
            m = s * e[:, t] + (1.0 - s) * m
            track.append(m)
        m = ops.stack(track, axis=1)
        a = ops.minimum(self.alpha, 1.0)
        r = 1.0 / ops.maximum(self.root, 1.0)
        return ops.power(e / ops.power(self.floor + m, a) + self.delta, r) - ops.power(self.delta, r)


def build():
    return keras.Sequential(
        [
            keras.Input((30, 8), name="x"),
            PCEN(name="pcen"),
            Conv1D(12, 3, strides=2, padding="same", activation="relu", name="conv"),
            GRU(10, name="gru"),
            Dense(5, name="logits"),
        ]
    )
