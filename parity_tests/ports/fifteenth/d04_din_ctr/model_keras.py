"""Deep interest network: clicks from a user's history, attended to by the candidate item."""

import keras
from keras import layers, ops, regularizers

ITEMS, CATEGORIES, LENGTH, DIM = 60, 12, 10, 8


class Dice(layers.Layer):
    """PReLU whose rectifying point follows the data (batch norm without gamma and beta)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-8, center=False, scale=False)

    def build(self, shape):
        self.alpha = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(0.25), name="alpha"
        )
        self.norm.build(shape)

    def call(self, x, training=None):
        p = ops.sigmoid(self.norm(x, training=training))
        return p * x + (1.0 - p) * self.alpha * x


class InterestPooling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(24)
        self.act = Dice()
        self.score = layers.Dense(1)

    def call(self, history, candidate, ids, training=None):
        c = ops.broadcast_to(ops.expand_dims(candidate, 1), ops.shape(history))
        features = ops.concatenate([history, c, history - c, history * c], axis=-1)
        score = self.score(self.act(self.hidden(features), training=training))
        valid = ops.cast(ops.expand_dims(ids, -1) > 0, score.dtype)
        return ops.sum(score * valid * history, axis=1)


def build():
    hist_item = keras.Input((LENGTH,), dtype="int32", name="hist_item")
    hist_cate = keras.Input((LENGTH,), dtype="int32", name="hist_cate")
    item = keras.Input((), dtype="int32", name="item")
    cate = keras.Input((), dtype="int32", name="cate")
    l2 = regularizers.L2(1 / 1024)
    items = layers.Embedding(ITEMS, DIM, embeddings_regularizer=l2, name="items")
    cates = layers.Embedding(CATEGORIES, DIM, embeddings_regularizer=l2, name="cates")
    history = layers.Concatenate()([items(hist_item), cates(hist_cate)])
    candidate = layers.Concatenate()([items(item), cates(cate)])
    interest = InterestPooling()(history, candidate, hist_item)
    x = layers.Concatenate()([interest, candidate, layers.Multiply()([interest, candidate])])
    for width in (32, 16):
        x = layers.Dense(width)(x)
        x = Dice()(x)
        x = layers.Dropout(0.2)(x)
    logit = layers.Dense(1)(x)
    model = keras.Model([hist_item, hist_cate, item, cate], logit)
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.BinaryCrossentropy(from_logits=True))
    return model
