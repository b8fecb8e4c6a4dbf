"""FT-Transformer for three quantiles of a price."""

import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)


class Tokens(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1], 16), name="scale")
        self.shift = self.add_weight(shape=(shape[-1], 16), initializer="glorot_uniform", name="shift")
        self.summary = self.add_weight(shape=(1, 1, 16), name="summary")

    def call(self, x):
        tokens = ops.expand_dims(x, -1) * self.scale + self.shift
        first = ops.repeat(self.summary, ops.shape(x)[0], axis=0)
        return ops.concatenate([first, tokens], axis=1)


def build():
    numeric = keras.Input((5,), name="numeric")
    category = keras.Input((3,), dtype="int32", name="category")
    columns = [
        layers.Embedding(k, 16, name=f"column_{i}")(category[:, i : i + 1]) for i, k in enumerate((10, 4, 7))
    ]
    x = layers.Concatenate(axis=1)([Tokens()(numeric), *columns])
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 8)(y, y)])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(16)(layers.Dense(32, activation="relu")(y))
        x = layers.Add()([x, y])
    x = layers.LayerNormalization(epsilon=1e-5)(x[:, 0])
    return keras.Model([numeric, category], layers.Dense(3)(layers.ReLU()(x)))


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    error = ops.reshape(y_true, (-1, 1)) - y_pred
    return ops.mean(ops.maximum(q * error, (q - 1) * error), axis=-1)
