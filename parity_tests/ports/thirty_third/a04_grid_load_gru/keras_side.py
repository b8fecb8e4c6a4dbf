"""Day-ahead load: GRU encoder/decoder with additive attention, three non-crossing quantiles."""

import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)


@keras.saving.register_keras_serializable("grid")
class AdditiveAttention(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units

    def build(self, shapes):
        query, memory = shapes
        self.w_query = self.add_weight(
            shape=(query[-1], self.units), initializer="glorot_uniform", name="w_query"
        )
        self.w_memory = self.add_weight(
            shape=(memory[-1], self.units), initializer="glorot_uniform", name="w_memory"
        )
        self.score = self.add_weight(shape=(self.units,), initializer="random_normal", name="score")

    def call(self, inputs):
        query, memory = inputs
        q = ops.expand_dims(ops.matmul(query, self.w_query), 2)  # b, ahead, 1, u
        m = ops.expand_dims(ops.matmul(memory, self.w_memory), 1)  # b, 1, past, u
        energy = ops.sum(ops.tanh(q + m) * self.score, axis=-1)
        return ops.matmul(ops.softmax(energy, axis=-1), memory)


@keras.saving.register_keras_serializable("grid")
class Monotone(layers.Layer):
    """first value free, the others by positive increments"""

    def call(self, x):
        return ops.cumsum(ops.concatenate([x[..., :1], ops.softplus(x[..., 1:])], axis=-1), axis=-1)


def build():
    history = keras.Input((24, 3), name="history")
    future = keras.Input((6, 2), name="future")
    memory, state = layers.GRU(16, return_sequences=True, return_state=True, name="encoder")(history)
    decoded = layers.GRU(16, return_sequences=True, name="decoder")(future, initial_state=state)
    context = AdditiveAttention(10, name="attention")([decoded, memory])
    x = layers.Concatenate()([decoded, context])
    x = layers.Dense(16, activation="elu", name="mix")(x)
    x = layers.Dense(len(QUANTILES), name="raw")(x)
    return keras.Model([history, future], Monotone(name="quantiles")(x))


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    e = ops.expand_dims(y_true, -1) - y_pred
    return ops.mean(ops.maximum(q * e, (q - 1.0) * e), axis=(1, 2))
