"""Motion-capture tokenizer: noisy clip -> discrete codes -> clean clip."""

import keras
import tensorflow as tf
from keras import layers, ops

FRAMES, JOINTS, STRIDE, DIM, CODES = 16, 5, 4, 4, 9
BETA = 0.25


class Codebook(layers.Layer):
    def build(self, shape):
        self.codes = self.add_weight(
            name="codes", shape=(CODES, DIM), initializer=keras.initializers.RandomNormal(stddev=0.5)
        )

    def call(self, z):
        dist = (
            ops.sum(z * z, axis=-1, keepdims=True)
            - 2.0 * ops.matmul(z, ops.transpose(self.codes))
            + ops.sum(self.codes * self.codes, axis=-1)
        )
        return ops.take(self.codes, ops.argmin(dist, axis=-1), axis=0)


class Tokenizer(keras.Model):
    def __init__(self):
        super().__init__()
        self.patch = layers.Conv1D(14, STRIDE, strides=STRIDE, activation="gelu", name="patch")
        self.to_code = layers.Dense(DIM, name="to_code")
        self.book = Codebook(name="book")
        self.dec1 = layers.Dense(14, activation="gelu", name="dec1")
        self.dec2 = layers.Dense(STRIDE * JOINTS, name="dec2")

    def encode(self, x):
        return self.to_code(self.patch(x))

    def decode(self, q):
        return ops.reshape(self.dec2(self.dec1(q)), (-1, FRAMES, JOINTS))

    def call(self, x):
        z = self.encode(x)
        q = self.book(z)
        return self.decode(z + ops.stop_gradient(q - z))

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            z = self.encode(x)
            q = self.book(z)
            recon = self.decode(z + ops.stop_gradient(q - z))
            loss = self.compute_loss(x=x, y=y, y_pred=recon)
            loss += ops.mean(ops.square(ops.stop_gradient(z) - q))
            loss += BETA * ops.mean(ops.square(z - ops.stop_gradient(q)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def build():
    m = Tokenizer()
    m(ops.zeros((1, FRAMES, JOINTS)))
    m.compile(loss="mse")
    return m
