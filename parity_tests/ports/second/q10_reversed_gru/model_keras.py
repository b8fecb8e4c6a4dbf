"""Labels every position of a sequence from what stands before it and what stands behind it."""

from keras import Input, Model, layers, ops


class FlipTime(layers.Layer):
    def call(self, x):
        return ops.flip(x, axis=1)


def build(vocabulary=30, units=20, tags=5):
    ids = Input((12,), dtype="int32", name="x")
    e = layers.Embedding(vocabulary, 16, name="embedding")(ids)
    past = layers.GRU(units, return_sequences=True, name="past")(e)
    future = layers.GRU(units, return_sequences=True, go_backwards=True, name="future")(e)
    future = FlipTime(name="flip")(future)
    h = layers.Concatenate(name="both")([past, future])
    h = layers.Dense(24, activation="relu", name="hidden")(h)
    return Model(ids, layers.Dense(tags, name="tags")(h), name="tagger")
