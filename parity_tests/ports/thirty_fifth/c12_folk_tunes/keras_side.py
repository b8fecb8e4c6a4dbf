"""Next character of folk tunes in ABC notation: two LSTMs. Tunes are padded on the right with 0."""

import keras
from keras import layers, ops

VOCAB, LENGTH, UNITS = 28, 20, 20


def build():
    tune = keras.Input((LENGTH,), dtype="int32", name="tune")
    x = layers.Embedding(VOCAB, 10, name="chars")(tune)
    x = layers.LSTM(UNITS, return_sequences=True, name="lstm1")(x)
    x = layers.LSTM(UNITS, return_sequences=True, name="lstm2")(x)
    x = layers.LayerNormalization(epsilon=2**-16, name="norm")(x)
    out = layers.Dense(VOCAB, name="next_char")(x)
    return keras.Model(tune, out, name="tunes")


def loss(y_true, y_pred):
    """Mean over the characters of each tune, then over the tunes; padding does not count."""
    y_true = ops.cast(y_true, "int32")
    ce = ops.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    real = ops.cast(ops.not_equal(y_true, 0), ce.dtype)
    return ops.mean(ops.sum(ce * real, axis=1) / ops.sum(real, axis=1))


def optimizer():
    opt = keras.optimizers.SGD(learning_rate=0.5, momentum=0.75, weight_decay=1 / 512)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
