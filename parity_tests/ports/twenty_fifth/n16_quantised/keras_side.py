"""Codes for short signals: a vector-quantised autoencoder with a classifier on its codes, and a training step of its own."""

import keras
import tensorflow as tf
from keras import layers, ops


class Quantizer(layers.Layer):
    def __init__(self, codes, **kwargs):
        super().__init__(**kwargs)
        self.codes = codes

    def build(self, shape):
        self.codebook = self.add_weight(
            shape=(self.codes, shape[-1]),
            name="codebook",
            initializer=keras.initializers.RandomNormal(stddev=0.4),
        )

    def call(self, z):
        gap = ops.sum(ops.square(self.codebook), axis=-1) - 2 * ops.matmul(z, ops.transpose(self.codebook))
        chosen = ops.one_hot(ops.argmin(gap, axis=-1), self.codes, dtype=z.dtype)
        return ops.matmul(chosen, self.codebook)


class SignalCodes(keras.Model):
    def __init__(self):
        super().__init__(name="signal_codes")
        self.down = layers.Conv1D(12, 4, strides=2, padding="same", activation="tanh", name="down")
        self.latent = layers.Conv1D(6, 1, name="latent")
        self.quantizer = Quantizer(10, name="quantizer")
        self.up = layers.Conv1DTranspose(12, 4, strides=2, padding="same", activation="tanh", name="up")
        self.signal = layers.Conv1D(4, 3, padding="same", name="signal")
        self.classes = layers.Dense(3, name="classes")

    def encode(self, x):
        z = self.latent(self.down(x))
        return z, self.quantizer(z)

    def decode(self, code):
        return self.signal(self.up(code)), self.classes(ops.reshape(code, (-1, 8 * 6)))

    def call(self, x):
        z, code = self.encode(x)
        return self.decode(z + ops.stop_gradient(code - z))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            z, code = self.encode(x)
            signal, logits = self.decode(z + ops.stop_gradient(code - z))
            loss = ops.mean(ops.square(signal - x))
            loss += ops.mean(ops.square(code - ops.stop_gradient(z))) + 0.25 * ops.mean(
                ops.square(z - ops.stop_gradient(code))
            )
            loss += 0.5 * ops.mean(
                keras.losses.sparse_categorical_crossentropy(ops.reshape(y, (-1,)), logits, from_logits=True)
            )
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def build():
    model = SignalCodes()
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model
