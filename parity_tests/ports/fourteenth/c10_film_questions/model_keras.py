"""Questions about small pictures: the question modulates the channels of residual blocks (FiLM)."""

import keras
from keras import layers, ops

SIZE, WORDS, ANSWERS, CHANNELS, BLOCKS = 8, 15, 5, 8, 2


class Coordinates(layers.Layer):
    """Two more channels: where a pixel is, from -1 to 1."""

    def call(self, x):
        steps = ops.cast(ops.linspace(-1.0, 1.0, SIZE), x.dtype)
        row, column = ops.meshgrid(steps, steps, indexing="ij")
        grid = ops.stack([column, row], axis=-1)
        return ops.concatenate([x, ops.tile(grid[None], (ops.shape(x)[0], 1, 1, 1))], axis=-1)

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] + 2)


def film_block(x, gamma, beta, name):
    x = layers.Conv2D(CHANNELS, 1, activation="relu", name=f"{name}_in")(Coordinates()(x))
    y = layers.Conv2D(CHANNELS, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    y = layers.BatchNormalization(center=False, scale=False, name=f"{name}_norm")(y)
    y = (1 + gamma[:, None, None]) * y + beta[:, None, None]
    return x + ops.relu(y)


def build():
    picture = keras.Input((SIZE, SIZE, 3), name="picture")
    question = keras.Input((6,), dtype="int32", name="question")

    words = layers.Embedding(WORDS, 6, mask_zero=True, name="words")(question)
    meaning = layers.GRU(12, name="reader")(words)
    film = layers.Dense(BLOCKS * 2 * CHANNELS, name="film")(meaning)
    film = layers.Reshape((BLOCKS, 2, CHANNELS))(film)

    x = layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="stem")(picture)
    for i in range(BLOCKS):
        x = film_block(x, film[:, i, 0], film[:, i, 1], f"block_{i}")
    x = layers.GlobalMaxPooling2D()(layers.Conv2D(12, 1, name="project")(x))
    return keras.Model([picture, question], layers.Dense(ANSWERS, name="answer")(ops.relu(x)))
