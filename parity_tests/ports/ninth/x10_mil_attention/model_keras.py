import keras
from keras import layers, ops


class GatedPooling(layers.Layer):
    def __init__(self, hidden, heads, **kwargs):
        super().__init__(**kwargs)
        self.tanh = layers.Dense(hidden, activation="tanh", name="tanh")
        self.gate = layers.Dense(hidden, activation="sigmoid", name="gate")
        self.score = layers.Dense(heads, use_bias=False, name="score")

    def call(self, h, present):
        a = self.score(self.tanh(h) * self.gate(h))
        a = a - 1e9 * (1 - ops.cast(present, a.dtype))[..., None]
        a = ops.softmax(a, axis=1)
        return ops.reshape(ops.matmul(ops.transpose(a, (0, 2, 1)), h), (-1, a.shape[-1] * h.shape[-1]))


def build():
    bag = keras.Input((10, 7), name="bag")
    present = keras.Input((10,), dtype="int32", name="present")
    h = layers.Dense(18, activation="relu", name="instance1")(bag)
    h = layers.LayerNormalization(name="norm")(h)
    h = layers.TimeDistributed(layers.Dense(12, activation="relu"), name="instance2")(h)
    h = layers.Dropout(0.2)(h)
    z = GatedPooling(9, 2, name="pooling")(h, present)
    return keras.Model(inputs=[bag, present], outputs=layers.Dense(1, name="risk")(z))
