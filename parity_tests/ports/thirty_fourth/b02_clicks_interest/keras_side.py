"""Click model with attention of the candidate over the user's recent items."""

import keras
from keras import layers, ops

ITEMS, SEGMENTS = 50, 6


class ActivationUnit(layers.Layer):
    """Weighs each past item by its interaction with the candidate."""

    def __init__(self, hidden=16, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(hidden, activation="sigmoid")
        self.score = layers.Dense(1)

    def build(self, query_shape, keys_shape, valid_shape=None):
        dim = keys_shape[-1]
        self.hidden.build((None, None, 4 * dim))
        self.score.build((None, None, self.hidden.units))

    def call(self, query, keys, valid):
        q = ops.broadcast_to(query[:, None], ops.shape(keys))
        z = ops.concatenate([q, keys, q - keys, q * keys], axis=-1)
        score = ops.squeeze(self.score(self.hidden(z)), -1)
        score = ops.where(valid, score, -1e9)
        weight = ops.softmax(score, axis=-1)
        return ops.einsum("bt,btd->bd", weight, keys)

    def compute_output_shape(self, query_shape, keys_shape, valid_shape=None):
        return query_shape


def build():
    history = keras.Input((10,), dtype="int32", name="history")  # 0 = no item
    candidate = keras.Input((), dtype="int32", name="candidate")
    segment = keras.Input((), dtype="int32", name="segment")
    context = keras.Input((4,), name="context")

    item_table = layers.Embedding(ITEMS, 12, name="item")
    q = item_table(candidate)
    keys = item_table(history)
    interest = ActivationUnit(name="interest")(q, keys, ops.not_equal(history, 0))
    seg = layers.Embedding(SEGMENTS, 5, name="segment_table")(segment)
    x = layers.Concatenate()([interest, q, seg, context])
    x = layers.Dense(32, name="tower1")(x)
    x = layers.PReLU(name="act1")(x)
    x = layers.Dense(16, name="tower2")(x)
    x = layers.PReLU(name="act2")(x)
    clicked = layers.Dense(1, name="logit")(x)
    return keras.Model([history, candidate, segment, context], clicked)
