"""Turns written dates into ISO ones: LSTM encoder and decoder with attention; output weights tied to the embedding."""

import keras
from keras import layers, ops

CHARS, SYMBOLS = 30, 14  # 0 is padding on both sides
SMOOTHING = 0.1


class TiedEmbedding(layers.Layer):
    def __init__(self, vocabulary, dim, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary, self.dim = vocabulary, dim

    def build(self, input_shape):
        self.table = self.add_weight(
            name="table", shape=(self.vocabulary, self.dim), initializer="glorot_uniform"
        )
        self.output_bias = self.add_weight(name="output_bias", shape=(self.vocabulary,), initializer="zeros")

    def call(self, x, reverse=False):
        if reverse:
            return ops.matmul(x, ops.transpose(self.table)) + self.output_bias
        return ops.take(self.table, x, axis=0)


class SourceAttention(layers.Layer):
    """Luong's general attention over the valid characters of the source."""

    def build(self, query_shape, memory_shape, valid_shape):
        self.w = self.add_weight(
            name="w", shape=(query_shape[-1], memory_shape[-1]), initializer="glorot_uniform"
        )

    def call(self, query, memory, valid):
        scores = ops.einsum("btd,de,bse->bts", query, self.w, memory)
        scores = ops.where(valid[:, None, :], scores, -1e9)
        return ops.matmul(ops.softmax(scores, axis=-1), memory)

    def compute_output_shape(self, query_shape, memory_shape, valid_shape):
        return (*query_shape[:-1], memory_shape[-1])


def smoothed_loss(y_true, y_pred):
    valid = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    target = ops.one_hot(y_true, SYMBOLS, dtype=y_pred.dtype) * (1 - SMOOTHING) + SMOOTHING / SYMBOLS
    per_symbol = -ops.sum(target * ops.log_softmax(y_pred, axis=-1), axis=-1)
    return ops.sum(per_symbol * valid) / ops.sum(valid)


def build():
    source = keras.Input((16,), dtype="int32", name="source")
    previous = keras.Input((10,), dtype="int32", name="previous")
    characters = layers.Embedding(CHARS, 12, mask_zero=True, name="characters")(source)
    memory, h, c = layers.LSTM(20, return_sequences=True, return_state=True, name="encoder")(characters)
    symbols = TiedEmbedding(SYMBOLS, 14, name="symbols")
    decoded = layers.LSTM(20, return_sequences=True, name="decoder")(symbols(previous), initial_state=[h, c])
    context = SourceAttention(name="attention")(decoded, memory, ops.not_equal(source, 0))
    merged = layers.Dense(14, activation="tanh", name="merge")(layers.Concatenate()([decoded, context]))
    return keras.Model([source, previous], symbols(merged, reverse=True), name="dates")
