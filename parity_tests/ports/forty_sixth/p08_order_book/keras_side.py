"""DeepLOB with a decoder over horizons: from a window of a limit order book to the moves of the mid price."""

import keras
import numpy as np
from keras import layers, ops

WINDOW, LEVELS, HORIZONS, CLASSES = 40, 10, 3, 3
FILTERS, STATE = 8, 24
HORIZON_WEIGHTS = np.array([0.5, 0.25, 0.25], np.float32)


@keras.saving.register_keras_serializable("order_book")
class RobustScaling(layers.Layer):
    """Centres each column of the window on its median, in units of its median absolute deviation."""

    def call(self, book):
        centred = book - ops.median(book, axis=1, keepdims=True)
        spread = ops.median(ops.abs(centred), axis=1, keepdims=True)
        return ops.clip(centred / (1.4826 * spread + 1e-2), -8.0, 8.0)


def leaky(x):
    return layers.LeakyReLU(negative_slope=1 / 64)(x)


def level_block(x, width, stride, name):
    x = leaky(layers.Conv2D(FILTERS, (1, width), strides=(1, stride), name=f"{name}_across")(x))
    x = leaky(layers.Conv2D(FILTERS, (4, 1), padding="same", name=f"{name}_time1")(x))
    return leaky(layers.Conv2D(FILTERS, (4, 1), padding="same", name=f"{name}_time2")(x))


def inception(x):
    short = leaky(layers.Conv2D(FILTERS, (1, 1), name="short_in")(x))
    short = leaky(layers.Conv2D(FILTERS, (3, 1), padding="same", name="short_out")(short))
    long = leaky(layers.Conv2D(FILTERS, (1, 1), name="long_in")(x))
    long = leaky(layers.Conv2D(FILTERS, (5, 1), padding="same", name="long_out")(long))
    pooled = layers.MaxPooling2D((3, 1), strides=(1, 1), padding="same")(x)
    pooled = leaky(layers.Conv2D(FILTERS, (1, 1), name="pooled_out")(pooled))
    return layers.Concatenate()([short, long, pooled])


@keras.saving.register_keras_serializable("order_book")
class HorizonDecoder(layers.Layer):
    """Goes from horizon to horizon; each is told what was predicted for the one before."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cell = layers.LSTMCell(STATE)
        self.query = layers.Dense(STATE, use_bias=False)
        self.key = layers.Dense(STATE)
        self.score = layers.Dense(1, use_bias=False)
        self.head = layers.Dense(CLASSES)

    def build(self, shapes):
        self.cell.build((None, CLASSES + STATE))
        self.query.build((None, STATE))
        self.key.build((None, None, STATE))
        self.score.build((None, None, STATE))
        self.head.build((None, 2 * STATE))

    def call(self, inputs):
        memory, hidden, carry = inputs
        keys = self.key(memory)
        previous = ops.full_like(hidden[:, :CLASSES], 1.0 / CLASSES)
        logits = []
        for _ in range(HORIZONS):
            energies = self.score(ops.tanh(keys + ops.expand_dims(self.query(hidden), 1)))
            context = ops.sum(ops.softmax(energies, axis=1) * memory, axis=1)
            _, [hidden, carry] = self.cell(ops.concatenate([previous, context], -1), [hidden, carry])
            logits.append(self.head(ops.concatenate([hidden, context], -1)))
            previous = ops.softmax(logits[-1])
        return ops.stack(logits, 1)


def build():
    book = keras.Input((WINDOW, 4 * LEVELS), name="book")
    x = RobustScaling()(book)
    x = layers.Reshape((WINDOW, 4 * LEVELS, 1))(x)
    x = level_block(x, 2, 2, "side")
    x = level_block(x, 2, 2, "level")
    x = level_block(x, LEVELS, 1, "book")
    x = inception(x)
    x = layers.Reshape((WINDOW, 3 * FILTERS))(x)
    memory, hidden, carry = layers.LSTM(STATE, return_sequences=True, return_state=True, name="encoder")(x)
    return keras.Model(book, HorizonDecoder(name="decoder")([memory, hidden, carry]))


def loss(targets, outputs):
    each = keras.losses.sparse_categorical_crossentropy(targets, outputs, from_logits=True)
    return ops.mean(ops.sum(each * ops.cast(HORIZON_WEIGHTS, each.dtype), axis=-1))
