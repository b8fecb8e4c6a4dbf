"""How many red cells a field of a blood smear shows: learnt openings and closings."""

import keras
import tensorflow as tf
from keras import layers, ops


class Dilation(layers.Layer):
    def __init__(self, size=3, rate=1, **kw):
        super().__init__(**kw)
        self.size, self.rate = size, rate

    def build(self, shape):
        self.element = self.add_weight(
            shape=(self.size, self.size, shape[-1]),
            name="element",
            initializer=keras.initializers.RandomNormal(stddev=0.1),
        )

    def call(self, t):
        return tf.nn.dilation2d(
            t,
            self.element,
            strides=[1, 1, 1, 1],
            padding="SAME",
            data_format="NHWC",
            dilations=[1, self.rate, self.rate, 1],
        )


class Erosion(Dilation):
    def call(self, t):
        return tf.nn.erosion2d(
            t,
            self.element,
            strides=[1, 1, 1, 1],
            padding="SAME",
            data_format="NHWC",
            dilations=[1, self.rate, self.rate, 1],
        )


def darkness(t):
    grey = tf.image.rgb_to_grayscale(tf.cast(t, "float32") / 255.0)
    return 1.0 - grey


loss = keras.losses.Poisson()


def build():
    keras.utils.set_random_seed(41)
    x = keras.Input((20, 20, 3), name="x")
    h = layers.Lambda(darkness, output_shape=(20, 20, 1), name="dark")(x)
    h = layers.Conv2D(6, 5, padding="same", activation="relu", name="conv1")(h)
    opened = Dilation(name="open_dilate")(Erosion(name="open_erode")(h))
    tophat = layers.Subtract(name="tophat")([h, opened])
    closed = Erosion(rate=2, name="close_erode")(Dilation(rate=2, name="close_dilate")(h))
    h = layers.Concatenate(name="maps")([opened, tophat, closed])
    h = layers.AveragePooling2D(3, strides=2, padding="same", name="pool")(h)  # 10
    h = layers.Conv2D(12, 3, activation=lambda t: ops.leaky_relu(t, negative_slope=0.1), name="conv2")(h)  # 8
    h = layers.AveragePooling2D(2, name="cells")(h)
    h = layers.Flatten(name="flat")(h)  # 4 x 4 x 12
    h = layers.Dense(16, activation="tanh", name="hidden")(h)
    h = layers.Dense(
        1, activation="softplus", bias_initializer=keras.initializers.Constant(2.5), name="count"
    )(h)
    return keras.Model(x, h)
