"""Traffic signs that are turned upright first (spatial transformer)."""

import keras
from keras import initializers, layers, ops


class Resample(layers.Layer):
    """Pixels at affine places; corners are -1 and 1, and what lies outside is the nearest pixel."""

    def call(self, image, theta):
        height, width = image.shape[1:3]
        xs = ops.linspace(-1.0, 1.0, width, dtype=image.dtype)
        ys = ops.linspace(-1.0, 1.0, height, dtype=image.dtype)
        grid_x, grid_y = ops.meshgrid(xs, ys)
        grid = ops.stack([ops.ravel(grid_x), ops.ravel(grid_y), ops.ones_like(ops.ravel(grid_x))])
        places = ops.matmul(ops.reshape(theta, (-1, 2, 3)), grid)
        x = ops.clip((places[:, 0] + 1) * (width - 1) / 2, 0, width - 1)
        y = ops.clip((places[:, 1] + 1) * (height - 1) / 2, 0, height - 1)
        left, top = ops.floor(x), ops.floor(y)
        pixels = ops.reshape(image, (-1, height * width, image.shape[3]))

        def pixel(row, column):
            row = ops.cast(ops.minimum(row, height - 1), "int32")
            column = ops.cast(ops.minimum(column, width - 1), "int32")
            return ops.take_along_axis(pixels, (row * width + column)[..., None], axis=1)

        fx, fy = (x - left)[..., None], (y - top)[..., None]
        upper = (1 - fx) * pixel(top, left) + fx * pixel(top, left + 1)
        lower = (1 - fx) * pixel(top + 1, left) + fx * pixel(top + 1, left + 1)
        return ops.reshape((1 - fy) * upper + fy * lower, (-1, height, width, image.shape[3]))

    def compute_output_shape(self, image_shape, theta_shape):
        return image_shape


def build(size=15, classes=4):
    sign = keras.Input((size, size, 1), name="sign")
    x = layers.AveragePooling2D(3, strides=2, padding="same")(sign)
    x = layers.Conv2D(5, 3, activation="relu", name="look")(x)
    x = layers.BatchNormalization(trainable=False, name="look_norm")(x)
    x = layers.MaxPooling2D(2)(x)
    x = layers.Dense(10, activation="tanh", name="where")(layers.Flatten()(x))
    theta = layers.Dense(
        6,
        kernel_initializer=initializers.RandomNormal(stddev=0.05),
        bias_initializer=initializers.Constant([1.1, 0.05, 0.02, -0.05, 1.05, -0.03]),
        name="theta",
    )(x)
    x = Resample(name="upright")(sign, theta)
    x = layers.Conv2D(6, 3, strides=2, padding="same", use_bias=False, name="conv_1")(x)
    x = layers.BatchNormalization(momentum=0.9, name="norm_1")(x)
    x = layers.Activation("relu")(x)
    x = layers.Conv2D(8, 3, strides=2, activation="relu", padding="same", name="conv_2")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(sign, layers.Dense(classes, name="classes")(x))
