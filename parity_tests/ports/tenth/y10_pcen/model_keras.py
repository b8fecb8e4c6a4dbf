"""Sound events from a waveform: a spectrogram by convolution, PCEN with trained exponents, a small CNN, focal loss."""

import keras
import numpy as np
from keras import layers, ops

FRAME, HOP, BANDS, RATE, CLASSES, GAMMA = 128, 64, 16, 4000, 4, 2.0


def fourier_kernels():
    """(FRAME, 1, 2 * bins): windowed cosines, then windowed sines"""
    angle = 2 * np.pi * np.outer(np.arange(FRAME), np.arange(FRAME // 2 + 1)) / FRAME
    kernels = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    return (kernels * np.hanning(FRAME)[:, None])[:, None, :]


def mel_matrix():
    def mel(f):
        return 2595 * np.log10(1 + f / 700)

    edges = np.linspace(mel(40), mel(RATE / 2), BANDS + 2)
    bins = mel(np.linspace(0, RATE / 2, FRAME // 2 + 1))
    up = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(up, down))


class MelSpectrogram(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.kernels, self.matrix = fourier_kernels(), mel_matrix()

    def call(self, x):
        waves = ops.conv(
            x[..., None], ops.convert_to_tensor(self.kernels, dtype=x.dtype), strides=HOP, padding="valid"
        )
        real, imaginary = ops.split(waves, 2, axis=-1)
        power = ops.square(real) + ops.square(imaginary)
        return ops.matmul(power, ops.convert_to_tensor(self.matrix, dtype=x.dtype))


class PCEN(layers.Layer):
    """Divides every band by its own recent level, then compresses it by a root."""

    def build(self, input_shape):
        def per_band(name, value):
            initializer = keras.initializers.Constant(value)
            return self.add_weight(shape=(input_shape[-1],), initializer=initializer, name=name)

        self.smooth = per_band("smooth", -1.5)
        self.alpha = per_band("alpha", 0.9)
        self.delta = per_band("delta", 0.7)
        self.root = per_band("root", 0.7)

    def call(self, energy):
        s = ops.sigmoid(self.smooth)
        level = energy[:, 0]
        levels = [level]
        for t in range(1, energy.shape[1]):
            level = (1.0 - s) * level + s * energy[:, t]
            levels.append(level)
        gain = ops.exp(-self.alpha * ops.log(ops.stack(levels, axis=1) + 1e-3))
        bias, root = ops.exp(self.delta), ops.sigmoid(self.root)
        return ops.power(energy * gain + bias, root) - ops.power(bias, root)


class SoundNet(keras.Model):
    def __init__(self):
        super().__init__()
        self.spectrogram = MelSpectrogram()
        self.pcen = PCEN(name="pcen")
        self.conv1 = layers.Conv2D(8, (5, 3), padding="same", activation="relu", name="conv1")
        self.pool = layers.MaxPooling2D((1, 2))
        self.conv2 = layers.Conv2D(16, 3, padding="same", activation="relu", name="conv2")
        self.average = layers.GlobalAveragePooling2D()
        self.dropout = layers.Dropout(0.1)
        self.classes = layers.Dense(CLASSES, name="classes")

    def call(self, x, training=None):
        x = self.pcen(self.spectrogram(x))
        x = self.conv2(self.pool(self.conv1(x[..., None])))
        return self.classes(self.dropout(self.average(x), training=training))


def loss(y_true, y_pred):
    """Focal loss: what is already recognised counts less."""
    label = ops.cast(ops.reshape(y_true, (-1,)), "int32")
    log_p = ops.sum(
        ops.one_hot(label, CLASSES, dtype=y_pred.dtype) * ops.log_softmax(y_pred, axis=-1), axis=-1
    )
    return -((1.0 - ops.exp(log_p)) ** GAMMA) * log_p
