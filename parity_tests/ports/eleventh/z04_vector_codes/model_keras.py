"""Classifier of gestures whose hidden states are quantised to a codebook, with straight-through gradients."""

import keras
import tensorflow as tf
from keras import layers, ops


class Codebook(layers.Layer):
    def __init__(self, codes, **kwargs):
        super().__init__(**kwargs)
        self.codes = codes

    def build(self, shape):
        self.table = self.add_weight(
            shape=(self.codes, shape[-1]),
            initializer=keras.initializers.RandomUniform(-0.5, 0.5),
            name="table",
        )

    def call(self, z):
        distance = (
            ops.sum(ops.square(z), axis=-1, keepdims=True)
            - 2 * ops.matmul(z, ops.transpose(self.table))
            + ops.sum(ops.square(self.table), axis=-1)
        )
        code = ops.take(self.table, ops.argmin(distance, axis=-1), axis=0)
        pull_code = ops.mean(ops.square(ops.stop_gradient(z) - code), axis=(1, 2))
        commit = ops.mean(ops.square(z - ops.stop_gradient(code)), axis=(1, 2))
        return z + ops.stop_gradient(code - z), pull_code, commit


class GestureNet(keras.Model):
    beta = 0.25

    def __init__(self, classes=5):
        super().__init__()
        self.down = layers.Conv1D(24, 4, strides=2, padding="same", activation="tanh")
        self.encode = layers.Conv1D(10, 3, padding="same")
        self.codebook = Codebook(12)
        self.decode = layers.Conv1D(16, 3, padding="same", activation="elu")
        self.score = layers.Dense(1, use_bias=False)
        self.head = layers.Dense(classes)

    def features(self, x):
        quantised, pull_code, commit = self.codebook(self.encode(self.down(x)))
        h = self.decode(quantised)
        attention = ops.softmax(self.score(h), axis=1)
        return self.head(ops.sum(attention * h, axis=1)), pull_code, commit

    def call(self, x):
        return self.features(x)[0]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            logits, pull_code, commit = self.features(x)
            entropy = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
            loss = ops.mean(entropy + pull_code + self.beta * commit)
        weights = self.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"loss": loss}


def build():
    model = GestureNet()
    model(ops.zeros((1, 32, 3)))
    return model
