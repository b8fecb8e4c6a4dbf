import keras
import tensorflow as tf
from keras import layers, ops

CODES, DIM, BETA = 12, 8, 0.25


class Codebook(layers.Layer):
    def build(self, shape):
        self.codes = self.add_weight(shape=(CODES, DIM), initializer="random_normal", name="codes")

    def call(self, z):
        flat = ops.reshape(z, (-1, DIM))
        dist = (
            ops.sum(flat**2, axis=1, keepdims=True)
            - 2.0 * ops.matmul(flat, ops.transpose(self.codes))
            + ops.sum(self.codes**2, axis=1)
        )
        picked = ops.take(self.codes, ops.argmin(dist, axis=1), axis=0)
        picked = ops.reshape(picked, ops.shape(z))
        self.add_loss(
            ops.mean((ops.stop_gradient(z) - picked) ** 2)
            + BETA * ops.mean((z - ops.stop_gradient(picked)) ** 2)
        )
        return z + ops.stop_gradient(picked - z)


class VQTile(keras.Model):
    def __init__(self):
        super().__init__()
        self.encode = keras.Sequential(
            [
                layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
                layers.Conv2D(DIM, 1),
            ]
        )
        self.codebook = Codebook()
        self.decode = keras.Sequential(
            [
                layers.Conv2D(16, 3, padding="same", activation="relu"),
                layers.Conv2DTranspose(12, 3, strides=2, padding="same", activation="relu"),
                layers.Conv2D(1, 3, padding="same"),
            ]
        )

    def call(self, tile):
        return self.decode(self.codebook(self.encode(tile)))

    def train_step(self, data):
        noisy, clean, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(noisy, training=True)
            loss = ops.mean((clean - out) ** 2) + sum(self.losses)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def build():
    model = VQTile()
    model.build((None, 8, 8, 1))
    return model
