"""Click-through model with dot-product feature interactions (DLRM style).

Inputs
    dense    (8,)   numeric features, already standardised
    cats     (5,)   one id per categorical field
    history  (12,)  ids of the last viewed items, padded with 0
Output: one logit.
"""

import keras
import numpy as np
from keras import layers, ops

FIELD_SIZES = (20, 30, 12, 50, 7)
NUM_ITEMS = 60
EMBED_DIM = 8
HISTORY = 12


@keras.saving.register_keras_serializable("ctr")
class PairwiseDots(layers.Layer):
    """Dot products of all distinct pairs of feature vectors."""

    def build(self, input_shape):
        num = input_shape[1]
        rows, cols = np.tril_indices(num, k=-1)
        self.flat_index = (rows * num + cols).astype("int32")
        self.num = num

    def call(self, x):
        gram = ops.matmul(x, ops.swapaxes(x, 1, 2))
        gram = ops.reshape(gram, (-1, self.num * self.num))
        return ops.take(gram, self.flat_index, axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], len(self.flat_index))


def mlp(x, sizes, name):
    for i, size in enumerate(sizes):
        x = layers.Dense(size, activation="relu", name=f"{name}_{i}")(x)
    return x


def build():
    dense = keras.Input((8,), name="dense")
    cats = keras.Input((len(FIELD_SIZES),), dtype="int32", name="cats")
    history = keras.Input((HISTORY,), dtype="int32", name="history")

    bottom = mlp(dense, (24, EMBED_DIM), "bottom")

    vectors = [bottom]
    for i, size in enumerate(FIELD_SIZES):
        table = layers.Embedding(size, EMBED_DIM, name=f"field_{i}")
        vectors.append(table(cats[:, i]))

    items = layers.Embedding(NUM_ITEMS, EMBED_DIM, mask_zero=True, name="history_items")(history)
    vectors.append(layers.GlobalAveragePooling1D(name="history_pool")(items))

    stacked = layers.Lambda(lambda v: ops.stack(v, axis=1), name="stack")(vectors)
    pairs = PairwiseDots(name="interactions")(stacked)

    x = layers.Concatenate(name="top_in")([bottom, pairs])
    x = mlp(x, (32, 16), "top")
    logit = layers.Dense(1, name="logit")(x)
    return keras.Model([dense, cats, history], logit, name="dlrm")
