"""Ordinal regression of credit grades (0..4) from tabular data, category 0 = unknown."""

import keras
from keras import layers, ops

GRADES = 5
CARDS = (9, 6, 14)


class OrderedThresholds(layers.Layer):
    """score -> logits of P(grade > k), with increasing cut points."""

    def build(self, shape):
        self.raw = self.add_weight(
            shape=(GRADES - 1,), name="raw", initializer=keras.initializers.RandomUniform(-1.6, 0.4)
        )

    def call(self, score):
        gaps = ops.softplus(self.raw[1:])
        cuts = ops.cumsum(ops.concatenate([self.raw[:1], gaps]))
        return score - cuts

    def compute_output_shape(self, shape):
        return (shape[0], GRADES - 1)


def ordinal_loss(y_true, y_pred):
    y = ops.reshape(y_true, (-1, 1))
    levels = ops.cast(ops.cast(y, "int64") > ops.arange(GRADES - 1, dtype="int64"), y_pred.dtype)
    bce = ops.softplus(y_pred) - levels * y_pred
    return ops.mean(ops.sum(bce, axis=-1))


def build():
    num = keras.Input((5,), name="num")
    cat = keras.Input((len(CARDS),), dtype="int64", name="cat")
    parts = [layers.LayerNormalization(epsilon=1e-5, name="norm")(num)]
    for i, card in enumerate(CARDS):
        dim = min(6, (card + 1) // 2)
        parts.append(layers.Embedding(card, dim, name=f"emb{i}")(cat[:, i]))
    h = layers.Concatenate()(parts)
    h = layers.Dense(24, activation="selu", kernel_initializer="lecun_normal", name="fc1")(h)
    h = layers.Dense(12, activation="selu", kernel_initializer="lecun_normal", name="fc2")(h)
    score = layers.Dense(1, use_bias=False, name="score")(h)
    return keras.Model([num, cat], OrderedThresholds(name="cuts")(score), name="ordinal")
