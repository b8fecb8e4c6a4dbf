"""Denoising VQ-VAE for one-channel waveforms (noisy in, clean out)."""

import keras
from keras import layers, ops

LENGTH, CODES, DIM = 64, 16, 6
BETA = 0.25
DATA_VARIANCE = 0.4


class VectorQuantizer(layers.Layer):
    def build(self, shape):
        self.codebook = self.add_weight(
            name="codebook", shape=(DIM, CODES), initializer=keras.initializers.RandomUniform(-0.5, 0.5)
        )

    def call(self, z):
        flat = ops.reshape(z, (-1, DIM))
        d = (
            ops.sum(flat**2, axis=1, keepdims=True)
            - 2.0 * ops.matmul(flat, self.codebook)
            + ops.sum(self.codebook**2, axis=0, keepdims=True)
        )
        idx = ops.argmin(d, axis=1)
        q = ops.reshape(ops.take(ops.transpose(self.codebook), idx, axis=0), ops.shape(z))
        commitment = ops.mean((ops.stop_gradient(q) - z) ** 2)
        codebook = ops.mean((q - ops.stop_gradient(z)) ** 2)
        self.add_loss(codebook + BETA * commitment)
        return z + ops.stop_gradient(q - z)


class ResUnit(layers.Layer):
    def __init__(self, c, **kw):
        super().__init__(**kw)
        self.c3 = layers.Conv1D(c, 3, padding="same", use_bias=False, name="c3")
        self.c1 = layers.Conv1D(c, 1, use_bias=False, name="c1")

    def build(self, shape):
        self.c3.build(shape)
        self.c1.build(shape)

    def call(self, x):
        return x + self.c1(ops.relu(self.c3(ops.relu(x))))


class VQVAE(keras.Model):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.encoder = keras.Sequential(
            [
                keras.Input((LENGTH, 1)),
                layers.Conv1D(10, 4, strides=2, padding="same", activation="relu", name="enc1"),
                layers.Conv1D(12, 4, strides=2, padding="same", name="enc2"),
                ResUnit(12, name="enc_res"),
                layers.Conv1D(DIM, 1, name="to_code"),
            ],
            name="encoder",
        )
        self.quantizer = VectorQuantizer(name="quantizer")
        self.decoder = keras.Sequential(
            [
                keras.Input((LENGTH // 4, DIM)),
                layers.Conv1D(12, 3, padding="same", name="dec_in"),
                ResUnit(12, name="dec_res"),
                layers.Conv1DTranspose(10, 4, strides=2, padding="same", activation="relu", name="dec1"),
                layers.Conv1DTranspose(1, 4, strides=2, padding="same", name="dec2"),
            ],
            name="decoder",
        )

    def call(self, x):
        return self.decoder(self.quantizer(self.encoder(x)))

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            recon = ops.mean(ops.square(ops.cast(y, out.dtype) - out)) / DATA_VARIANCE
            loss = recon + sum(self.losses)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss, "reconstruction": recon}


def build():
    model = VQVAE(name="vqvae")
    model(ops.zeros((1, LENGTH, 1)))
    model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.05, momentum=0.9), loss="mse")
    return model
