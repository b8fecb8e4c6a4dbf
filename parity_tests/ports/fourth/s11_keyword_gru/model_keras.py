import keras
from keras import layers, ops


class LogCompress(layers.Layer):
    def call(self, x):
        return ops.log(ops.maximum(x, 1e-5))


class Pool(layers.Layer):
    """Weighs the frames by a learnt score, and adds them up."""

    def __init__(self, units=12, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(units, activation="tanh", name="hidden")
        self.score = layers.Dense(1, use_bias=False, name="score")

    def build(self, shape):
        self.hidden.build(shape)
        self.score.build((*shape[:-1], self.hidden.units))

    def call(self, x):
        weights = ops.softmax(self.score(self.hidden(x)), axis=1)
        return ops.sum(weights * x, axis=1)

    def compute_output_shape(self, shape):
        return shape[0], shape[-1]


def gated(x, channels, size, stride, name):
    x = layers.Conv1D(2 * channels, size, stride, padding="same", name=name)(x)
    value, gate = ops.split(x, 2, axis=-1)
    return value * ops.sigmoid(gate)


def build():
    mel = keras.Input((26, 20), name="mel")
    x = LogCompress(name="log")(mel)
    x = gated(x, 16, 5, 2, "glu1")
    x = layers.GroupNormalization(4, epsilon=1e-5, name="norm")(x)
    x = gated(x, 24, 3, 1, "glu2")
    x = layers.Bidirectional(layers.GRU(14, return_sequences=True), name="rnn")(x)
    x = Pool(name="pool")(x)
    return keras.Model(mel, layers.Dense(8, name="keyword")(x))


def optimizer():
    return keras.optimizers.Adadelta(learning_rate=0.5, rho=0.9, epsilon=1e-6)
