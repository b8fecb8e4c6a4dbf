"""Denoising VQ autoencoder of two-lead heart beats; the codebook follows moving averages of its assignments."""

import keras
import tensorflow as tf
from keras import layers, ops


class EMACodebook(layers.Layer):
    def __init__(self, codes, decay=0.95, epsilon=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.codes, self.decay, self.epsilon = codes, decay, epsilon

    def build(self, input_shape):
        dim = input_shape[-1]
        self.codebook = self.add_weight(
            name="codebook",
            shape=(self.codes, dim),
            trainable=False,
            initializer=keras.initializers.RandomUniform(-1.0, 1.0),
        )
        self.counts = self.add_weight(name="counts", shape=(self.codes,), initializer="ones", trainable=False)
        self.sums = self.add_weight(
            name="sums", shape=(self.codes, dim), initializer="zeros", trainable=False
        )
        self.sums.assign(self.codebook)

    def call(self, z, training=False):
        flat = ops.reshape(z, (-1, z.shape[-1]))
        distance = (
            ops.sum(flat**2, axis=1, keepdims=True)
            - 2 * ops.matmul(flat, ops.transpose(self.codebook))
            + ops.sum(self.codebook**2, axis=1)
        )
        code = ops.argmin(distance, axis=1)
        quantized = ops.reshape(ops.take(self.codebook, code, axis=0), ops.shape(z))
        commitment = ops.mean((ops.stop_gradient(quantized) - z) ** 2)
        if training:
            self.update(ops.stop_gradient(flat), ops.one_hot(code, self.codes, dtype=z.dtype))
        return z + ops.stop_gradient(quantized - z), commitment

    def update(self, flat, one_hot):
        self.counts.assign(self.decay * self.counts + (1 - self.decay) * ops.sum(one_hot, axis=0))
        self.sums.assign(self.decay * self.sums + (1 - self.decay) * ops.matmul(ops.transpose(one_hot), flat))
        total = ops.sum(self.counts)
        smoothed = (self.counts + self.epsilon) / (total + self.codes * self.epsilon) * total
        self.codebook.assign(self.sums / smoothed[:, None])


class BeatVQ(keras.Model):
    def __init__(self, codes=16, dim=6, beta=0.25, **kwargs):
        super().__init__(**kwargs)
        self.beta = beta
        self.encoder = keras.Sequential(
            [
                layers.Conv1D(16, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1D(24, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1D(dim, 1),
            ],
            name="encoder",
        )
        self.quantizer = EMACodebook(codes, name="quantizer")
        self.decoder = keras.Sequential(
            [
                layers.Conv1DTranspose(16, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1DTranspose(2, 4, strides=2, padding="same"),
            ],
            name="decoder",
        )
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, beats, training=False):
        quantized, commitment = self.quantizer(self.encoder(beats), training=training)
        return self.decoder(quantized), commitment

    def train_step(self, data):
        noisy, clean = data
        with tf.GradientTape() as tape:
            restored, commitment = self(noisy, training=True)
            loss = ops.mean((clean - restored) ** 2) + self.beta * commitment
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = BeatVQ()
    model.compile(optimizer=keras.optimizers.Adam(2e-3))
    return model
