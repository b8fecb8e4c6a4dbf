"""VQ-VAE for windows of a 3-axis accelerometer."""

import keras
from keras import layers, ops


class VectorQuantizer(layers.Layer):
    def __init__(self, num_embeddings, embedding_dim, beta=0.25, **kwargs):
        super().__init__(**kwargs)
        self.num_embeddings, self.embedding_dim, self.beta = num_embeddings, embedding_dim, beta

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings_vqvae",
            shape=(self.embedding_dim, self.num_embeddings),
            initializer=keras.initializers.RandomUniform(-0.5, 0.5),
        )

    def call(self, x):
        flat = ops.reshape(x, (-1, self.embedding_dim))
        dist = (
            ops.sum(flat**2, axis=1, keepdims=True)
            + ops.sum(self.embeddings**2, axis=0)
            - 2 * ops.matmul(flat, self.embeddings)
        )
        idx = ops.argmin(dist, axis=1)
        quantized = ops.take(ops.transpose(self.embeddings), idx, axis=0)
        quantized = ops.reshape(quantized, ops.shape(x))

        commitment_loss = ops.mean((ops.stop_gradient(quantized) - x) ** 2)
        codebook_loss = ops.mean((quantized - ops.stop_gradient(x)) ** 2)
        self.add_loss(self.beta * commitment_loss + codebook_loss)

        return x + ops.stop_gradient(quantized - x)


def build():
    inp = keras.Input((16, 3), name="window")
    x = layers.Conv1D(16, 4, strides=2, padding="same", activation="relu", name="enc1")(inp)
    x = layers.Conv1D(24, 4, strides=2, padding="same", activation="relu", name="enc2")(x)
    z = layers.Conv1D(8, 1, name="to_latent")(x)
    q = VectorQuantizer(12, 8, name="vq")(z)
    x = layers.Conv1D(24, 3, padding="same", activation="relu", name="dec0")(q)
    x = layers.UpSampling1D(2)(x)
    x = layers.Conv1D(16, 3, padding="same", activation="relu", name="dec1")(x)
    x = layers.UpSampling1D(2)(x)
    out = layers.Conv1D(3, 3, padding="same", name="dec2")(x)
    return keras.Model(inp, out, name="vqvae")


def loss(y_true, y_pred):
    return ops.mean((y_true - y_pred) ** 2, axis=[1, 2])
