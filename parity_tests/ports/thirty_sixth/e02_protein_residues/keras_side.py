"""Masked-residue model of proteins: a small encoder whose output shares the embedding."""

import keras
from keras import layers, ops

VOCAB, LENGTH, WIDTH, HEADS, DEPTH, PAD = 24, 20, 16, 4, 2, 0


@keras.saving.register_keras_serializable("protein")
class Residues(layers.Layer):
    """Token and position embedding; with reverse=True the scores of the tokens."""

    def build(self, shape):
        self.tokens = self.add_weight(name="tokens", shape=(VOCAB, WIDTH), initializer="normal")
        self.positions = self.add_weight(name="positions", shape=(LENGTH, WIDTH), initializer="normal")
        self.score_bias = self.add_weight(name="bias", shape=(VOCAB,), initializer="zeros")

    def call(self, x, reverse=False):
        if reverse:
            return ops.matmul(x, ops.transpose(self.tokens)) + self.score_bias
        return ops.take(self.tokens, x, axis=0) * WIDTH**0.5 + self.positions


def block(x, mask, i):
    y = layers.LayerNormalization(name=f"norm_a{i}")(x)
    y = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention{i}")(y, y, attention_mask=mask)
    x = layers.Add(name=f"add_a{i}")([x, y])
    y = layers.LayerNormalization(name=f"norm_b{i}")(x)
    y = layers.Dense(4 * WIDTH, activation="gelu", name=f"widen{i}")(y)
    y = layers.Dense(WIDTH, name=f"narrow{i}")(y)
    return layers.Add(name=f"add_b{i}")([x, y])


def build():
    residues = keras.Input((LENGTH,), dtype="int32", name="residues")
    embedding = Residues(name="embedding")
    x = embedding(residues)
    mask = ops.expand_dims(ops.not_equal(residues, PAD), 1)
    for i in range(DEPTH):
        x = block(x, mask, i)
    x = layers.LayerNormalization(name="norm")(x)
    x = layers.Dense(WIDTH, activation="gelu", name="transform")(x)
    x = layers.LayerNormalization(name="transform_norm")(x)
    return keras.Model(residues, embedding(x, reverse=True), name="protein")


def masked_loss(labels, logits):
    """labels: -100 where nothing was hidden."""
    hidden = ops.cast(ops.greater_equal(labels, 0), logits.dtype)
    each = keras.losses.sparse_categorical_crossentropy(ops.maximum(labels, 0), logits, from_logits=True)
    return ops.sum(each * hidden) / ops.sum(hidden)


def optimizer():
    opt = keras.optimizers.AdamW(learning_rate=2e-3, weight_decay=0.02, beta_2=0.98)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
