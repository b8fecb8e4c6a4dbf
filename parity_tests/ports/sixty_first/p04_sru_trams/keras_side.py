import keras
import tensorflow as tf
from keras import layers

NUM_STOPS = 9
HORIZON = 4


class SimpleRecurrentUnit(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(self.units, 3 * self.units), initializer="glorot_uniform", name="kernel"
        )
        self.peek = self.add_weight(
            shape=(2, self.units), initializer=keras.initializers.RandomNormal(stddev=0.3), name="peek"
        )
        self.bias = self.add_weight(shape=(2, self.units), initializer="zeros", name="bias")

    def call(self, x, observed):
        candidate, forget_in, reset_in = tf.split(tf.matmul(x, self.kernel), 3, axis=-1)
        cell = tf.zeros_like(candidate[:, 0])
        hidden = []
        for t in range(x.shape[1]):
            forget = tf.sigmoid(forget_in[:, t] + self.peek[0] * cell + self.bias[0])
            reset = tf.sigmoid(reset_in[:, t] + self.peek[1] * cell + self.bias[1])
            fresh = forget * cell + (1.0 - forget) * candidate[:, t]
            cell = tf.where(observed[:, t, None] > 0, fresh, cell)
            hidden.append(reset * tf.tanh(cell) + (1.0 - reset) * x[:, t])
        return tf.stack(hidden, axis=1)


class TramBoardings(keras.Model):
    def __init__(self, units=20, depth=3, **kwargs):
        super().__init__(**kwargs)
        self.embed_stop = layers.Dense(units, use_bias=False, name="embed_stop")
        self.lift = layers.Dense(units, name="lift")
        self.recurrent = [SimpleRecurrentUnit(units, name=f"sru_{i}") for i in range(depth)]
        self.rates = layers.Dense(HORIZON, activation="softplus", name="rates")

    def call(self, inputs):
        x = self.lift(inputs["history"])
        stop = self.embed_stop(tf.one_hot(inputs["stop"], NUM_STOPS))
        x = x + stop[:, None, :]
        for layer in self.recurrent:
            x = layer(x, inputs["observed"])
        return self.rates(x[:, -1] + stop)


def poisson_deviance(targets, outputs):
    targets = tf.cast(targets, outputs.dtype)
    outputs = outputs + 1e-6
    return tf.reduce_mean(2.0 * (tf.math.xlogy(targets, targets / outputs) - targets + outputs), axis=-1)


def optimizer():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([12, 30], [4e-3, 1e-3, 2.5e-4])
    opt = keras.optimizers.AdamW(schedule, weight_decay=0.02, beta_2=0.98, epsilon=1e-10)
    opt.exclude_from_weight_decay(var_names=["bias"])
    return opt


def build():
    return TramBoardings(name="trams")
