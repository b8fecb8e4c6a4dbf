"""Classification by light: trainable phase plates, free space between them, nine detectors."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

SIZE = 18
PITCH = 0.4e-3  # metres
WAVELENGTH = 0.75e-3
GAP = 6e-3


def transfer(n):
    """Angular spectrum transfer function of the gap; waves that decay are cut."""
    f = np.fft.fftfreq(n, d=PITCH)
    fx, fy = np.meshgrid(f, f, indexing="xy")
    arg = 1.0 - (WAVELENGTH * fx) ** 2 - (WAVELENGTH * fy) ** 2
    phase = 2.0 * np.pi * GAP / WAVELENGTH * np.sqrt(np.maximum(arg, 0.0))
    h = np.where(arg > 0.0, np.exp(1j * phase), 0.0)
    return h.real.astype(np.float32), h.imag.astype(np.float32)


class FreeSpace(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.re, self.im = transfer(2 * SIZE)

    def call(self, re, im):
        h = tf.complex(tf.cast(self.re, re.dtype), tf.cast(self.im, re.dtype))
        half = SIZE // 2
        pad = [[0, 0], [half, half], [half, half]]
        field = tf.complex(tf.pad(re, pad), tf.pad(im, pad))
        field = tf.signal.ifft2d(tf.signal.fft2d(field) * h)
        field = field[:, half : half + SIZE, half : half + SIZE]
        return tf.math.real(field), tf.math.imag(field)


class PhasePlate(layers.Layer):
    def build(self, *shapes):
        self.height = self.add_weight(
            name="height", shape=(SIZE, SIZE), initializer=keras.initializers.RandomNormal(0.0, 1.0)
        )

    def call(self, re, im):
        angle = 2.0 * np.pi * ops.sigmoid(self.height)
        c, s = ops.cos(angle), ops.sin(angle)
        return re * c - im * s, re * s + im * c


class Diffractive(keras.Model):
    def __init__(self, plates=3, classes=5, **kwargs):
        super().__init__(**kwargs)
        self.space = FreeSpace()
        self.plates = [PhasePlate(name=f"plate_{i}") for i in range(plates)]
        self.detectors = layers.AveragePooling2D(4, strides=6)
        self.electronics = layers.Dense(classes)

    def build(self, shape):
        for plate in self.plates:
            plate.build()
        self.electronics.build((shape[0], 9))
        self.built = True

    def call(self, amplitude):
        re, im = amplitude, ops.zeros_like(amplitude)
        for plate in self.plates:
            re, im = self.space(re, im)
            re, im = plate(re, im)
        re, im = self.space(re, im)
        intensity = ops.square(re) + ops.square(im)
        energy = ops.reshape(self.detectors(intensity[..., None]), (-1, 9))
        energy = energy / ops.mean(energy, axis=-1, keepdims=True)
        return self.electronics(ops.log(energy + 0.05))


def build():
    model = Diffractive()
    model.build((None, SIZE, SIZE))
    return model
