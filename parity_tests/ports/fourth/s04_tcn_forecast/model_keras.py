import keras
from keras import layers, ops


class InstanceScale(layers.Layer):
    """Takes mean and standard deviation of each series away, and gives them back to the forecast."""

    def __init__(self, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")
        self.offset = self.add_weight(shape=(shape[-1],), initializer="zeros", name="offset")

    def call(self, x):
        mean = ops.mean(x, axis=1, keepdims=True)
        std = ops.std(x, axis=1, keepdims=True) + self.epsilon
        return (x - mean) / std * self.gain + self.offset, mean, std


class Residual(layers.Layer):
    def __init__(self, width, dilation, rate, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.first = layers.Conv1D(width, 3, padding="causal", dilation_rate=dilation, name="first")
        self.second = layers.Conv1D(width, 3, padding="causal", dilation_rate=dilation, name="second")
        self.drop = layers.SpatialDropout1D(rate, name="drop")

    def build(self, shape):
        for layer in (self.norm, self.first, self.second):
            layer.build(shape)

    def call(self, x, training=None):
        h = self.first(self.norm(x))
        h = self.second(keras.activations.relu(h))
        return x + self.drop(keras.activations.relu(h), training=training)


class Forecaster(keras.Model):
    def __init__(self, series=3, width=20, horizon=6):
        super().__init__(name="forecaster")
        self.horizon, self.series = horizon, series
        self.scale = InstanceScale(name="scale")
        self.lift = layers.Dense(width, name="lift")
        self.blocks = [Residual(width, d, 0.1, name=f"block{d}") for d in (1, 2, 4)]
        self.head = layers.Dense(horizon * series, name="head")

    def call(self, x, training=None):
        x, mean, std = self.scale(x)
        h = self.lift(x)
        for block in self.blocks:
            h = block(h, training=training)
        y = ops.reshape(self.head(h[:, -1]), (-1, self.horizon, self.series))
        return y * std + mean


def build():
    model = Forecaster()
    model(keras.ops.zeros((1, 32, 3)))
    return model
