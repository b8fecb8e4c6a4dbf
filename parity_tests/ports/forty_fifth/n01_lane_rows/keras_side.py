"""Row-anchor lane detection: small residual backbone, slice-wise message passing, grid classification per row."""

import keras
from keras import layers, ops

HEIGHT, WIDTH = 48, 96
CELLS, ROWS, LANES = 16, 8, 4
SIMILARITY, SHAPE = 0.3, 0.2


def conv_norm(x, filters, kernel, strides=1, activate=True):
    x = layers.Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False)(x)
    x = layers.GroupNormalization(groups=4)(x)
    return layers.Activation("relu")(x) if activate else x


def residual(x, filters, strides=1):
    y = conv_norm(x, filters, 3, strides)
    y = conv_norm(y, filters, 3, activate=False)
    if strides != 1 or x.shape[-1] != filters:
        x = conv_norm(x, filters, 1, strides, activate=False)
    return layers.Activation("relu")(layers.Add()([x, y]))


class SliceMessages(layers.Layer):
    """Passes messages from slice to slice: down, up, to the right, to the left."""

    def __init__(self, kernel_size=5, **kwargs):
        super().__init__(**kwargs)
        self.kernel_size = kernel_size

    def build(self, shape):
        channels = shape[-1]
        scale = (2.0 / (self.kernel_size * channels * 5)) ** 0.5
        for name in ("down", "up", "right", "left"):
            conv = layers.Conv1D(
                channels,
                self.kernel_size,
                padding="same",
                use_bias=False,
                kernel_initializer=keras.initializers.RandomNormal(stddev=scale),
                name=name,
            )
            setattr(self, name, conv)
            conv.build((None, None, channels))
        super().build(shape)

    @staticmethod
    def sweep(x, axis, conv, backwards):
        slices = ops.unstack(x, axis=axis)
        order = range(len(slices) - 2, -1, -1) if backwards else range(1, len(slices))
        before = 1 if backwards else -1
        for i in order:
            slices[i] = slices[i] + ops.relu(conv(slices[i + before]))
        return ops.stack(slices, axis=axis)

    def call(self, x):
        x = self.sweep(x, 1, self.down, False)
        x = self.sweep(x, 1, self.up, True)
        x = self.sweep(x, 2, self.right, False)
        return self.sweep(x, 2, self.left, True)


def build():
    image = keras.Input((HEIGHT, WIDTH, 3), name="image")
    x = conv_norm(image, 16, 5, strides=2)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = residual(x, 16)
    x = residual(x, 32, strides=2)
    x = SliceMessages(name="messages")(x)
    x = layers.Conv2D(6, 1, activation="relu", name="squeeze")(x)
    x = layers.Flatten()(x)
    x = layers.Dense(96, activation="relu", name="fc")(x)
    x = layers.Dense(ROWS * LANES * (CELLS + 1), name="cells")(x)
    return keras.Model(image, layers.Reshape((ROWS, LANES, CELLS + 1))(x), name="lanes")


def loss(targets, outputs):
    """Focal classification of the cell, likeness of neighbouring rows, and straightness of the expected position."""
    targets = ops.cast(targets, "int32")
    log_p = ops.log_softmax(outputs, axis=-1)
    picked = ops.sum(ops.one_hot(targets, CELLS + 1, dtype=log_p.dtype) * log_p, axis=-1)
    focal = ops.mean(-ops.square(1.0 - ops.exp(picked)) * picked)

    step = outputs[:, 1:] - outputs[:, :-1]
    size = ops.abs(step)
    similarity = ops.mean(ops.where(size < 1.0, 0.5 * ops.square(step), size - 0.5))

    position = ops.sum(
        ops.softmax(outputs[..., :CELLS], axis=-1) * ops.arange(CELLS, dtype=outputs.dtype), axis=-1
    )
    bend = position[:, 2:] - 2.0 * position[:, 1:-1] + position[:, :-2]
    there = targets < CELLS
    three = ops.cast(there[:, 2:] & there[:, 1:-1] & there[:, :-2], outputs.dtype)
    shape = ops.sum(three * ops.abs(bend)) / ops.maximum(ops.sum(three), 1.0)
    return focal + SIMILARITY * similarity + SHAPE * shape
