"""Accelerated MRI: a cascade of CNNs and soft data consistency in k-space."""

import keras
import tensorflow as tf
from keras import layers, ops

HEIGHT, WIDTH = 16, 15


def to_complex(x):
    return tf.complex(x[..., 0], x[..., 1])


def to_channels(x):
    return tf.stack([tf.math.real(x), tf.math.imag(x)], axis=-1)


def scale(x):
    return tf.cast(float(HEIGHT * WIDTH) ** 0.5, x.dtype)


def fft2c(image):
    x = tf.signal.ifftshift(image, axes=(1, 2))
    return tf.signal.fftshift(tf.signal.fft2d(x), axes=(1, 2)) / scale(image)


def ifft2c(kspace):
    x = tf.signal.ifftshift(kspace, axes=(1, 2))
    return tf.signal.fftshift(tf.signal.ifft2d(x), axes=(1, 2)) * scale(kspace)


class Denoiser(layers.Layer):
    def __init__(self, width=12, **kwargs):
        super().__init__(**kwargs)
        self.convs = [layers.Conv2D(width, 3, padding="same", activation="gelu") for _ in range(3)]
        self.out = layers.Conv2D(2, 3, padding="same")

    def call(self, x):
        h = x
        for conv in self.convs:
            h = conv(h)
        return x + self.out(h)


class DataConsistency(layers.Layer):
    def build(self, *shapes):
        self.log_noise = self.add_weight(shape=(), initializer="zeros", name="log_noise")

    def call(self, image, measured, mask):
        v = ops.exp(self.log_noise)
        k = to_channels(fft2c(to_complex(image)))
        blended = (k + v * measured) / (1.0 + v)
        k = mask * blended + (1.0 - mask) * k
        return to_channels(ifft2c(to_complex(k)))


class Cascade(keras.Model):
    def __init__(self, stages=3):
        super().__init__()
        self.denoisers = [Denoiser() for _ in range(stages)]
        self.consistency = [DataConsistency() for _ in range(stages)]

    def call(self, inputs):
        measured, mask = inputs["kspace"], inputs["mask"]
        image = to_channels(ifft2c(to_complex(measured)))
        for denoise, consist in zip(self.denoisers, self.consistency):
            image = consist(denoise(image), measured, mask)
        return ops.sqrt(ops.sum(ops.square(image), axis=-1) + 1e-8)


def build():
    kspace = keras.Input((HEIGHT, WIDTH, 2), name="kspace")
    mask = keras.Input((HEIGHT, WIDTH, 1), name="mask")
    model = Cascade()
    model({"kspace": kspace, "mask": mask})
    model.compile(keras.optimizers.Adam(1e-3), loss="mae")
    return model
