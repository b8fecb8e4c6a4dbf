"""Inpainting of irregular holes with partial convolutions (Liu et al. 2018)."""

import keras
import tensorflow as tf
from keras import layers, ops


class PartialConv(layers.Layer):
    """A convolution of the valid pixels alone, rescaled by how many there are. Gives the new mask, too."""

    def __init__(self, filters, size, strides=1, norm=True, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size, self.strides = filters, size, strides
        self.norm = layers.GroupNormalization(groups=4, epsilon=1e-5) if norm else None
        self.activation = (
            layers.LeakyReLU(negative_slope=0.25) if activation == "leaky" else layers.Activation(activation)
        )

    def build(self, shapes):
        channels = shapes[0][-1]
        self.kernel = self.add_weight(shape=(self.size, self.size, channels, self.filters), name="kernel")
        self.bias = self.add_weight(shape=(self.filters,), initializer="zeros", name="bias")
        super().build(shapes)

    def call(self, inputs):
        x, mask = inputs
        ones = ops.ones((self.size, self.size, mask.shape[-1], 1), dtype=x.dtype)
        count = ops.conv(mask, ones, strides=self.strides, padding="same")
        window = self.size * self.size * mask.shape[-1]
        seen = ops.clip(count, 0, 1)
        ratio = window / (count + 1e-8) * seen
        x = ops.conv(x * mask, self.kernel, strides=self.strides, padding="same")
        x = (x * ratio + self.bias) * seen
        if self.norm is not None:
            x = self.norm(x)
        return self.activation(x), ops.broadcast_to(seen, ops.shape(x))


class Inpainter(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoders = [
            PartialConv(8, 5, 2, norm=False, name="encode_1"),
            PartialConv(12, 3, 2, name="encode_2"),
            PartialConv(16, 3, 2, name="encode_3"),
        ]
        self.decoders = [
            PartialConv(12, 3, activation="leaky", name="decode_3"),
            PartialConv(8, 3, activation="leaky", name="decode_2"),
        ]
        self.last = PartialConv(3, 3, norm=False, activation="linear", name="decode_1")
        self.up = layers.UpSampling2D(2)

    def call(self, inputs):
        image, mask = inputs["image"], inputs["mask"]
        m = ops.repeat(mask, 3, axis=-1)
        x = image * m
        kept = []
        for encoder in self.encoders:
            kept.append((x, m))
            x, m = encoder((x, m))
        for decoder in [*self.decoders, self.last]:
            skip, skip_mask = kept.pop()
            x = ops.concatenate([self.up(x), skip], -1)
            m = ops.concatenate([self.up(m), skip_mask], -1)
            x, m = decoder((x, m))
        return x

    def train_step(self, data):
        image, mask = data["image"], data["mask"]
        with tf.GradientTape() as tape:
            output = self(data, training=True)
            error = ops.abs(output - image)
            hole, valid = ops.mean((1 - mask) * error), ops.mean(mask * error)
            whole = mask * image + (1 - mask) * output
            variation = ops.mean(ops.abs(whole[:, 1:] - whole[:, :-1])) + ops.mean(
                ops.abs(whole[:, :, 1:] - whole[:, :, :-1])
            )
            loss = valid + 6 * hole + 0.1 * variation
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss, "hole": hole}


def build():
    model = Inpainter()
    model.compile(optimizer=keras.optimizers.Adam(2e-3))
    return model
