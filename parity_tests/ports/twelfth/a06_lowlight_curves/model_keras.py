"""Light for dark pictures without references (Zero-DCE): curves for each pixel, applied again and again."""

import keras
import tensorflow as tf
from keras import layers, ops

ROUNDS = 4


def exposure(image):
    grey = ops.mean(image, axis=-1, keepdims=True)
    patches = ops.average_pool(grey, 4, strides=4)
    return ops.mean(ops.square(patches - 0.6))


def colour(image):
    r, g, b = ops.unstack(ops.mean(image, axis=(1, 2)), axis=-1)
    return ops.mean(ops.square(r - g) + ops.square(r - b) + ops.square(g - b))


def roughness(curves):
    rows = curves[:, 1:] - curves[:, :-1]
    columns = curves[:, :, 1:] - curves[:, :, :-1]
    return ops.mean(ops.square(rows)) + ops.mean(ops.square(columns))


class Enhancer(keras.Model):
    def train_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            loss = 10 * exposure(out["image"]) + 5 * colour(out["image"]) + 20 * roughness(out["curves"])
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    dark = keras.Input((12, 12, 3), name="dark")
    a = layers.Conv2D(6, 3, padding="same", activation="relu", name="down1")(dark)
    b = layers.Conv2D(6, 3, padding="same", activation="relu", name="down2")(a)
    c = layers.Conv2D(6, 3, padding="same", activation="relu", name="up1")(b)
    d = layers.Concatenate()([b, c])
    curves = layers.Conv2D(3 * ROUNDS, 3, padding="same", activation="tanh", name="curves")(d)
    image = dark
    for i in range(ROUNDS):
        image = image + curves[..., 3 * i : 3 * i + 3] * (image - ops.square(image))
    return Enhancer(dark, {"image": image, "curves": curves})
