"""A picture is convolved with kernels that a second network makes from a description of what to measure."""

import keras
from keras import layers, ops

SIDE, IN, OUT = 8, 8, 6


class ConditionalConvolution(layers.Layer):
    """A 3x3 convolution whose kernel and bias are given for each sample."""

    def call(self, x, kernel, bias):
        padded = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = [padded[:, i : i + SIDE, j : j + SIDE, :] for i in range(3) for j in range(3)]
        windows = ops.stack(windows, axis=3)
        return ops.einsum("bhwkc,bkco->bhwo", windows, kernel) + bias[:, None, None, :]


def build():
    image = keras.Input((SIDE, SIDE, 1), name="image")
    question = keras.Input((5,), name="question")

    h = layers.Dense(16, activation="tanh", name="read_question")(question)
    kernel = layers.Dense(9 * IN * OUT, name="make_kernel")(h)
    kernel = layers.Reshape((9, IN, OUT))(kernel) / (9 * IN) ** 0.5
    bias = layers.Dense(OUT, name="make_bias")(h)

    x = layers.Conv2D(IN, 3, padding="same", activation="relu", name="features")(image)
    x = ConditionalConvolution(name="conditional")(x, kernel, bias)
    x = keras.activations.silu(x)
    x = layers.AveragePooling2D(4)(x)
    x = layers.Flatten()(x)
    x = layers.Dropout(0.1)(x)
    x = layers.Concatenate()([x, h])
    return keras.Model([image, question], layers.Dense(1, name="answer")(x))


def loss(y_true, y_pred):
    error = ops.reshape(y_pred, (-1,)) - ops.cast(ops.reshape(y_true, (-1,)), y_pred.dtype)
    return ops.abs(error) + ops.softplus(-2.0 * ops.abs(error)) - ops.log(ops.cast(2.0, y_pred.dtype))
