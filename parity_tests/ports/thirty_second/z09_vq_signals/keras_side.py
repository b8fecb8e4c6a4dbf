import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class VectorQuantizer(layers.Layer):
    def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kw):
        super().__init__(**kw)
        self.k, self.d, self.beta = num_embeddings, embedding_dim, beta

    def build(self, shape):
        self.embeddings = self.add_weight(
            shape=(self.d, self.k), name="embeddings", initializer=keras.initializers.RandomUniform(-0.5, 0.5)
        )

    def call(self, z):
        flat = ops.reshape(z, (-1, self.d))
        dist = (
            ops.sum(flat**2, 1, keepdims=True)
            + ops.sum(self.embeddings**2, 0)
            - 2 * ops.matmul(flat, self.embeddings)
        )
        codes = ops.one_hot(ops.argmin(dist, 1), self.k, dtype=z.dtype)
        q = ops.reshape(ops.matmul(codes, ops.transpose(self.embeddings)), ops.shape(z))
        commitment = ops.mean((ops.stop_gradient(q) - z) ** 2)
        codebook = ops.mean((q - ops.stop_gradient(z)) ** 2)
        self.add_loss(self.beta * commitment + codebook)
        return z + ops.stop_gradient(q - z)


class VQVAE(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential(
            [
                layers.Conv1D(12, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1D(12, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1D(6, 1),
            ]
        )
        self.vq = VectorQuantizer(12, 6)
        self.decoder = keras.Sequential(
            [
                layers.Conv1DTranspose(12, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1DTranspose(12, 4, strides=2, padding="same", activation="relu"),
                layers.Conv1D(3, 3, padding="same"),
            ]
        )
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def call(self, x):
        return self.decoder(self.vq(self.encoder(x)))

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            recon = self(x, training=True)
            total = ops.mean((y - recon) ** 2) + sum(self.losses)
        grads = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(total)
        return {"loss": self.loss_tracker.result()}


def build():
    model = VQVAE()
    model(np.zeros((2, 24, 3), keras.config.floatx()))
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    return model
