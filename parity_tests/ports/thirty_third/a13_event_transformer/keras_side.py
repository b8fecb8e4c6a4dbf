"""Event logs of machines (kind of event, hours since the last): transformer encoder -> state of wear."""

import keras
from keras import layers

KINDS, LENGTH, DIM, HEADS, FFN, CLASSES = 25, 15, 32, 2, 48, 3


class WhenEmbedding(layers.Layer):
    """adds the position and the gap in hours to what happened"""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.supports_masking = True
        self.gap = layers.Dense(DIM, activation="tanh", name="gap")

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")
        self.gap.build((None, None, 1))

    def call(self, x, gaps):
        return x + self.gap(keras.ops.expand_dims(gaps, -1)) + self.table

    def compute_mask(self, x, mask=None):
        return mask


def encoder(x, i):
    h = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}a")(x)
    h = layers.MultiHeadAttention(HEADS, DIM // HEADS, dropout=0.1, name=f"attention{i}")(h, h)
    x = layers.Add()([x, layers.Dropout(0.1)(h)])
    h = layers.LayerNormalization(epsilon=1e-5, name=f"norm{i}b")(x)
    h = layers.Dense(FFN, activation="relu", name=f"ffn{i}a")(h)
    h = layers.Dense(DIM, name=f"ffn{i}b")(layers.Dropout(0.1)(h))
    return layers.Add()([x, layers.Dropout(0.1)(h)])


def build():
    events = keras.Input((LENGTH,), dtype="int32", name="events")
    gaps = keras.Input((LENGTH,), name="gaps")
    x = layers.Embedding(KINDS, DIM, mask_zero=True, name="kinds")(events)
    x = WhenEmbedding(name="when")(x, gaps=gaps)
    for i in range(2):
        x = encoder(x, i)
    x = layers.LayerNormalization(epsilon=1e-5, name="last_norm")(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model([events, gaps], layers.Dense(CLASSES, name="wear")(x))
