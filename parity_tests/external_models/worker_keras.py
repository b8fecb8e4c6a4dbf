"""A Keras net for the tests of foreign workers; its port is in worker_torch.py."""

import keras
import tensorflow as tf
from keras import layers


def net():
    return keras.Sequential(
        [
            keras.Input((7, 7, 2)),
            layers.Conv2D(3, 3, strides=2, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.LeakyReLU(name="leaky"),
            layers.Flatten(name="flat"),
            layers.Dense(6, activation="gelu", name="hidden"),
            layers.Dense(4, name="head"),
        ]
    )


class Twice(keras.layers.Layer):
    """Both of its weights have one name."""

    def build(self, shape):
        self.gain, self.shift = (self.add_weight(shape=shape[-1:], name="own") for _ in range(2))

    def call(self, x):
        return x * self.gain + self.shift


def alike():
    """Two models that call their layers alike."""

    def part(name):
        given = keras.Input((4,))
        return keras.Model(given, Twice(name="own")(layers.Dense(4, name="dense")(given)), name=name)

    given = keras.Input((4,))
    return keras.Model(given, part("second")(part("first")(given)))


def penalised():
    """Adds to its loss by itself."""
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.25), name="fc")]
    )


def descent(rate=0.1):
    return keras.optimizers.SGD(rate, momentum=0.9)


def descent_of(model, rate=0.1):
    assert isinstance(model, keras.Model)
    return keras.optimizers.SGD(rate)


def falling():
    return keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.5, 4, 0.1))


class NoOptimizer:
    """Keras has it that an optimizer is made of more."""


def conv(size):
    return keras.Sequential(
        [keras.Input((size, size, 2)), layers.Conv2D(3, 3, strides=2, padding="same", name="conv")]
    )


def pool():
    return keras.Sequential(
        [keras.Input((6, 6, 2)), layers.AveragePooling2D(3, strides=2, padding="same", name="pool")]
    )


class Rounded(keras.layers.Layer):
    """What TensorFlow computes in float32, or not at all in float64, and what is not quite what it says."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.BatchNormalization(name="norm")

    def call(self, x):
        """(samples, 12, 12, 4): normalised, resized, seen through a window, turned, compared with itself, seen in part."""
        x = (
            x
            + tf.cast(tf.image.per_image_standardization(x), x.dtype)
            + tf.cast(tf.image.rgb_to_grayscale(x[..., :3]), x.dtype)
        )
        y = tf.nn.lrn(x, depth_radius=2, bias=2.0, alpha=0.3, beta=0.75)
        large = tf.image.resize(y, (24, 24), "bicubic")
        window = keras.ops.hanning(24)[:, None, None]
        turned = keras.ops.view_as_complex(keras.ops.reshape(y, (-1, 12, 12, 2, 2))) * tf.complex(0.6, 0.8)
        alike = tf.image.ssim(x, y, 4.0)[:, None]
        seen = self.norm(y, training=True, mask=x[..., 0] > 0.5)
        part = keras.ops.sum(keras.ops.where(x[..., :1] > 0.5, keras.ops.softplus(20 + seen), 0.0), (1, 2))
        return keras.ops.sum(large * window, (1, 2)) + keras.ops.sum(tf.math.real(turned)) + alike + part


def rounded():
    return keras.Sequential([keras.Input((12, 12, 4)), Rounded(name="rounded")])
