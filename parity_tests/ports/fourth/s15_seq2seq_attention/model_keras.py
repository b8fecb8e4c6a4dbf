import keras
from keras import layers, ops

WORDS, WIDTH, UNITS = 40, 16, 22


def build():
    source = keras.Input((10,), dtype="int32", name="source")
    previous = keras.Input((8,), dtype="int32", name="previous")
    x = layers.Embedding(WORDS, WIDTH, mask_zero=True, name="source_table")(source)
    memory, h, c = layers.LSTM(UNITS, return_sequences=True, return_state=True, name="encoder")(x)
    h = layers.Dense(UNITS, activation="tanh", name="bridge_h")(h)
    c = layers.Dense(UNITS, name="bridge_c")(c)
    y = layers.Embedding(WORDS, WIDTH, mask_zero=True, name="target_table")(previous)
    y = layers.LSTM(UNITS, return_sequences=True, name="decoder")(y, initial_state=[h, c])
    context = layers.AdditiveAttention(name="attention")([y, memory])
    y = layers.Concatenate(name="both")([y, context])
    y = layers.Dense(24, activation="tanh", name="mix")(y)
    return keras.Model([source, previous], layers.Dense(WORDS, name="words")(y))


def word_loss(y_true, y_pred):
    """Mean over the words of the batch; 0 is padding."""
    y_true = ops.cast(y_true, "int32")
    each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    real = ops.cast(y_true != 0, y_pred.dtype)
    return ops.sum(each * real) / ops.sum(real)
