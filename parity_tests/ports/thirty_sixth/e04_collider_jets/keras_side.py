"""Normalising flow of jet observables whose latent space has one Gaussian for each kind of jet."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

DIM, KINDS, HIDDEN, FLOWS = 5, 3, 12, 4


class Coupling(layers.Layer):
    def __init__(self, parity, **kw):
        super().__init__(**kw)
        self.keep = [float((i + parity) % 2) for i in range(DIM)]
        self.scale_hidden = layers.Dense(HIDDEN, activation="tanh", name="scale_hidden")
        self.scale_out = layers.Dense(DIM, activation="tanh", name="scale_out")
        self.shift_hidden = layers.Dense(HIDDEN, activation="tanh", name="shift_hidden")
        self.shift_out = layers.Dense(DIM, name="shift_out")

    def build(self, shape):
        for hidden, out in ((self.scale_hidden, self.scale_out), (self.shift_hidden, self.shift_out)):
            hidden.build(shape)
            out.build((shape[0], HIDDEN))
        self.range = self.add_weight(name="range", shape=(DIM,), initializer="ones")

    def call(self, x):
        keep = ops.cast(self.keep, x.dtype)
        kept = x * keep
        s = self.range * self.scale_out(self.scale_hidden(kept)) * (1 - keep)
        t = self.shift_out(self.shift_hidden(kept)) * (1 - keep)
        return kept + (1 - keep) * (x * ops.exp(s) + t), ops.sum(s, axis=-1)


class ActNorm(layers.Layer):
    def build(self, shape):
        self.log_scale = self.add_weight(name="log_scale", shape=(DIM,), initializer="zeros")
        self.offset = self.add_weight(name="offset", shape=(DIM,), initializer="zeros")

    def call(self, x):
        return (x + self.offset) * ops.exp(self.log_scale), ops.sum(self.log_scale)


class JetFlow(keras.Model):
    """Gives log p(x | kind) for each kind."""

    def __init__(self):
        super().__init__(name="jet_flow")
        self.steps = []
        for i in range(FLOWS):
            self.steps += [ActNorm(name=f"actnorm{i}"), Coupling(i, name=f"coupling{i}")]

    def build(self, shape):
        for step in self.steps:
            step.build(shape)
        self.means = self.add_weight(name="means", shape=(KINDS, DIM), initializer="random_normal")
        self.built = True

    def call(self, x, training=None):
        log_det = ops.zeros_like(x[:, 0])
        for step in self.steps:
            x, d = step(x)
            log_det = log_det + d
        away = ops.expand_dims(x, 1) - self.means
        log_p = -0.5 * ops.sum(ops.square(away), axis=-1) - 0.5 * DIM * math.log(2 * math.pi)
        return log_p + ops.expand_dims(log_det, 1)

    def nll(self, y, log_p):
        y = ops.cast(ops.reshape(y, (-1,)), "int32")
        joint = -ops.take_along_axis(log_p, y[:, None], axis=1)[:, 0]
        posterior = keras.losses.sparse_categorical_crossentropy(y, log_p, from_logits=True)
        return ops.mean(joint + 0.5 * posterior)

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.nll(y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.02, momentum=0.5, global_clipnorm=1.5)


def build():
    model = JetFlow()
    model.build((None, DIM))
    model.compile(optimizer=optimizer())
    return model
