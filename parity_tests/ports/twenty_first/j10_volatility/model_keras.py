import keras
from keras import layers, ops

STEPS, COMPONENTS = 24, 4


class GarchCell(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.state_size = COMPONENTS
        self.output_size = COMPONENTS

    def build(self, shape):
        def vector(name, value):
            init = keras.initializers.Constant(value)
            return self.add_weight(shape=(COMPONENTS,), initializer=init, name=name)

        self.drift = layers.Dense(COMPONENTS, activation="softplus", name="drift")
        self.drift.build((shape[0], shape[1] - 1))
        self.shock = vector("shock", -2.0)
        self.decay = vector("decay", 1.5)
        self.start = vector("start", 0.0)

    def get_initial_state(self, batch_size=None):
        return [ops.broadcast_to(ops.exp(self.start), (batch_size, COMPONENTS))]

    def call(self, day, states):
        ret, news = day[:, :1], day[:, 1:]
        var = self.drift(news) + ops.softplus(self.shock) * ret**2
        var = var + ops.sigmoid(self.decay) * states[0]
        return var, [var]


class Mixture(layers.Layer):
    def build(self, shape):
        self.mix = self.add_weight(shape=(COMPONENTS,), initializer="zeros", name="mix")

    def call(self, var):
        return ops.log(ops.sum(var * ops.softmax(self.mix), axis=-1))


def build():
    window = keras.Input((STEPS, 4), name="window")
    var = layers.RNN(GarchCell(), return_sequences=True)(window)
    return keras.Model(window, Mixture()(var))


def gaussian_nll(ret, log_var):
    return ops.mean(0.5 * (log_var + ret**2 * ops.exp(-log_var)), axis=-1)
