import math

import keras
import tensorflow as tf
from keras import layers

ORDER = [3, 0, 4, 2, 1]


class Coupling(layers.Layer):
    def __init__(self, keep=2, dim=5, hidden=20):
        super().__init__()
        self.keep = keep
        self.hidden = layers.Dense(hidden, activation="tanh")
        self.st = layers.Dense(2 * (dim - keep))

    def build(self, shape):
        self.hidden.build((None, self.keep))
        self.st.build((None, self.hidden.units))
        self.bound = self.add_weight(shape=(shape[-1] - self.keep,), initializer="ones", name="bound")

    def call(self, x):
        a, b = x[:, : self.keep], x[:, self.keep :]
        s, t = tf.split(self.st(self.hidden(a)), 2, axis=-1)
        s = self.bound * tf.tanh(s)
        b = b * tf.exp(s) + t
        y = tf.concat([a, b], axis=-1)
        return tf.gather(y, ORDER, axis=-1), tf.reduce_sum(s, axis=-1)


class Flow(keras.Model):
    def __init__(self, depth=4):
        super().__init__()
        self.couplings = [Coupling() for _ in range(depth)]

    def call(self, x):
        logdet = 0.0
        for c in self.couplings:
            x, d = c(x)
            logdet = logdet + d
        base = -0.5 * tf.reduce_sum(x * x, axis=-1) - 2.5 * math.log(2 * math.pi)
        return base + logdet

    def train_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    model = Flow()
    model(keras.ops.zeros((1, 5)))
    return model
