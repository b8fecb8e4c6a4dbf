import keras
from keras import layers, ops

MEAN = [0.5, 2.0, -1.0, 10.0, 0.0, 3.5, 1.0, -4.0, 0.25, 6.0]
VARIANCE = [0.25, 4.0, 0.5, 30.25, 1.0, 2.25, 0.125, 9.0, 0.0625, 16.0]


@keras.saving.register_keras_serializable("mmoe")
class Experts(layers.Layer):
    def __init__(self, count=4, units=16, **kwargs):
        super().__init__(**kwargs)
        self.count, self.units = count, units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(self.count, shape[-1], self.units), name="kernel")
        self.bias = self.add_weight(shape=(self.count, self.units), initializer="zeros", name="bias")

    def call(self, x):
        return ops.relu(ops.einsum("bi,eio->beo", x, self.kernel) + self.bias)


class Mixture(layers.Layer):
    def call(self, experts, gate):
        return ops.sum(experts * gate[..., None], axis=1)


def build():
    user = keras.Input((10,), name="user")
    x = layers.Normalization(mean=MEAN, variance=VARIANCE, name="standardise")(user)
    x = layers.Dense(24, activation="tanh", name="bottom")(x)
    experts = Experts(name="experts")(x)
    outputs = {}
    for task in ("click", "spend"):
        gate = layers.Dense(4, activation="softmax", name=f"{task}_gate")(x)
        h = Mixture(name=f"{task}_mixture")(experts, gate)
        h = layers.Dense(12, activation="relu", name=f"{task}_tower")(h)
        outputs[task] = layers.Dense(1, name=task)(h)
    return keras.Model(user, outputs)
