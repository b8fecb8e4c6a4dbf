"""A causal gMLP language model over characters: no attention, a learned mixing of earlier positions."""

import keras
from keras import layers, ops

VOCABULARY, LENGTH, WIDTH, HIDDEN, BLOCKS = 29, 24, 32, 48, 2


def gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / 2.0**0.5))


class SpatialGate(layers.Layer):
    """Half of the channels gates the other half, after it was mixed along the sequence."""

    def build(self, input_shape):
        length, channels = input_shape[1], input_shape[2]
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.norm.build((None, length, channels // 2))
        self.kernel = self.add_weight(
            shape=(length, length), initializer=keras.initializers.RandomNormal(stddev=0.05), name="kernel"
        )
        self.bias = self.add_weight(shape=(length,), initializer="ones", name="bias")

    def call(self, x):
        u, v = ops.split(x, 2, axis=-1)
        v = ops.einsum("ts,bsc->btc", ops.tril(self.kernel), self.norm(v))
        return u * (v + self.bias[:, None])


def gmlp_block(x, index):
    shortcut = x
    x = layers.LayerNormalization(epsilon=1e-5, name=f"norm_{index}")(x)
    x = layers.Dense(2 * HIDDEN, activation=gelu, name=f"expand_{index}")(x)
    x = SpatialGate(name=f"gate_{index}")(x)
    x = layers.Dense(WIDTH, name=f"contract_{index}")(x)
    x = layers.Dropout(0.1, name=f"dropout_{index}")(x)
    return layers.Add(name=f"add_{index}")([shortcut, x])


def build():
    tokens = keras.Input((LENGTH,), dtype="int32", name="tokens")
    x = layers.Embedding(VOCABULARY, WIDTH, embeddings_initializer="glorot_uniform", name="embedding")(tokens)
    for index in range(BLOCKS):
        x = gmlp_block(x, index)
    x = layers.LayerNormalization(epsilon=1e-5, name="final_norm")(x)
    return keras.Model(tokens, layers.Dense(VOCABULARY, name="logits")(x))


def loss(y_true, y_pred):
    """The mean over a line's characters (0 is padding), for each line."""
    target = ops.cast(ops.reshape(y_true, (-1, LENGTH)), "int32")
    nll = keras.losses.sparse_categorical_crossentropy(target, y_pred, from_logits=True)
    known = ops.cast(target > 0, y_pred.dtype)
    return ops.sum(nll * known, axis=1) / ops.sum(known, axis=1)
