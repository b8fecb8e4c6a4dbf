"""Learned wavelets by lifting: three levels of details of a periodic signal, of which their energies tell the class."""

import keras
from keras import layers, ops


class Lifting(layers.Layer):
    """Odd samples are predicted from their even neighbours; what is left updates the even ones."""

    def __init__(self, channels, **kwargs):
        super().__init__(**kwargs)
        self.predict = layers.Conv1D(channels, 2, activation="tanh", name="predict")
        self.update = layers.Conv1D(channels, 2, activation="tanh", name="update")

    def build(self, shape):
        self.predict.build(shape)
        self.update.build(shape)

    def call(self, x):
        even, odd = x[:, ::2], x[:, 1::2]
        # sample 2i + 1 lies between 2i and 2i + 2
        detail = odd - self.predict(ops.concatenate([even, even[:, :1]], axis=1))
        # sample 2i lies between the details of 2i - 1 and 2i + 1
        approximation = even + self.update(ops.concatenate([detail[:, -1:], detail], axis=1))
        return approximation, detail


class Shrink(layers.Layer):
    """Soft threshold of each channel."""

    def build(self, shape):
        self.level = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(-2.0), name="level"
        )

    def call(self, x):
        return ops.sign(x) * ops.relu(ops.abs(x) - ops.softplus(self.level))


def build():
    x = keras.Input((64, 2), name="x")
    h = layers.Dense(6, name="mix")(x)
    features = []
    for i in range(3):
        h, detail = Lifting(6, name=f"lifting{i}")(h)
        detail = Shrink(name=f"shrink{i}")(detail)
        features.append(ops.log(ops.mean(ops.square(detail), axis=1) + 1e-2))
    features.append(ops.mean(h, axis=1))
    h = layers.Dropout(0.1)(ops.concatenate(features, axis=-1))
    h = layers.Dense(32, activation="relu", name="hidden")(h)
    return keras.Model(x, layers.Dense(4, name="classes")(h))
